"""How far the servers' floats may be from NumPy's: running error bounds, operation by operation.

Elementwise results of exact operands are NumPy's bits, or a few units in the last place off. What
has gone through a reduction is not: the order of a sum differs. From there on the difference is
followed as in Higham, Accuracy and Stability of Numerical Algorithms (2002), sections 3.1 and 3.3;
where it could decide something (a comparison, a rounding) there is no bound and ``Undecidable``.

Values, bounds and results are float64 here, whatever the dtype of the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.program import ops

Floats = npt.NDArray[np.float64]
Rule = Callable[[Sequence[Floats], Sequence[Floats], Floats, str], Any]

EPSILON = float(np.finfo(np.float64).eps)


class Undecidable(Exception):
    """Raised if a result depends on digits in which NumPy and the servers may differ."""


def unit_in_last_place(result: npt.NDArray[Any]) -> Floats:
    """The distance between neighbouring floats at ``result``; 0 for what is not finite."""
    if result.dtype.kind != "f":
        return np.zeros(result.shape)
    magnitude = np.abs(result)
    finite = np.where(np.isfinite(magnitude), magnitude, 1.0).astype(result.dtype)
    unit = np.spacing(np.maximum(finite, np.finfo(result.dtype).tiny)).astype(np.float64)
    return np.where(np.isfinite(magnitude), unit, 0.0)


def elementwise(
    name: str,
    values: Sequence[npt.NDArray[Any]],
    errors: Sequence[Floats],
    result: npt.NDArray[Any],
    ulps: int,
) -> Floats:
    """The bound for ``result``, which is op ``name`` on ``values`` that may be off by ``errors``.

    ``Undecidable`` where an operand that may be off could make the result anything else.
    """
    exact = ulps * unit_in_last_place(result)
    uncertain = np.broadcast_to(sum(error > 0 for error in errors), result.shape) > 0
    if not uncertain.any():
        return exact
    rule = _RULES[ops.TABLE[name].error]
    wide = [np.asarray(value, np.float64) for value in values]
    with np.errstate(all="ignore"):
        spread = rule(wide, errors, np.asarray(result, np.float64), name)
        spread = np.broadcast_to(spread, result.shape)
        if result.dtype.kind == "f":
            spread = spread + 2 * max(ulps, 1) * unit_in_last_place(result)
    if not np.isfinite(spread[uncertain]).all():
        raise Undecidable(f"{name} of operands that may be off")
    return np.where(uncertain, spread, exact)


def _no_rule(v: Sequence[Floats], e: Sequence[Floats], r: Floats, name: str) -> float:
    return np.inf


def _bound_add(v: Sequence[Floats], e: Sequence[Floats], r: Floats, name: str) -> Any:
    return sum(e)


def _bound_multiply(v: Sequence[Floats], e: Sequence[Floats], r: Floats, name: str) -> Floats:
    return _times(abs(v[0]), e[1]) + _times(abs(v[1]), e[0]) + e[0] * e[1]


def _bound_divide(v: Sequence[Floats], e: Sequence[Floats], r: Floats, name: str) -> Floats:
    room = abs(v[1]) - e[1]
    return np.where(room > 0, (e[0] + _times(abs(r), e[1])) / room, np.inf)


def _bound_reciprocal(v: Sequence[Floats], e: Sequence[Floats], r: Floats, name: str) -> Floats:
    room = abs(v[0]) - e[0]
    return np.where(room > 0, abs(r) * e[0] / room, np.inf)


def _bound_square(v: Sequence[Floats], e: Sequence[Floats], r: Floats, name: str) -> Floats:
    return (2 * abs(v[0]) + e[0]) * e[0]


def _no_steeper_than_one(v: Sequence[Floats], e: Sequence[Floats], r: Floats, name: str) -> Any:
    return np.maximum.reduce([np.broadcast_to(error, r.shape) for error in e])


def _monotone(v: Sequence[Floats], e: Sequence[Floats], r: Floats, name: str) -> Floats:
    function = ops.TABLE[name].numpy
    middle = function(v[0])
    ends = (abs(function(v[0] + sign * e[0]) - middle) for sign in (1, -1))
    return np.asarray(np.maximum(*ends))


def _step(v: Sequence[Floats], e: Sequence[Floats], r: Floats, name: str) -> Floats:
    function = ops.TABLE[name].numpy
    return np.where(function(v[0] - e[0]) == function(v[0] + e[0]), 0.0, np.inf)


def _bound_compare(v: Sequence[Floats], e: Sequence[Floats], r: Floats, name: str) -> Floats:
    error = e[0] + e[1]
    return np.where((error > 0) & (abs(v[0] - v[1]) <= error), np.inf, 0.0)


def _truth(v: Sequence[Floats], e: Sequence[Floats], r: Floats, name: str) -> Any:
    return sum(unclear_truth(value, error) for value, error in zip(v, e, strict=True))


def unclear_truth(value: Floats, error: Floats) -> Floats:
    """Infinity where ``value`` may be 0 or not, else 0."""
    return np.where((error > 0) & (abs(value) <= error), np.inf, 0.0)


def _bound_select(v: Sequence[Floats], e: Sequence[Floats], r: Floats, name: str) -> Floats:
    return np.where(v[0] != 0, e[1], e[2]) + unclear_truth(v[0], e[0])


def _certain(v: Sequence[Floats], e: Sequence[Floats], r: Floats, name: str) -> float:
    return 0.0


def _times(magnitude: Floats, error: Floats) -> Floats:
    """The product, where no error makes none even beside an infinity."""
    return np.where(error > 0, magnitude * error, 0.0)


_RULES: dict[str, Rule] = {
    "": _no_rule,
    "sum": _bound_add,
    "product": _bound_multiply,
    "quotient": _bound_divide,
    "inverse": _bound_reciprocal,
    "square": _bound_square,
    "contraction": _no_steeper_than_one,
    "monotone": _monotone,
    "step": _step,
    "comparison": _bound_compare,
    "truth": _truth,
    "certain": _certain,
    "selection": _bound_select,
}
"""By the ``error`` of an op."""


def rounding(length: int) -> float:
    """Relative to the sum of the magnitudes: what two orders of adding ``length`` terms may differ.

    The terms may be linear combinations, written out or not, hence the constant.
    """
    return (2 * length + 128) * EPSILON


def total(terms: Floats, errors: Floats, magnitudes: Floats) -> Floats:
    """The bound for the sum of ``terms`` that are each off by ``errors``.

    ``magnitudes``: what the terms were before anything cancelled in them.
    """
    with np.errstate(all="ignore"):
        finite = np.isfinite(terms)
        if np.isnan(terms).any() or (np.isinf(terms).any() and _finite_sum(terms[finite])):
            if (errors > 0).any():
                raise Undecidable("a sum of infinities and of terms that may be off")
            return np.zeros(())
        bound = errors.sum() + rounding(terms.size) * (magnitudes + errors).sum()
    if not np.isfinite(bound):
        raise Undecidable("a sum that may overflow on the way")
    return np.asarray(bound)


def _finite_sum(terms: Floats) -> bool:
    return bool(np.isfinite(np.abs(terms).sum()))
