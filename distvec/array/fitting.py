"""Polynomials fitted to points: ``numpy.polyfit``, by least squares on the servers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array.creation import reshape
from distvec.array.functions import array_among
from distvec.array.operators import Arithmetic


def polyfit(
    x: Any, y: Any, deg: float, rcond: float | None = None, full: bool = False, w: Any = None,
    cov: bool | str = False,
) -> Any:  # fmt: skip
    """Coefficients of the polynomial of degree ``deg`` that is closest to the points, the highest
    power first: ``numpy.polyfit``. The client keeps them.

    Evaluated at once, as the rank is needed: two messages, the lengths of the columns of powers,
    then their triangle beside ``y``.
    """
    like = array_among("polyfit", (x, y, w))
    first, values = (_floats(like, one) for one in (x, y))
    order = _checked(first, values, deg)
    powers, weight = np.vander(first, order), None
    if w is not None:
        weight = _floats(like, w)
        if weight.ndim != 1:
            raise TypeError("expected a 1-d array for weights")
        if len(weight) != len(values):
            raise TypeError("expected w and y to have the same length")
        column = reshape(weight, (len(weight), 1))
        powers, values = powers * column, values * (column if values.ndim == 2 else weight)
    scale = np.sqrt((powers * powers).sum(axis=0))
    columns = powers / scale
    limit = len(first) * np.finfo(first.dtype).eps if rcond is None else rcond
    found, residuals, rank, sizes = np.linalg.lstsq(columns, values, limit)
    found = found / (scale if found.ndim == 1 else reshape(scale, (order, 1)))
    if full:
        return found, residuals, rank, sizes, limit
    if int(rank) != order:
        message = "Polyfit may be poorly conditioned"
        warnings.warn(message, np.exceptions.RankWarning, stacklevel=2)
    if not cov:
        return found
    if values.ndim == 2:
        raise NotImplementedError("polyfit: cov= of one y at a time; give a column: y[:, 0]")
    return found, _covariance(columns, scale, residuals, len(first) - order, cov)


def _checked(x: Any, y: Any, deg: float) -> int:
    """How many coefficients, as NumPy rounds it down; errors as NumPy's."""
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if not x.size:
        raise TypeError("expected non-empty vector for x")
    if y.ndim < 1:
        raise TypeError("expected 1D or 2D array for y")
    if len(x) != len(y):
        raise TypeError("expected x and y to have same length")
    return int(deg) + 1


def _floats(like: Any, given: Any) -> Any:
    """``given`` on the servers, as floats."""
    on_servers = isinstance(given, Arithmetic) and not given.node.on_client
    return (given if on_servers else like.session.array(given)) + 0.0


def _covariance(columns: Any, scale: Any, residuals: Any, freedom: int, cov: Any) -> Any:
    """Of the coefficients, from the columns that were fitted, and what lengths these had before."""
    unscaled = np.linalg.inv(columns.T @ columns)
    unscaled = unscaled / (reshape(scale, (len(scale), 1)) * scale)
    if cov == "unscaled":
        return unscaled
    if freedom <= 0:
        raise ValueError(
            "the number of data points must exceed order to scale the covariance matrix"
        )
    return unscaled * (residuals / freedom)


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {np.polyfit: polyfit}
