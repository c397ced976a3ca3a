"""Elements and rows in order: all of a small array, or a large one in batches."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.handle import Handle
from distvec.array.values import buffer_of, numpy
from distvec.diagnostics.profile import measured

MOST_ITERATED = 10_000
"""So many elements a ``for`` loop over an array may bring."""

_BATCH_BYTES = 8 << 20


def iterate(x: Handle) -> Iterator[Any]:
    """``iter(x)``: NumPy's scalars, of a table its rows; all brought at once, for the first one.

    Evaluation then if need be, and an implicit transfer. ``TypeError`` for more than
    ``MOST_ITERATED`` elements, and as NumPy's for rank 0.
    """
    if not x.ndim:
        raise TypeError("iteration over a 0-d array")
    if x.size > MOST_ITERATED:
        raise TypeError(
            f"iteration over an array of {x.size} elements, more than {MOST_ITERATED}, would bring "
            f"them one by one; write 'for block in x.blocks()' for batches of them, or x.numpy()"
        )
    return _elements(x.copy())


def _elements(held: Handle) -> Iterator[Any]:
    held.session.transfer_implicitly(held.node, "iteration", held.size)
    held.session.evaluate_implicitly(held, "iteration")
    yield from numpy(held)


def blocks(x: Handle, size: int | None = None) -> Iterator[npt.NDArray[Any]]:
    """The elements, or the rows of a table, in batches of ``size`` in the order of their index.

    All are of the value that the array has now. By default a batch has about 8 MiB; the last one
    may be smaller. Evaluation, then for each batch one message to each server that holds some.
    """
    if not x.ndim:
        raise TypeError("a rank-0 array has no elements to go through; read it with x.item()")
    if size is not None and operator.index(size) < 1:
        raise ValueError(f"blocks: size must be 1 or more, got {size}")
    row_bytes = math.prod(x.shape[1:]) * x.dtype.itemsize
    return _batches(x.copy(), size or max(1, _BATCH_BYTES // row_bytes))


def _batches(held: Handle, size: int) -> Iterator[npt.NDArray[Any]]:
    length, client = len(held), held.session.client
    if held.node.on_client:
        values = numpy(held)
        yield from (values[start : start + size] for start in range(0, length, size))
        return
    buffer = buffer_of(held)
    for start in range(0, length, size):
        with measured(held.session.counters):
            batch = client.read_rows(buffer.id, buffer.type, start, min(start + size, length))
        yield batch


def contains(x: Handle, value: Any) -> bool:
    """``value in x``: whether some element is equal; one message a server."""
    return bool(np.any(x == value))
