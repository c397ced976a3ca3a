"""``ufunc.reduce`` of ufuncs that have no reduction of their own: the last of the running results.

That is a movement, as ``ufunc.accumulate``: two messages, and memory for as many results.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.array.creation import filled, reshape
from distvec.array.items import get_item
from distvec.array.moving.scans import accumulate
from distvec.array.operators import elementwise
from distvec.array.reduction_keywords import UNSAID, is_everywhere, is_said, mask_for
from distvec.array.reductions import axis_of
from distvec.array.signatures import as_arrays
from ps_backend.program import ops
from ps_backend.program.scans import SCANS


def is_associative(ufunc: Any) -> bool:
    """Whether ``ufunc`` can be reduced so."""
    row = SCANS.get(ufunc.__name__)
    return row is not None and row.ufunc is ufunc


def reduce(
    ufunc: np.ufunc, x: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False,
    initial: Any = UNSAID, where: Any = True,
) -> Any:  # fmt: skip
    """``ufunc.reduce(x, ...)``; lazy."""
    name = f"{ufunc.__name__}.reduce"
    (array,) = as_arrays((x,))
    over = axis_of(array, name, axis)
    if not is_everywhere(where):
        mask = mask_for(array, where, name)
        array = elementwise(array, "where", mask, array, array.dtype.type(ufunc.identity))
    if over == ():
        return array.copy()
    shape = array.shape
    if over is None:
        array, over = reshape(array, (array.size,)), 0
    found = _last(ufunc, array, int(over), dtype)  # type: ignore[arg-type]
    if is_said(initial):
        found = elementwise(found, ops.NAMES[ufunc], found, found.dtype.type(initial))
    if not keepdims:
        return found
    gone = range(len(shape)) if axis is None or len(shape) == 1 else (over,)
    return reshape(found, tuple(1 if k in gone else n for k, n in enumerate(shape)))


def _last(ufunc: np.ufunc, x: Any, axis: int, dtype: Any) -> Any:
    if not x.shape[axis]:
        rest = x.shape[:axis] + x.shape[axis + 1 :]
        empty = ufunc.reduce(np.empty(0, x.dtype), dtype=dtype)
        return x.like(filled(x.session.graph, rest, empty, empty.dtype))
    running = accumulate(ufunc, x, axis, dtype)
    return get_item(running, (slice(None),) * axis + (-1,))
