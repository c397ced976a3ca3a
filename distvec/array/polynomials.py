"""NumPy's functions of polynomials, by their coefficients from the highest power down; fits.

Composed of slices and products, so the coefficients may be anywhere. Lazy, but for ``polyfit``.
"""

from __future__ import annotations

import operator
import warnings
from typing import Any

import numpy as np

from distvec.array.core.handle import host_array
from distvec.array.core.operators import Arithmetic
from distvec.array.core.shapes import reshape
from distvec.array.elementwise import array_among, zeros_like
from distvec.array.indexing.getitem import get_item
from distvec.array.manipulation.join import concatenate


def polyval(p: Any, x: Any) -> Any:
    """The polynomial with the coefficients ``p`` at ``x``; those on the servers come to the client.

    One sweep, by Horner's scheme.
    """
    if not isinstance(x, Arithmetic):
        like = array_among("polyval", (p, x))
        x = host_array(like, x)
    result = zeros_like(x)
    coefficients: Any = p if isinstance(p, Arithmetic) else np.asarray(p)
    for coefficient in coefficients:
        result = result * x + coefficient
    return result


def polyadd(a1: Any, a2: Any) -> Any:
    """The sum of two polynomials: ``numpy.polyadd``."""
    first, second = _of_one_length("polyadd", a1, a2)
    return first + second


def polysub(a1: Any, a2: Any) -> Any:
    """The difference of two polynomials: ``numpy.polysub``."""
    first, second = _of_one_length("polysub", a1, a2)
    return first - second


def polymul(a1: Any, a2: Any) -> Any:
    """The product of two polynomials: ``numpy.polymul``, a convolution.

    Of the coefficients after the zeros that each begins with: where they end is an evaluation.
    """
    array_among("polymul", (a1, a2))
    return np.convolve(*(_without_zeros(np.atleast_1d(one)) for one in (a1, a2)))


def _without_zeros(p: Any) -> Any:
    """``p`` from the first coefficient on that is not zero; of nothing one zero."""
    trimmed = np.trim_zeros(p, "f")
    if len(trimmed):
        return trimmed
    zero = np.zeros(1, p.dtype)
    return p.session._put(zero) if isinstance(p, Arithmetic) else zero


def polyder(p: Any, m: int = 1) -> Any:
    """The ``m``-th derivative: ``numpy.polyder``."""
    if operator.index(m) < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    for _ in range(m):
        degree = len(p) - 1
        powers = _align_powers(p, np.arange(max(degree, 0), 0, -1))
        p = get_item(p, slice(None, max(degree, 0))) * powers
    return p


def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """The ``m``-th integral, with the constants ``k``: ``numpy.polyint``."""
    if operator.index(m) < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    constants = np.zeros(m) if k is None else np.atleast_1d(k)
    constants = np.broadcast_to(constants, m) if len(constants) == 1 < m else constants
    if len(constants) < m:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    for constant in constants[:m]:
        p = concatenate([p / _align_powers(p, np.arange(len(p), 0, -1)), np.array([constant])])
    return p


def _align_powers(p: Any, powers: Any) -> Any:
    """The powers where the coefficients are."""
    return powers if p.node.on_client else p.session._put(powers)


def _of_one_length(name: str, *given: Any) -> list[Any]:
    """Polynomials with zeros before the shorter one."""
    array_among(name, given)
    arrays: list[Any] = [np.atleast_1d(one) for one in given]
    longest = max(map(len, arrays))
    like = next(one for one in arrays if isinstance(one, Arithmetic))
    return [_filled_up(like, one, longest - len(one)) for one in arrays]


def _filled_up(like: Any, one: Any, missing: int) -> Any:
    """So many zeros before ``one``, which is put where ``like`` is."""
    zeros = np.zeros(missing, one.dtype)
    if isinstance(one, Arithmetic):
        return concatenate([zeros, one]) if missing else one
    return _align_powers(like, np.concatenate([zeros, one]))


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
    order = _check_degree(first, values, deg)
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
        raise NotImplementedError("polyfit: cov= supports only one y; give a column: y[:, 0]")
    return found, _covariance(columns, scale, residuals, len(first) - order, cov)


def _check_degree(x: Any, y: Any, deg: float) -> int:
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
    return (given if on_servers else like.session._put(given)) + 0.0


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
