"""Pieces put end to end along axis 0: which piece a slot reads is a condition on its index.

A piece is read at other slots, by a view; what is made of pieces is one sweep, whose servers fetch
from each other what lands elsewhere than it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.creation import repeated, reshape
from distvec.array.operators import Arithmetic, elementwise
from distvec.graph import build, view_nodes
from distvec.graph.build import check_dtype
from distvec.graph.node import Node
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type

MOST_INPUTS = 24
"""So many pieces at most are read by one sweep; of more, groups are put together first."""
MOST_TRAVELLING = 1 << 12
"""So many elements of the client travel with the program; more are put on the servers before."""

_INT = np.dtype(np.int64)


def index_of(like: Arithmetic, length: int) -> Any:
    """``0, 1, ..., length - 1`` on the servers, in the session of ``like``; lazy."""
    node = like.session.graph.make("iota", (), array_type(DenseSpace(length), _INT))
    return like.like(node)


def shifted(x: Arithmetic, length: int, by: int) -> Any:
    """Of ``length`` rows, row ``by + i`` is row ``i`` of ``x``; zeros where there is none; lazy."""
    with x.session.holders.lock:
        space = DenseSpace(length)
        if not by and x.node.type.space == space:
            return x.like(x.node)
        return x.like(view_nodes.spread(x.session.graph, x.node, space, by, 1))


def choose(x: Arithmetic, condition: Any, first: Any, second: Any) -> Any:
    """``first`` where ``condition``, one truth value a row, is true, elsewhere ``second``; lazy."""
    is_table = any(isinstance(one, Arithmetic) and one.ndim == 2 for one in (first, second))
    mask = reshape(condition, (len(condition), 1)) if is_table else condition
    return elementwise(x, "where", mask, first, second)


def end_to_end(like: Arithmetic, pieces: Sequence[Any], dtype: np.dtype[Any]) -> Any:
    """``pieces`` one after the other along axis 0, in ``dtype``; lazy.

    Arrays of one shape of rows: on the servers, kept by the client, or NumPy's. Of those more than
    ``MOST_TRAVELLING`` elements are put on the servers at once.
    """
    parts = [_on_servers(like, piece, dtype) for piece in _merged(like, pieces) if len(piece)]
    while len(parts) > MOST_INPUTS:
        groups = range(0, len(parts), MOST_INPUTS)
        parts = [_joined(like, parts[first : first + MOST_INPUTS]) for first in groups]
    if not parts:
        return like.session.namespace.zeros((0, *pieces[0].shape[1:]), dtype=dtype)
    return _joined(like, parts)


def _merged(like: Arithmetic, pieces: Sequence[Any]) -> list[Any]:
    """The same with neighbours that are NumPy's as one."""
    found: list[Any] = []
    for piece in pieces:
        if found and isinstance(piece, np.ndarray) and isinstance(found[-1], np.ndarray):
            found[-1] = np.concatenate([found[-1], piece])
        else:
            found.append(piece)
    return found


class _Held:
    """A piece that the client keeps, and that travels with the program."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def __len__(self) -> int:
        return self.node.type.shape[0]


def _on_servers(like: Arithmetic, piece: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(piece, np.ndarray):
        values: npt.NDArray[Any] = piece.astype(check_dtype(dtype))
        if values.size > MOST_TRAVELLING:
            return like.session.array(values)
        return _held(like, like.session.graph.client_value(values, dtype))
    if not piece.node.on_client:
        return piece.astype(dtype)
    with like.session.holders.lock:
        return _held(like, build.cast(like.session.graph, piece.node, dtype))


def _held(like: Arithmetic, node: Node) -> Any:
    """One row as any number of them, which costs no more than a number; else a list of rows."""
    shape = node.type.shape
    if shape[0] > 1:
        return _Held(node)
    graph = like.session.graph
    if len(shape) == 1:
        return like.like(repeated(graph, build.reshape(graph, node, ()), shape))
    row = build.reshape(graph, node, shape[1:])
    type = array_type(DenseSpace(1), node.dtype, shape[1:])
    return like.like(build.broadcast_to(graph, row, type))


def _joined(like: Arithmetic, parts: Sequence[Any]) -> Any:
    """At most ``MOST_INPUTS`` pieces, of one dtype, in a sweep."""
    ends = np.cumsum([len(part) for part in parts]).tolist()
    length = ends[-1]
    index = index_of(like, length)
    result: Any = None
    for part, end in zip(reversed(parts), reversed(ends), strict=True):
        if isinstance(part, _Held):
            continue
        moved = shifted(part, length, end - len(part))
        result = moved if result is None else choose(like, index < end, moved, result)
    for part, end in zip(parts, ends, strict=True):
        if isinstance(part, _Held):
            result = _with_rows(like, result, part, end - len(part), length)
    return result


def _with_rows(like: Arithmetic, under: Any, part: _Held, start: int, length: int) -> Any:
    """``under``, or anything, with the rows of ``part`` from ``start`` on."""
    graph = like.session.graph
    with like.session.holders.lock:
        type = array_type(DenseSpace(length), part.node.dtype, part.node.type.shape[1:])
        zero = graph.constant(0, part.node.dtype)
        node = graph.make("fill", (zero,), type) if under is None else under.node
        slots = graph.client_value(np.arange(start, start + len(part)), _INT)
        return like.like(graph.make("place", (node, slots, part.node), type))
