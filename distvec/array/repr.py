"""An array as text, as NumPy prints, and as a table in a notebook.

Text has the elements that NumPy would print. For a table nothing is evaluated, and no message sent.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.core.conversion import numpy
from distvec.array.indexing.pull_push import pull
from distvec.diagnostics.profile import bytes_text
from distvec.graph.node import Node
from distvec.planner.plan import Template
from distvec.runtime.evaluator import Evaluator
from ps_backend.client import Client
from ps_backend.program.types import ArrayType

_DEPTH = 4
_MOST_NODES = 16
_LEFT_OUT = "..."


def head(node: Node) -> str:
    """``add(multiply(x0, 2.0), x1)``: arrays that are stored have a name each, numbers are shown.

    Below some depth, or beyond some operations, there are dots.
    """
    return _Writer().text(node, _DEPTH)


class _Writer:
    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._left = _MOST_NODES

    def text(self, node: Node, depth: int) -> str:
        """``node``, and so many operations below it."""
        if node.known:
            return str(node.value) if node.type.shape == () else self._name(node)
        if not node.args:
            return f"{node.op}()"
        self._left -= 1
        if not depth or self._left < 0:
            return _LEFT_OUT
        return f"{node.op}({', '.join(self.text(arg, depth - 1) for arg in node.args)})"

    def _name(self, node: Node) -> str:
        return self._names.setdefault(id(node), f"x{len(self._names)}")


_TABLE = "border-collapse:collapse;border:1px solid;text-align:left;color:inherit"
_CELL = "padding:2px 8px;text-align:left;vertical-align:top"
_STRIP = "border-collapse:collapse;width:24em;height:1em;table-layout:fixed"
_PART = "border:1px solid;padding:0;background:rgba(70,130,180,{shade})"
_SHADES = (0.55, 0.3)

Row = tuple[str, str]
"""A name, and text or the ``Markup`` of ``strip``."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def table(title: str, rows: Iterable[Row]) -> str:
    """A table of names and what they are, under a title."""
    lines = [f"<tr>{_cell(name)}{_cell(text)}</tr>" for name, text in rows]
    head = f'<tr><th colspan="2" style="{_CELL}">{escape(title)}</th></tr>'
    return f'<table style="{_TABLE}"><tbody>{head}{"".join(lines)}</tbody></table>'


def strip(shares: Sequence[tuple[str, int]], below: str) -> Markup:
    """Parts as wide as their sizes, each with a text that shows under the mouse, and a line."""
    total = sum(size for _, size in shares)
    parts = [
        f'<td title="{escape(text)}" style="width:{100 * size / total:.4g}%;'
        f'{_PART.format(shade=_SHADES[place % 2])}"></td>'
        for place, (text, size) in enumerate(shares)
        if size
    ]
    line = f'<table style="{_STRIP}"><tbody><tr>{"".join(parts)}</tr></tbody></table>'
    return Markup(f"{line if parts else ''}{escape(below)}")


def _cell(text: str) -> str:
    inner = text if isinstance(text, Markup) else escape(text)
    return f'<td style="{_CELL}">{inner}</td>'


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
        _shown_elements(x, what),
        threshold=0 if _is_summarised(x.size) else sys.maxsize,
        edgeitems=_edge_items(),
        **options,
    )


def _shown_elements(x: Any, what: str) -> npt.NDArray[Any]:
    """All of a small array; of others the ends of each axis, with something between them.

    Of a transpose, that of its table.
    """
    if x.is_split_by_columns:
        shown: npt.NDArray[Any] = _shown_elements(x.table, what).T
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
        if extent > found.shape[axis]:  # one unprinted element stands for those left out
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


def array2string(
    a: Any, max_line_width: Any = None, precision: Any = None, suppress_small: Any = None,
    separator: str = " ", prefix: str = "", *, threshold: Any = None, edgeitems: Any = None,
    **options: Any,
) -> str:  # fmt: skip
    """``numpy.array2string``; an implicit transfer of the elements that are printed."""
    limits = {"threshold": threshold, "edgeitems": edgeitems}
    with np.printoptions(**{name: limit for name, limit in limits.items() if limit is not None}):
        return printed(
            a, "np.array2string()", max_line_width=max_line_width, precision=precision,
            suppress_small=suppress_small, separator=separator, prefix=prefix, **options,
        )  # fmt: skip


def as_html(x: Any) -> str:
    """``x._repr_html_()``: what the array is, where, and what its evaluation costs.

    It is also true of an array whose session is closed.
    """
    return table(type(x).__name__, list(_rows(x)))


