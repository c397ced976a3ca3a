"""The column of derivatives of the op table: by op, and argument, how the result follows it.

An entry is a linear function of a tangent: from ``(t, result, *arguments)`` the change of the
result where the argument changes by ``t``. As the operations are elementwise, the same function
carries an adjoint back. They are written with NumPy's functions and operators alone, so what
they are given decides what comes out: arrays, graph nodes of arrays on servers, or dual numbers,
of which then come second derivatives.

A number or sign that an entry multiplies by stands outermost, where reverse mode takes it off.

Conventions at kinks, as in PyTorch and JAX: 0 for ``abs`` at 0; ``maximum`` and ``minimum`` give
half to each of two equal arguments. What is constant between jumps (``sign``, ``floor``,
comparisons) has the derivative 0 everywhere, written as None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log, pi, sqrt
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from ps_backend.program import scipy_ufuncs as special

Derivative: TypeAlias = Callable[..., Any]
Derivatives: TypeAlias = tuple[Derivative | None, ...]
"""One for each argument; None where the result does not change with it, but for jumps."""

_LOG_2, _LOG_10 = log(2), log(10)
_TWO_OVER_ROOT_PI = 2 / sqrt(pi)
_ROOT_2 = sqrt(2)
_ROOT_2_OVER_PI = sqrt(2 / pi)
_ROOT_2_PI = sqrt(2 * pi)


def _base(t: Any, y: Any, x: Any, power: Any) -> Any:
    """Of ``x ** power`` in x. Known powers are simplified; 0 where the power is, also at x = 0."""
    if isinstance(power, np.number | float | int):
        if power == 0:
            return t * 0
        if power == 1:
            return t
        return power * (t * x if power == 2 else t * x ** (power - 1))
    return t * np.where(power == 0, 0.0, power * x ** np.where(power == 0, 1.0, power - 1))


def _power(t: Any, y: Any, x: Any, power: Any) -> Any:
    """Of ``x ** power`` in the power: 0 where x is."""
    return t * y * np.log(np.where(x == 0, 1.0, x))


def _share(t: Any, mine: Any, other: Any) -> Any:
    """Of ``logaddexp``; a known 0, as in a logistic loss, is not subtracted."""
    is_zero = isinstance(other, np.number | float | int) and other == 0
    return t * special.expit(mine if is_zero else mine - other)


def _larger(t: Any, mine: Any, other: Any) -> Any:
    return np.where(mine > other, t, np.where(mine == other, 0.5 * t, 0.0))


def _number_or_larger(t: Any, mine: Any, other: Any) -> Any:
    return np.where(np.isnan(other), t, _larger(t, mine, other))


def _sign(t: Any, y: Any, x: Any) -> Any:
    return t * np.sign(x)


def _degrees(t: Any, y: Any, x: Any) -> Any:
    return np.rad2deg(t)


def _radians(t: Any, y: Any, x: Any) -> Any:
    return np.deg2rad(t)


def _pseudo_huber_delta(t: Any, y: Any, delta: Any, r: Any) -> Any:
    """Without the difference of almost equal numbers that the textbook form has for small r."""
    squared = (r / delta) ** 2
    root = np.sqrt(1 + squared)
    return t * delta * squared**2 / (root * (1 + root) ** 2)


_POWERS: Derivatives = (_base, _power)
_PLAIN: Derivatives = (lambda t, y, x: t,)

_SMOOTH: dict[str, Derivatives] = {
    # arithmetic
    "add": (lambda t, z, x, y: t, lambda t, z, x, y: t),
    "subtract": (lambda t, z, x, y: t, lambda t, z, x, y: -t),
    "multiply": (lambda t, z, x, y: t * y, lambda t, z, x, y: t * x),
    "divide": (lambda t, z, x, y: t / y, lambda t, z, x, y: -(t * z / y)),
    "remainder": (lambda t, z, x, y: t, lambda t, z, x, y: -(t * np.floor(x / y))),
    "fmod": (lambda t, z, x, y: t, lambda t, z, x, y: -(t * np.trunc(x / y))),
    "pow": _POWERS,
    "float_power": _POWERS,
    "negative": (lambda t, y, x: -t,),
    "positive": _PLAIN,
    "conj": _PLAIN,
    "abs": (_sign,),
    "fabs": (_sign,),
    "copysign": (lambda t, z, x, y: t * np.sign(x) * np.copysign(1.0, y), None),
    "square": (lambda t, y, x: 2 * (t * x),),
    "reciprocal": (lambda t, y, x: -(t * y * y),),
    "maximum": (lambda t, z, x, y: _larger(t, x, y), lambda t, z, x, y: _larger(t, y, x)),
    "minimum": (lambda t, z, x, y: _larger(t, y, x), lambda t, z, x, y: _larger(t, x, y)),
    "fmax": (
        lambda t, z, x, y: _number_or_larger(t, x, y),
        lambda t, z, x, y: _number_or_larger(t, y, x),
    ),
    "fmin": (
        lambda t, z, x, y: _number_or_larger(t, -x, -y),
        lambda t, z, x, y: _number_or_larger(t, -y, -x),
    ),
    "heaviside": (None, lambda t, z, x, y: np.where(x == 0, t, 0.0)),
    "ldexp": (lambda t, y, x, n: np.ldexp(t, n), None),
    "modf_fraction": _PLAIN,
    # powers, exponentials and logarithms
    "sqrt": (lambda t, y, x: 0.5 * (t / y),),
    "cbrt": (lambda t, y, x: t / (3 * y * y),),
    "hypot": (lambda t, z, x, y: t * (x / z), lambda t, z, x, y: t * (y / z)),
    "exp": (lambda t, y, x: t * y,),
    "exp2": (lambda t, y, x: _LOG_2 * (t * y),),
    "expm1": (lambda t, y, x: t * np.exp(x),),
    "log": (lambda t, y, x: t / x,),
    "log1p": (lambda t, y, x: t / (1 + x),),
    "log2": (lambda t, y, x: 1 / _LOG_2 * (t / x),),
    "log10": (lambda t, y, x: 1 / _LOG_10 * (t / x),),
    "logaddexp": (
        lambda t, z, x, y: _share(t, x, y),
        lambda t, z, x, y: _share(t, y, x),
    ),
    "logaddexp2": (
        lambda t, z, x, y: t * special.expit(_LOG_2 * (x - y)),
        lambda t, z, x, y: t * special.expit(_LOG_2 * (y - x)),
    ),
    # trigonometric and hyperbolic functions, and angles
    "sin": (lambda t, y, x: t * np.cos(x),),
    "cos": (lambda t, y, x: -(t * np.sin(x)),),
    "tan": (lambda t, y, x: t * (1 + y * y),),
    "asin": (lambda t, y, x: t / np.sqrt((1 - x) * (1 + x)),),
    "acos": (lambda t, y, x: -(t / np.sqrt((1 - x) * (1 + x))),),
    "atan": (lambda t, y, x: t / (1 + x * x),),
    "atan2": (
        lambda t, z, y, x: t * x / (x * x + y * y),
        lambda t, z, y, x: -(t * y / (x * x + y * y)),
    ),
    "sinh": (lambda t, y, x: t * np.cosh(x),),
    "cosh": (lambda t, y, x: t * np.sinh(x),),
    "tanh": (lambda t, y, x: t / np.cosh(x) ** 2,),  # 1 - y * y has no digits left for large x
    "asinh": (lambda t, y, x: t / np.hypot(1.0, x),),
    "acosh": (lambda t, y, x: t / (np.sqrt(x - 1) * np.sqrt(x + 1)),),
    "atanh": (lambda t, y, x: t / ((1 - x) * (1 + x)),),
    "deg2rad": (_radians,),
    "radians": (_radians,),
    "rad2deg": (_degrees,),
    "degrees": (_degrees,),
    # SciPy's special functions
    "sigmoid": (lambda t, y, x: t * y * special.expit(-x),),  # 1 - y has no digits for large x
    "logit": (lambda t, y, x: t / (x * (1 - x)),),
    "log_expit": (lambda t, y, x: t * special.expit(-x),),
    "erf": (lambda t, y, x: _TWO_OVER_ROOT_PI * (t * np.exp(-x * x)),),
    "erfc": (lambda t, y, x: -_TWO_OVER_ROOT_PI * (t * np.exp(-x * x)),),
    "erfcx": (lambda t, y, x: t * (2 * x * y - _TWO_OVER_ROOT_PI),),
    "ndtr": (lambda t, y, x: 1 / _ROOT_2_PI * (t * np.exp(-0.5 * x * x)),),
    "log_ndtr": (lambda t, y, x: _ROOT_2_OVER_PI * (t / special.erfcx(-x / _ROOT_2)),),
    "gammaln": (lambda t, y, x: t * special.psi(x),),
    "i0": (lambda t, y, x: t * special.i1(x),),
    "i1": (
        lambda t, y, x: t * (special.i0(x) - np.where(x == 0, 0.5, y / np.where(x == 0, 1.0, x))),
    ),
    "xlogy": (lambda t, z, x, y: special.xlogy(t, y), lambda t, z, x, y: t * x / y),
    "xlog1py": (lambda t, z, x, y: special.xlog1py(t, y), lambda t, z, x, y: t * x / (1 + y)),
    "entr": (lambda t, y, x: -(t * (1 + np.log(x))),),
    "kl_div": (lambda t, z, x, y: t * np.log(x / y), lambda t, z, x, y: t * (1 - x / y)),
    "rel_entr": (lambda t, z, x, y: t * (1 + np.log(x / y)), lambda t, z, x, y: -(t * (x / y))),
    "huber": (
        lambda t, z, delta, r: t * np.maximum(np.abs(r) - delta, 0.0),
        lambda t, z, delta, r: t * np.minimum(np.maximum(r, -delta), delta),
    ),
    "pseudo_huber": (
        _pseudo_huber_delta,
        lambda t, z, delta, r: t * r / np.sqrt(1 + (r / delta) ** 2),
    ),
    # selection and conversion
    "where": (
        None,
        lambda t, z, condition, x, y: np.where(condition, t, 0.0),
        lambda t, z, condition, x, y: np.where(condition, 0.0, t),
    ),
    "copy": _PLAIN,
    "cast": _PLAIN,
    "fill": _PLAIN,
}

_STEPS: dict[int, str] = {
    1: "sign signbit modf_whole floor ceil trunc round isfinite isnan isinf true false "
    "logical_not bitwise_invert bitwise_count frexp_exponent int_reciprocal",
    2: "floor_divide int_floor_divide int_remainder int_pow gcd lcm equal not_equal less "
    "less_equal greater greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or "
    "bitwise_xor bitwise_left_shift bitwise_right_shift",
}
"""By number of arguments the ops whose derivatives are 0."""

_NONE: dict[str, str] = {
    "nextafter": "it goes from one float to the next, and is no function of real numbers",
    "spacing": "it goes from one float to the next, and is no function of real numbers",
    "frexp_mantissa": "it takes a float apart; use x / 2.0**k with a number k",
    "digamma": "the derivative, trigamma, is no ufunc of SciPy's",
    "sigmoid_of_exp": "kernels have it, no expression does",
    "iota": "it has no arguments",
    **dict.fromkeys(("uniform", "normal"), "its arguments are the names of a random number"),
    "permuted": "its arguments are the names of a permutation",
}
"""Why there is none."""

# --- reductions -----------------------------------------------------------------------------------

Fold: TypeAlias = Callable[[Any, Any], Any]
"""A reduction along the same axis: of NumPy's function and values, shaped to stand beside them."""


