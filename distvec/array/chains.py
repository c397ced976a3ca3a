"""Products of more than two matrices, and matrices that NumPy takes for tensors; lazy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from distvec.array.products import check_out_of_dot, stored_product


def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> Any:
    """The product of all, in the order that multiplies least: ``numpy.linalg.multi_dot``.

    The first and the last one may be vectors: a row, and a column.
    """
    if len(arrays) < 2:
        raise ValueError("Expecting at least two arrays.")
    *before, last = arrays
    rows = len(arrays[0]) if arrays[0].ndim > 1 else 1
    columns = last.shape[-1] if last.ndim > 1 else 1
    best_cut = _best_cuts((rows, *(one.shape[-1] for one in before), columns))

    def product(first: int, last: int) -> Any:
        if first == last:
            return arrays[first]
        cut = best_cut(first, last)
        return product(first, cut) @ product(cut + 1, last)

    result = product(0, len(arrays) - 1)
    check_out_of_dot(out, result)
    return stored_product(out, result, "multi_dot")


def _best_cuts(extents: Sequence[int]) -> Callable[[int, int], int]:
    """After which factor to cut a chain, by its first and last one; ``extents`` are between them.

    Source: the dynamic programme of Cormen et al., *Introduction to Algorithms*, section 15.2.
    """

    @cache
    def best(first: int, last: int) -> tuple[int, int]:
        """How many multiplications, and the cut."""
        if first == last:
            return 0, first
        return min(
            (best(first, cut)[0] + best(cut + 1, last)[0]
             + extents[first] * extents[cut + 1] * extents[last + 1], cut)
            for cut in range(first, last)
        )  # fmt: skip

    return lambda first, last: best(first, last)[1]


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """``numpy.linalg.tensorsolve`` where the tensor is a matrix: as ``solve``."""
    if axes is not None or np.ndim(b) != 1:
        raise NotImplementedError(
            "tensorsolve: arrays have rank 2 at most; write numpy.linalg.solve(A, b)"
        )
    return np.linalg.solve(a, b)


def tensorinv(a: Any, ind: int = 2) -> Any:
    """``numpy.linalg.tensorinv`` where the tensor is a matrix: as ``inv``."""
    if ind != 1:
        raise NotImplementedError(
            f"tensorinv: arrays have rank 2 at most, and so ind=1 is all there is, not {ind}; "
            f"write numpy.linalg.inv(A)"
        )
    return np.linalg.inv(a)


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.linalg.multi_dot: multi_dot,
        np.linalg.tensorsolve: tensorsolve,
        np.linalg.tensorinv: tensorinv,
    }
