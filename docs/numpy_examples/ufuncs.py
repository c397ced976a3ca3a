"""Examples of NumPy's ufuncs: made by the number of arguments, but for those named here."""

from __future__ import annotations

import numpy as np

_INTEGERS = frozenset(
    "bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_invert bitwise_count invert gcd lcm "
    "left_shift right_shift bitwise_left_shift bitwise_right_shift".split()
)
_LOGICAL = frozenset("logical_and logical_or logical_xor logical_not".split())
_BETWEEN = frozenset("arcsin arccos arctanh asin acos atanh".split())
_POSITIVE = frozenset("log log2 log10 log1p sqrt arccosh acosh cbrt".split())
_OWN = {
    "ldexp": ("np.ldexp(x, i)", "np.ldexp(x, 3)"),
    "isnat": ("np.isnat(x.astype('int64'))",),
    "matmul": ("np.matmul(T, A)", "np.matmul(T.T, U)", "np.matmul(T, v)", "np.matmul(x, y)"),
    "vecdot": ("np.vecdot(x, y)", "np.vecdot(T, U)"),
    "matvec": ("np.matvec(T, v)", "np.matvec(A, v)"),
    "vecmat": ("np.vecmat(x, T)",),
    "divide": ("np.divide(x, p)", "np.divide(i, j)"),
    "power": ("np.power(p, x)", "np.power(i, 2)"),
    "pow": ("np.pow(p, x)", "np.pow(i, 2)"),
    "float_power": ("np.float_power(p, x)", "np.float_power(i, 2)"),
    "add": ("np.add(x, y)", "np.add(T, v)", "np.add(x, y, out=p)", "np.add(i, 1, dtype='float64')"),
}
_INTEGERS_TOO = frozenset("floor_divide remainder mod fmod divmod".split())


def examples() -> dict[str, tuple[str, ...]]:
    """By name the examples of all."""
    names = [name for name in np.__all__ if isinstance(getattr(np, name), np.ufunc)]
    return {f"np.{name}": _OWN.get(name) or _made(name, getattr(np, name)) for name in names}


def _made(name: str, ufunc: np.ufunc) -> tuple[str, ...]:
    if ufunc.nin == 1:
        return tuple(f"np.{name}({operand})" for operand in _unary(name))
    found = tuple(f"np.{name}({first}, {second})" for first, second in _binary(name))
    return (*found, f"np.{name}(i, j)") if name in _INTEGERS_TOO else found


def _unary(name: str) -> tuple[str, ...]:
    if name in _INTEGERS:
        return "i", "m"
    if name in _LOGICAL:
        return "m", "x"
    if name in _BETWEEN:
        return ("u",)
    return ("p",) if name in _POSITIVE else ("x", "T")


def _binary(name: str) -> tuple[tuple[str, str], ...]:
    if name in _INTEGERS:
        return ("i", "j"), ("i", "3")
    if name in _LOGICAL:
        return ("m", "w"), ("x", "m")
    return ("x", "y"), ("T", "v")
