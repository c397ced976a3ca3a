"""What an array of a keyed space has at a key that nobody has written to yet.

A value is a function of the seed, the key and the column alone, by Philox: to read an unknown key,
to insert it now or later, on whichever server, gives the same bits. Only operations that IEEE 754
rounds correctly are used, so no processor gives others.

``evaluate`` is the meaning, in NumPy; ``ps_backend.kernels.keyed.rows`` computes the same bits
compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.program import philox

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Constant:
    """The same value everywhere."""

    value: float = 0


@dataclass(frozen=True, slots=True)
class Uniform:
    """``low + (high - low) * u`` with ``u`` uniform in [0, 1), of 53 random bits."""

    low: float
    high: float
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Normal:
    """``mean + scale * z`` with ``z`` of the standard normal distribution."""

    mean: float
    scale: float
    seed: int = 0


Fill = Constant | Uniform | Normal


def evaluate(rule: Fill, keys: Array, row: tuple[int, ...], dtype: Any) -> Array:
    """The initial values of int64 ``keys``, of shape ``(n, *row)`` and of ``dtype``.

    Random numbers are float64, rounded to ``dtype`` as ``astype`` does.
    """
    if isinstance(rule, Constant):
        with np.errstate(all="ignore"):  # as below
            return np.full((len(keys), *row), rule.value, dtype)
    columns = prod(row)
    numbers = uniform(rule.seed, keys, columns)
    if isinstance(rule, Uniform):
        numbers *= rule.high - rule.low
        numbers += rule.low
    else:
        numbers = normal_of(numbers)
        numbers *= rule.scale
        numbers += rule.mean
    with np.errstate(all="ignore"):  # what is beyond the dtype becomes what NumPy makes of it
        return numbers.astype(dtype, copy=False).reshape(len(keys), *row)


def uniform(seed: int, keys: Array, columns: int) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1), of shape ``(n, columns)``.

    Philox's counter is the key and half of the column, its key the seed; each call gives two
    columns.
    """
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    counter = keys.astype(np.uint64)[:, None]
    half = np.arange((columns + 1) // 2, dtype=np.uint64)[None, :]
    key = np.uint64(seed & ((1 << 64) - 1))
    words = philox.words(
        (counter & low, counter >> shift, half, np.uint64(0)), (key & low, key >> shift)
    )
    numbers = np.empty((len(keys), half.size, 2))
    for k in range(2):
        bits = (words[2 * k] << np.uint64(21)) ^ (words[2 * k + 1] >> np.uint64(11))
        numbers[:, :, k] = bits.astype(np.float64) * philox.TO_UNIT
    return numbers.reshape(len(keys), 2 * half.size)[:, :columns].copy()


CENTRE = 0.425
"""So far from one half the first of the three rational functions goes."""
FAR = 5.0
"""Where ``sqrt(-log(p))`` is greater the third one is taken."""

CENTRAL = (
    (
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    ),
)
MIDDLE = (
    (
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258e0,
        3.64784832476320460504e0,
        5.76949722146069140550e0,
        4.63033784615654529590e0,
        1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940e0,
        2.05319162663775882187e0,
        1.0,
    ),
)
OUTER = (
    (
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.24266094738807843860e-3,
        2.65321895265761230930e-2,
        2.96560571828504891230e-1,
        1.78482653991729133580e0,
        5.46378491116411436990e0,
        6.65790464350110377720e0,
    ),
    (
        2.04426310338993978564e-15,
        1.42151175831644588870e-7,
        1.84631831751005468180e-5,
        7.86869131145613259100e-4,
        1.48753612908506148525e-2,
        1.36929880922735805310e-1,
        5.99832206555887937690e-1,
        1.0,
    ),
)
"""Numerators and denominators, highest powers first."""

LOG_2 = 0.6931471805599453
LOG_TERMS = tuple(2.0 / k for k in range(21, 0, -2))
"""Of ``log((1 + z) / (1 - z)) = 2z + 2/3 z^3 + ...``, highest powers first."""
SMALLEST = 2.0**-54
"""In place of a uniform number that is zero."""


def normal_of(u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Standard normal numbers of as many uniform ones: where their distribution reaches ``u``.

    Source: Wichura (1988), "Algorithm AS 241: the percentage points of the normal distribution";
    its logarithm is computed by additions, multiplications and divisions here.
    """
    centred = u - 0.5
    numbers = np.empty_like(u)
    near = np.abs(centred) <= CENTRE
    q = centred[near]
    numbers[near] = q * _rational(CENTRAL, CENTRE * CENTRE - q * q)
    far = ~near
    q = centred[far]
    p = np.where(q < 0.0, u[far], 1.0 - u[far])
    r = np.sqrt(-_log(np.maximum(p, SMALLEST)))
    tail = np.where(r <= FAR, _rational(MIDDLE, r - 1.6), _rational(OUTER, r - FAR))
    numbers[far] = np.where(q < 0.0, -tail, tail)
    return numbers


def _rational(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Array) -> Array:
    above, below = (_polynomial(one, x) for one in coefficients)
    return above / below


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def _log(x: Array) -> Array:
    """The natural logarithm of positive numbers."""
    mantissa, exponent = np.frexp(x)
    z = (mantissa - 1.0) / (mantissa + 1.0)
    return exponent * LOG_2 + z * _polynomial(LOG_TERMS, z * z)
