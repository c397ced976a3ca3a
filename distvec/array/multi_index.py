"""Indices of several axes as one number, and back; lazy but for the check that all are in range."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from distvec.array.checks import refuse_if
from distvec.array.functions import array_among, clip

_ORDERS = {"C": 1, "F": -1}


def ravel_multi_index(
    multi_index: Any, dims: Any, mode: str | tuple[str, ...] = "raise", order: str = "C"
) -> Any:
    """``numpy.ravel_multi_index``. With ``mode="raise"`` an implicit evaluation for each axis."""
    array_among("ravel_multi_index", tuple(multi_index))
    lengths = _lengths(dims)
    _check_size("ravel_multi_index: dims", lengths)
    modes = (mode,) * len(lengths) if isinstance(mode, str) else mode
    if len(multi_index) != len(lengths):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(lengths)}")
    axes = list(zip(map(_integers, multi_index), lengths, modes, strict=True))
    result: Any = 0
    for index, length, how in axes[:: _direction(order)]:
        result = result * length + _in_range(index, length, how)
    return result


def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """``numpy.unravel_index``; an implicit evaluation: ``ValueError`` for what is out of range."""
    lengths = _lengths(shape)
    _check_size("unravel_index: shape", lengths)
    rest, size = _integers(indices), prod(lengths)
    refuse_if((rest < 0) | (rest >= size), ValueError, f"index is out of bounds for size {size}")
    found = []
    for length in lengths[:: -_direction(order)]:
        found.append(rest % length)
        rest = rest // length
    return tuple(found[:: -_direction(order)])


def _lengths(shape: Any) -> list[int]:
    return [operator.index(one) for one in (shape if isinstance(shape, tuple | list) else (shape,))]


def _check_size(name: str, lengths: list[int]) -> None:
    if prod(lengths) > np.iinfo(np.intp).max:
        raise ValueError(
            f"{name} {tuple(lengths)} says of an array that it has {prod(lengths)} elements, more "
            f"than an index of 64 bits tells apart; take smaller ones"
        )


def _direction(order: str) -> int:
    if order is None:
        return 1
    if order not in _ORDERS:
        raise ValueError(f"order must be 'C' or 'F', got {order!r}")
    return _ORDERS[order]


def _integers(index: Any) -> Any:
    given = index if hasattr(index, "dtype") else np.asarray(index)
    if given.dtype.kind not in "iub":
        raise TypeError("only int indices permitted")
    return given.astype(np.int64)


def _in_range(index: Any, length: int, mode: str) -> Any:
    if mode == "wrap":
        return index % length
    if mode == "clip":
        return clip(index, 0, length - 1) if hasattr(index, "node") else index.clip(0, length - 1)
    if mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    refuse_if((index < 0) | (index >= length), ValueError, "invalid entry in coordinates array")
    return index


def ix_(*args: Any) -> tuple[Any, ...]:
    """One vector as it is. ``NotImplementedError`` for several, which NumPy makes an open mesh."""
    if len(args) > 1:
        raise NotImplementedError(
            "ix_: rows and columns by arrays on the servers; write x[rows][:, columns]"
        )
    (given,) = args
    if given.ndim != 1:
        raise ValueError("Cross index must be 1 dimensional")
    return np.nonzero(given) if given.dtype == np.bool_ else (given,)


def _indices_from(indices: Callable[..., Any]) -> Callable[..., Any]:
    """``indices`` of a triangle, of an array of this shape: the client computes them."""

    def function(arr: Any, k: int = 0) -> Any:
        if arr.ndim != 2:
            raise ValueError("input array must be 2-d")
        return indices(arr.shape[0], k=k, m=arr.shape[1])

    return function


def _diagonal_indices(arr: Any) -> Any:
    if arr.ndim != 2:
        raise ValueError("input array must be at least 2-d")
    if arr.shape[0] != arr.shape[1]:
        raise ValueError("All dimensions of input must be of equal length")
    return np.diag_indices(len(arr), arr.ndim)


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.ravel_multi_index: ravel_multi_index,
        np.unravel_index: unravel_index,
        np.ix_: ix_,
        np.tril_indices_from: _indices_from(np.tril_indices),
        np.triu_indices_from: _indices_from(np.triu_indices),
        np.diag_indices_from: _diagonal_indices,
    }
