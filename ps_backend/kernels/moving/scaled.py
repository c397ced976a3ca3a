"""Products of many floats as a fraction and an exponent of two, which keep their range."""

from __future__ import annotations

from math import frexp, inf, ldexp
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Scaled = tuple[Floats, npt.NDArray[np.int64]]
"""``(fraction, exponent)``: the value of each is their ``np.ldexp``."""

_TOGETHER = 512
"""Fractions, each at least 1/2, whose product is no subnormal number."""


def product(factors: npt.NDArray[Any]) -> Scaled:
    """The products along axis 1, which is not empty, of ``(blocks, rows, width)``."""
    some = factors.astype(np.float64, copy=False)
    exponent = np.zeros((len(factors), factors.shape[2]), np.int64)
    while True:
        some, shifts = np.frexp(some)
        exponent += shifts.sum(axis=1, dtype=np.int64)
        if some.shape[1] == 1:
            return some[:, 0], exponent
        some = np.multiply.reduceat(some, np.arange(0, some.shape[1], _TOGETHER), axis=1)


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


def _joined(a: Scaled, b: Scaled) -> Scaled:
    fraction, shift = np.frexp(a[0] * b[0])
    return fraction, a[1] + b[1] + shift


def recurred(initial: Floats, factors: Scaled, terms: Floats | None) -> Floats:
    """Row 0 is ``initial``, each other one the row before times its factor, plus its term.

    ``factors`` and ``terms`` are ``(blocks, width)``, or one row of factors for all.
    """
    blocks = len(factors[0]) if terms is None else len(terms)
    found = np.empty((blocks + 1, len(initial)))
    for column in range(len(initial)):
        fractions, exponents = ((one[:, column].tolist() * blocks)[:blocks] for one in factors)
        added = None if terms is None else terms[:, column].tolist()
        value = float(initial[column])
        values = [value]
        for k in range(blocks):
            value = times(value, fractions[k], exponents[k])
            if added is not None:
                value += added[k]
            values.append(value)
        found[:, column] = values
    return found


def times(value: float, fraction: float, exponent: int) -> float:
    """``value`` times a product: infinite or 0 only where that is out of the range of floats."""
    own, shift = frexp(value)
    try:
        return ldexp(own * fraction, shift + exponent)
    except OverflowError:
        return inf if own * fraction > 0 else -inf
