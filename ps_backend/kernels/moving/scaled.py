"""Products of many floats as a fraction and an exponent of two, which keep their range."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

Exponents = npt.NDArray[np.int64]
Scaled = tuple[Floats, Exponents]
"""``(fraction, exponent)``: the value of each is their ``np.ldexp``."""

_TOGETHER = 512
"""Fractions, each at least 1/2, whose product is no subnormal number."""
_AT_ONCE = _TOGETHER * 64
_GREATEST = 1 << 20
"""An exponent that no float has, and that fits a C integer with another one added."""


def product(factors: npt.NDArray[Any]) -> Scaled:
    """The product of each column, ``(width,)`` of them."""
    width = factors.shape[1]
    total: Scaled = np.ones(width), np.zeros(width, np.int64)
    for low in range(0, len(factors), _AT_ONCE):
        some = factors[low : low + _AT_ONCE].astype(np.float64, copy=False)
        exponent = np.zeros(width, np.int64)
        while True:
            some, shifts = np.frexp(some)
            exponent += shifts.sum(axis=0, dtype=np.int64)
            if len(some) == 1:
                break
            some = np.multiply.reduceat(some, np.arange(0, len(some), _TOGETHER), axis=0)
        total = _joined(total, (some[0], exponent))
    return total


def power(base: Floats, count: int) -> Scaled:
    """``base`` to the power of ``count``."""
    total: Scaled = np.ones(base.shape), np.zeros(base.shape, np.int64)
    own, shifts = np.frexp(base)
    square = own, shifts.astype(np.int64)
    while count:
        if count & 1:
            total = _joined(total, square)
        square, count = _joined(square, square), count >> 1
    return total


def times(values: Floats, factor: Scaled) -> Floats:
    """``values`` times a product, as floats: infinite or 0 only if that is out of range."""
    own, shifts = np.frexp(values)
    fraction, exponent = _joined((own, shifts.astype(np.int64)), factor)
    return np.ldexp(fraction, np.clip(exponent, -_GREATEST, _GREATEST).astype(np.int32))


def _joined(a: Scaled, b: Scaled) -> Scaled:
    fraction, shift = np.frexp(a[0] * b[0])
    return fraction, a[1] + b[1] + shift
