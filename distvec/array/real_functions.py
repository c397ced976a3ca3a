"""NumPy's elementwise functions that are no ufuncs, of real arrays: composed of the op table.

All are lazy and cost no message. What a complex number would have more of is known here: nothing.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

from distvec.array.functions import full_like, zeros_like
from distvec.array.items import set_item
from distvec.array.operators import Arithmetic, elementwise
from distvec.array.reduction_keywords import stored_in
from distvec.array.statistics import as_array

A = TypeVar("A", bound=Arithmetic)


def nan_to_num(
    x: A, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> A:
    """``x`` with numbers for NaN and infinities: the greatest and the least, unless others are
    given. ``copy=False`` changes ``x``.
    """
    if as_array("nan_to_num", x).dtype.kind != "f":
        return x.copy() if copy else x
    limits = np.finfo(x.dtype)
    greatest = limits.max if posinf is None else posinf
    least = limits.min if neginf is None else neginf
    result = elementwise(x, "where", _equals(x, np.inf), greatest, x)
    result = elementwise(x, "where", _equals(x, -np.inf), least, result)
    result = elementwise(x, "where", elementwise(x, "isnan", x), nan, result).astype(x.dtype)
    if result.shape != x.shape:
        raise ValueError(
            f"nan_to_num: could not broadcast numbers of {result.shape} into {x.shape}; "
            f"give nan=, posinf= and neginf= that fit into it"
        )
    return result if copy else x.assign(result, "nan_to_num")


def real(x: A) -> A:
    """The real part: the array itself."""
    return as_array("real", x)


def set_real(x: A, value: Any) -> None:
    """``x.real = value``: every element, from as many or from one."""
    set_item(x, Ellipsis, value)


def refuse_imag(x: A, value: Any) -> None:
    """``x.imag = value``: ``TypeError``, as NumPy's of real arrays."""
    raise TypeError(f"array does not have imaginary part to set: its elements are {x.dtype}")


def imag(x: A) -> A:
    """The imaginary part: zeros."""
    return zeros_like(as_array("imag", x))


def angle(z: A, deg: bool = False) -> A:
    """0 of what is positive, pi (180 degrees) of what is negative."""
    result = elementwise(as_array("angle", z), "atan2", 0, z)
    return result * (180 / math.pi) if deg else result


def isreal(x: A) -> A:
    """True everywhere."""
    return full_like(as_array("isreal", x), True, np.bool_)


def iscomplex(x: A) -> A:
    """False everywhere."""
    return full_like(as_array("iscomplex", x), False, np.bool_)


def isposinf(x: A, out: Any = None) -> A:
    """Where ``x`` is infinity."""
    return stored_in(out, _equals(as_array("isposinf", x), np.inf), "isposinf")


def isneginf(x: A, out: Any = None) -> A:
    """Where ``x`` is minus infinity."""
    return stored_in(out, _equals(as_array("isneginf", x), -np.inf), "isneginf")


def fix(x: A, out: Any = None) -> A:
    """Rounded towards zero."""
    return stored_in(out, elementwise(as_array("fix", x), "trunc", x), "fix")


def sinc(x: A) -> A:
    """``sin(pi x) / (pi x)``, 1 at zero."""
    turned = np.pi * as_array("sinc", x)
    least = float(np.finfo(turned.dtype).eps)
    safe = elementwise(
        x, "where", elementwise(x, "not_equal", turned, 0), turned, turned.dtype.type(least)
    )
    return elementwise(x, "sin", safe) / safe


def i0(x: A) -> A:
    """Modified Bessel function of order 0: SciPy's, some units in the last place off NumPy's."""
    kind = as_array("i0", x).dtype
    kind = kind if kind.kind == "f" else np.dtype(np.float64)
    return elementwise(x, "i0", x.astype(kind)).astype(kind)


def _equals(x: A, value: float) -> A:
    return elementwise(x, "equal", x, value)
