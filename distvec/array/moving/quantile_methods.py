"""Where quantiles are among ordered elements, by the methods that NumPy has.

Source: R. J. Hyndman and Y. Fan, "Sample Quantiles in Statistical Packages", The American
Statistician 50 (1996). Counts and quantiles are arrays of NumPy or lazy ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

_CONTINUOUS: dict[str, tuple[float, float]] = {
    "interpolated_inverted_cdf": (0, 1),
    "hazen": (0.5, 0.5),
    "weibull": (0, 0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
"""By method alpha and beta."""

_WHOLE: dict[str, Callable[[Any, Any], Any]] = {
    "inverted_cdf": lambda n, q: _to_boundary(n * q - 1, lambda index, part: part == 0),
    "closest_observation": lambda n, q: _to_boundary(
        n * q - 1 - 0.5, lambda index, part: (part == 0) & (np.floor(index) % 2 == 1)
    ),
    "lower": lambda n, q: np.floor((n - 1) * q),
    "higher": lambda n, q: np.ceil((n - 1) * q),
    "nearest": lambda n, q: np.round((n - 1) * q),
}
"""By method the rank, where the quantile is always an element."""

METHODS = (*_WHOLE, "averaged_inverted_cdf", *_CONTINUOUS, "linear", "midpoint")


class Place(NamedTuple):
    """A quantile lies between the elements of two ranks; ``weight``: how much it has of the second.

    Without a weight it is the element of the first.
    """

    first: Any
    second: Any
    weight: Any


def check_method(method: str) -> None:
    """``ValueError`` for a method that there is not."""
    if method not in METHODS:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {', '.join(METHODS)}")


def place(count: Any, q: Any, method: str) -> Place:
    """Where the quantiles ``q`` of so many elements are, of 1 at least."""
    if method in _WHOLE:
        rank = _whole(_WHOLE[method](count, q), count)
        return Place(rank, rank, None)
    index = _virtual_index(count, q, method)
    if method == "linear" and index.dtype.kind in "iu":
        return Place(index, index, None)
    first = np.floor(index)
    part = index - first
    if method == "averaged_inverted_cdf":
        part = np.where(part == 0, 0.5, 1.0).astype(index.dtype)
    elif method == "midpoint":
        part = np.where(part == 0, 0.0, 0.5).astype(index.dtype)
    return Place(_whole(first, count), _whole(first + 1, count), part)


def _virtual_index(count: Any, q: Any, method: str) -> Any:
    """Where a quantile would be if there were elements everywhere."""
    if method == "linear":
        return (count - 1) * q
    if method == "midpoint":
        return 0.5 * (np.floor((count - 1) * q) + np.ceil((count - 1) * q))
    if method == "averaged_inverted_cdf":
        return count * q - 1
    alpha, beta = _CONTINUOUS[method]
    return count * q + (alpha + q * (1 - alpha - beta)) - 1


def _to_boundary(index: Any, stays: Callable[[Any, Any], Any]) -> Any:
    """The rank before ``index``, where that ``stays``, else the one after it."""
    before = np.floor(index)
    return np.where(stays(index, index - before), before, before + 1)


def _whole(rank: Any, count: Any) -> Any:
    """``rank`` as int64, within the elements that there are."""
    last = np.maximum(count - 1, 0)
    return np.minimum(np.maximum(rank, 0), last).astype(np.int64)