def as_bundle(x: Any) -> dict[str, str]:
    """``x._repr_mimebundle_()``: the table, and a line of text, which a notebook keeps beside it.

    It would else ask ``repr`` for that line, which evaluates. Empty in a terminal, where IPython
    shows text alone: there ``repr`` is what one wants to see.
    """
    if _is_in_terminal():
        return {}
    rows = dict(_rows(x))
    about = [
        type(x).__name__,
        *(str(rows[name]) for name in ("dtype", "shape", "state") if name in rows),
    ]
    line = f"<{', '.join(about)}; print(x) shows its elements>"
    return {"text/html": table(type(x).__name__, list(_rows(x))), "text/plain": line}


def _is_in_terminal() -> bool:
    """Is this IPython's shell in a terminal?"""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    formatter = getattr(shell, "display_formatter", None)
    return formatter is not None and list(formatter.active_types) == ["text/plain"]


def _rows(x: Any) -> Iterator[Row]:
    yield "dtype", str(x.dtype)
    if x.is_split_by_columns:
        _, *rest = _of_array(x.table)
        yield "shape", f"{x.shape}, split by columns"
        yield from rest
    else:
        yield from _of_selection(x) if x.selects else _of_array(x)


def _of_array(x: Any) -> Iterator[Row]:
    node = x.node
    yield "shape", str(node.type.shape)
    if isinstance(node.type, ArrayType):
        yield "bytes", _by_server(x.session.client, node.type)
    yield "state", _state(x, node)
    if node.known:
        if node.origin is not None:
            yield "its evaluation", cost(node.origin)
        return
    if not x.session.client.is_closed:
        yield "an evaluation", cost(x.session.plan(x))
    yield "expression", head(node)


def _of_selection(x: Any) -> Iterator[Row]:
    values, mask = x.values, x.mask
    count = x.session.counts.get(mask.node)
    known = count is not None and count.known
    row = values.shape[1:]
    yield "shape", str((int(count.value) if known else _Unknown(), *row))
    yield "elements of", f"{values.dtype} {values.shape}, {_state(values, values.node)}"
    yield "where true", f"a mask, {_state(mask, mask.node)}"


class _Unknown:
    """The length of a selection that nobody has asked for."""

    def __repr__(self) -> str:
        return "?"


def _state(x: Any, node: Node) -> str:
    if node.known and node.on_client:
        return f"known to the client: {node.value}" if node.is_scalar else "kept by the client"
    if x.session.client.is_closed:
        return "lost: its session is closed"
    return "stored on the servers" if node.known else "pending: computed when it is asked for"


def _by_server(client: Client, type: ArrayType) -> Markup:
    """The bytes of an array, and on each server its share."""
    row_bytes = type.width * type.dtype.itemsize
    shares = []
    for server, address in enumerate(client.addresses):
        low, high = type.space.range_of(server, client.servers)
        size = (high - low) * row_bytes
        shares.append((f"server {server}, {address}: {bytes_text(size)}", size))
    holders = sum(bool(size) for _, size in shares)
    most = max(size for _, size in shares)
    below = f"{bytes_text(type.nbytes)} on {holders} of {client.servers} servers"
    return strip(shares, f"{below}, at most {bytes_text(most)} on one" if holders > 1 else below)


def cost(template: Template) -> str:
    """One line of what the programs of a plan cost."""
    if not template.programs:
        return "nothing to run on the servers"
    return (
        f"{_count_phrase(template.messages, 'message')} to each server, "
        f"{_count_phrase(template.sweeps, 'sweep')}, "
        f"{_count_phrase(template.vectors_read, 'vector')} read "
        f"({bytes_text(template.bytes_read)}), "
        f"{template.vectors_written} written ({bytes_text(template.bytes_written)})"
    )


def _count_phrase(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


# --- sessions -------------------------------------------------------------------------------------


def summary(session: Evaluator) -> Iterator[Row]:
    """What a session has done so far, as rows of a table."""
    client, counters = session.client, session.counters
    yield "state", "closed" if client.is_closed else "open"
    for address, messages, seconds in zip(
        client.addresses, counters.messages_per_server, counters.seconds_per_server, strict=True
    ):
        yield f"server {address}", f"{_count_phrase(messages, 'message')}, {seconds:.3g} s at work"
    counts = counters.snapshot()
    yield "programs", f"{counts['programs']}, {_count_phrase(counts['sweeps'], 'sweep')}"
    yield "vectors", f"{counts['vectors_read']} read, {counts['vectors_written']} written"
    sent, received = (bytes_text(counts[f"bytes_{way}"]) for way in ("sent", "received"))
    yield "network", f"{sent} sent, {received} received"
    evaluations = _count_phrase(session.implicit_evaluations, "evaluation")
    yield "implicit", f"{evaluations}, {_count_phrase(session.implicit_transfers, 'transfer')}"
    yield "pending", _count_phrase(len(session.graph), "operation")
