"""``repr(x)`` and ``str(x)``: as NumPy prints, of the elements that NumPy would print."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.indexing import pull
from distvec.array.values import numpy

MOST_SHOWN = 10_000
"""More elements than these are summarised, whatever NumPy's print options say."""

_NAME = "DistArray("


def as_text(x: Any) -> str:
    """``str(x)``: evaluation, then an implicit transfer of the elements that are printed."""
    if not x.ndim:
        return str(x.scalar("str()"))
    return printed(x, "str()", separator=" ")


def as_code(x: Any) -> str:
    """``repr(x)``: as ``str(x)``, with dtype and shape."""
    about = f"dtype={x.dtype}, shape={x.shape})"
    if not x.ndim:
        return f"{_NAME}{x.scalar('repr()')}, {about}"
    elements = printed(x, "repr()", separator=", ", prefix=_NAME, suffix=")")
    text = f"{_NAME}{elements},"
    width = len(text) - (text.rfind("\n") + 1) + 1 + len(about)
    is_wide = width > np.get_printoptions()["linewidth"]
    return f"{text}{chr(10) + ' ' * len(_NAME) if is_wide else ' '}{about}"


def printed(x: Any, what: str, **options: Any) -> str:
    """``numpy.array2string`` of the elements that NumPy prints: those come here.

    NumPy chooses how wide numbers are printed by those that it shows, so the text is its own.
    """
    return np.array2string(
        _shown(x, what),
        threshold=0 if _is_summarised(x.size) else sys.maxsize,
        edgeitems=_edge_items(),
        **options,
    )


def _shown(x: Any, what: str) -> npt.NDArray[Any]:
    """All of a small array; of others the ends of each axis, with something between them.

    Of a transpose, that of its table.
    """
    table = getattr(x, "table", None)
    if table is not None:
        shown: npt.NDArray[Any] = _shown(table, what).T
        return shown
    if x.node.on_client or not _is_summarised(x.size):
        x.session.transfer_implicitly(x.node, what, x.size)
        x.session.evaluate_implicitly(x, what)
        return numpy(x)
    length, *row = x.shape
    rows = _ends(length)
    x.session.transfer_implicitly(x.node, what, len(rows) * math.prod(row))
    x.session.evaluate_implicitly(x, what)
    found = pull(x, rows)
    for axis, extent in enumerate(x.shape):
        if axis:
            found = found.take(_ends(extent), axis)
        if extent > found.shape[axis]:  # what is left out stands as one that is not printed
            found = np.insert(found, found.shape[axis] // 2, found.take(0, axis), axis)
    return found


def _is_summarised(size: int) -> bool:
    return size > min(np.get_printoptions()["threshold"], MOST_SHOWN)


def _ends(extent: int) -> list[int]:
    """The indices that NumPy prints of so many."""
    at_each_end = max(1, _edge_items())
    if extent <= 2 * at_each_end:
        return list(range(extent))
    return [*range(at_each_end), *range(extent - at_each_end, extent)]


def _edge_items() -> int:
    return min(np.get_printoptions()["edgeitems"], MOST_SHOWN // 2)