def _every(t: Any, y: Any, x: Any, fold: Fold) -> Any:
    return t


def _share_among_extremes(t: Any, y: Any, x: Any, fold: Fold) -> Any:
    """In equal parts for the elements that are the least or greatest, as in PyTorch and JAX."""
    chosen = x == y
    return np.where(chosen, t / fold(np.sum, chosen), 0.0)


def _others(t: Any, y: Any, x: Any, fold: Fold) -> Any:
    """The product of the others: also where one of them, or the element itself, is zero."""
    is_zero = x == 0.0
    zeros, factors = fold(np.sum, is_zero), np.where(is_zero, 1.0, x)
    rest = fold(np.prod, factors)
    return t * np.where(zeros == 0, rest / factors, np.where((zeros == 1) & is_zero, rest, 0.0))


REDUCTIONS: Mapping[str, Derivative] = MappingProxyType(
    {
        "sum": _every,
        "prod": _others,
        **dict.fromkeys(("min", "max", "nanmin", "nanmax"), _share_among_extremes),
    }
)
"""By reduction, from ``(t, result, values, fold)``: what comes back to the values where the result
is followed by ``t``. Both are shaped to stand beside the values."""

COLUMN: Mapping[str, Derivatives] = MappingProxyType(
    _SMOOTH | {name: (None,) * arity for arity, names in _STEPS.items() for name in names.split()}
)
"""By op its derivatives."""
REASONS: Mapping[str, str] = MappingProxyType(_NONE)
"""By op without derivatives why it has none."""
