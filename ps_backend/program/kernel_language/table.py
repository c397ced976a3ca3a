"""The operations of users' kernels: how many operands, what they are taken as, what comes out.

A value is an ``INT`` (64 bits, wraps around as NumPy's), a ``FLOAT`` (64 bits) or a ``BOOL``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

INT, FLOAT, BOOL = "int", "float", "bool"
NUMERIC = "numeric"
"""Floats if one operand is, else integers."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operation."""

    arity: int
    takes: str
    """As what its operands are taken."""
    gives: str
    code: str
    """What servers generate for it; places are those of operands."""
    of_floats: str = ""
    """What else of floats, if anything."""


def _math(name: str, arity: int = 1, gives: str = FLOAT) -> Op:
    places = ", ".join(f"{{{k}}}" for k in range(arity))
    return Op(arity, FLOAT, gives, f"math.{name}({places})")


OPS: Mapping[str, Op] = MappingProxyType(
    {
        "add": Op(2, NUMERIC, NUMERIC, "({0} + {1})"),
        "sub": Op(2, NUMERIC, NUMERIC, "({0} - {1})"),
        "mul": Op(2, NUMERIC, NUMERIC, "({0} * {1})"),
        "div": Op(2, FLOAT, FLOAT, "({0} / {1})"),
        "floordiv": Op(2, NUMERIC, NUMERIC, "floor_divided({0}, {1})", "({0} // {1})"),
        "mod": Op(2, NUMERIC, NUMERIC, "remainder({0}, {1})", "({0} % {1})"),
        "pow": Op(2, FLOAT, FLOAT, "({0} ** {1})"),
        "neg": Op(1, NUMERIC, NUMERIC, "(-{0})"),
        "bitand": Op(2, INT, INT, "({0} & {1})"),
        "bitor": Op(2, INT, INT, "({0} | {1})"),
        "bitxor": Op(2, INT, INT, "({0} ^ {1})"),
        "lt": Op(2, NUMERIC, BOOL, "({0} < {1})"),
        "le": Op(2, NUMERIC, BOOL, "({0} <= {1})"),
        "gt": Op(2, NUMERIC, BOOL, "({0} > {1})"),
        "ge": Op(2, NUMERIC, BOOL, "({0} >= {1})"),
        "eq": Op(2, NUMERIC, BOOL, "({0} == {1})"),
        "ne": Op(2, NUMERIC, BOOL, "({0} != {1})"),
        "and": Op(2, BOOL, BOOL, "({0} and {1})"),
        "or": Op(2, BOOL, BOOL, "({0} or {1})"),
        "not": Op(1, BOOL, BOOL, "(not {0})"),
        "min": Op(2, NUMERIC, NUMERIC, "smaller({0}, {1})"),
        "max": Op(2, NUMERIC, NUMERIC, "larger({0}, {1})"),
        "abs": Op(1, NUMERIC, NUMERIC, "magnitude({0})"),
        "truncate": Op(1, FLOAT, INT, "truncated({0})"),
        "convert": Op(1, FLOAT, FLOAT, "{0}"),
        "floor": Op(1, FLOAT, FLOAT, "np.floor({0})"),
        "ceil": Op(1, FLOAT, FLOAT, "np.ceil({0})"),
        "trunc": Op(1, FLOAT, FLOAT, "np.trunc({0})"),
        **{
            name: _math(name)
            for name in (
                "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos",
                "atan", "sinh", "cosh", "tanh", "erf", "erfc", "lgamma", "fabs",
            )
        },
        **{name: _math(name, 2) for name in ("atan2", "hypot", "copysign")},
        **{name: _math(name, 1, BOOL) for name in ("isnan", "isinf", "isfinite")},
    }
)  # fmt: skip

OF_MATH = (
    "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "erf", "erfc", "lgamma", "fabs", "atan2", "hypot", "copysign", "isnan",
    "isinf", "isfinite", "floor", "ceil", "trunc",
)  # fmt: skip
"""Those that users write as ``math.sqrt(x)``."""

CONSTANTS = ("inf", "nan")
