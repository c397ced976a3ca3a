"""The op table: one row per elementwise operation, the only place that lists them.

From a row come the operator and function that users call, the dtype of the result (NumPy's own
rule, asked of the ufunc), the source text of both kernel engines, and the table in the
documentation. To add an operation, add a row here and nothing else.

Kernel expressions are templates over scalar arguments ``{0}``, ``{1}``, ...; names that start with
an underscore are the helpers of ``kernels/scalar_math.py``. All arguments of a step already have
the dtype that NumPy's loop works in, so an expression never has to convert.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from ps_backend import philox


@dataclass(frozen=True, slots=True)
class Op:
    """One elementwise operation."""

    name: str
    """The name in the array API standard where it has one."""
    arity: int
    numpy: Callable[..., Any]
    """What the operation means, on arrays; a ufunc wherever NumPy (or SciPy) has one."""
    numba: str
    """Scalar expression of the compiled kernel; empty for what ``kernels/lower.py`` replaces."""
    numexpr: str | None = None
    """The same for numexpr, where it computes exactly what NumPy does on floats."""
    on_bool: str | None = None
    """The op that has this meaning on booleans, where the expression does not."""
    on_int: str | None = None
    """The op that has this meaning on integers, where the expression does not."""


def _select(condition: Any, first: Any, second: Any) -> Any:
    return np.where(condition, first, second)


def _sigmoid_of_exp(x: Any, e: Any) -> Any:
    return np.where(x >= 0, 1, e) / (1 + e)


def _source(*_: Any) -> Any:
    raise TypeError("a source op has no arguments to apply a NumPy function to")


_ROWS = (
    # arithmetic
    Op("add", 2, np.add, "{0} + {1}", "({0} + {1})", on_bool="logical_or"),
    Op("subtract", 2, np.subtract, "{0} - {1}", "({0} - {1})"),
    Op("multiply", 2, np.multiply, "{0} * {1}", "({0} * {1})", on_bool="logical_and"),
    Op("divide", 2, np.divide, "{0} / {1}", "({0} / {1})"),
    Op("floor_divide", 2, np.floor_divide, "_floor_divide({0}, {1})", on_int="int_floor_divide"),
    Op("int_floor_divide", 2, np.floor_divide, "_int_floor_divide({0}, {1})"),
    Op("remainder", 2, np.remainder, "_remainder({0}, {1})", on_int="int_remainder"),
    Op("int_remainder", 2, np.remainder, "_int_remainder({0}, {1})"),
    Op("pow", 2, np.power, "{0} ** {1}", on_int="int_pow"),
    Op("int_pow", 2, np.power, "_int_pow({0}, {1})"),
    Op("negative", 1, np.negative, "-{0}", "(-{0})"),
    Op("positive", 1, np.positive, "{0}"),
    Op("abs", 1, np.absolute, "abs({0})", "abs({0})", on_bool="copy"),
    Op("sign", 1, np.sign, "_sign({0})"),
    Op("square", 1, np.square, "{0} * {0}", "({0} * {0})", on_bool="copy"),
    Op("reciprocal", 1, np.reciprocal, "1 / {0}", "(1 / {0})", on_int="int_reciprocal"),
    Op("int_reciprocal", 1, np.reciprocal, "{0} if -2 < {0} < 2 else 0"),
    Op("maximum", 2, np.maximum, "_maximum({0}, {1})", on_bool="logical_or"),
    Op("minimum", 2, np.minimum, "_minimum({0}, {1})", on_bool="logical_and"),
    # rounding
    Op("floor", 1, np.floor, "np.floor({0})", on_bool="copy", on_int="copy"),
    Op("ceil", 1, np.ceil, "np.ceil({0})", on_bool="copy", on_int="copy"),
    Op("trunc", 1, np.trunc, "np.trunc({0})", on_bool="copy", on_int="copy"),
    Op("round", 1, np.rint, "_rint({0})"),
    # exponentials and trigonometry
    Op("sqrt", 1, np.sqrt, "math.sqrt({0})", "sqrt({0})"),
    Op("exp", 1, np.exp, "math.exp({0})"),
    Op("expm1", 1, np.expm1, "math.expm1({0})"),
    Op("log", 1, np.log, "_log({0})"),
    Op("log1p", 1, np.log1p, "math.log1p({0})"),
    Op("log2", 1, np.log2, "math.log2({0})"),
    Op("log10", 1, np.log10, "math.log10({0})"),
    Op("tanh", 1, np.tanh, "math.tanh({0})"),
    Op("sin", 1, np.sin, "math.sin({0})"),
    Op("cos", 1, np.cos, "math.cos({0})"),
    Op("sigmoid", 1, expit, ""),
    # of an x, given exp(-|x|): what sigmoid comes down to where NumPy computes the exponential
    Op("sigmoid_of_exp", 2, _sigmoid_of_exp, "(1 if {0} >= 0 else {1}) / (1 + {1})"),
    # comparisons and tests
    Op("equal", 2, np.equal, "{0} == {1}", "({0} == {1})"),
    Op("not_equal", 2, np.not_equal, "{0} != {1}", "({0} != {1})"),
    Op("less", 2, np.less, "{0} < {1}", "({0} < {1})"),
    Op("less_equal", 2, np.less_equal, "{0} <= {1}", "({0} <= {1})"),
    Op("greater", 2, np.greater, "{0} > {1}", "({0} > {1})"),
    Op("greater_equal", 2, np.greater_equal, "{0} >= {1}", "({0} >= {1})"),
    Op("isfinite", 1, np.isfinite, "{0} - {0} == 0", on_bool="true"),
    Op("isnan", 1, np.isnan, "{0} != {0}"),
    Op("isinf", 1, np.isinf, "_isinf({0})", on_bool="false", on_int="false"),
    Op("true", 1, np.isfinite, "True"),
    Op("false", 1, np.isinf, "False"),
    # logic
    Op("logical_and", 2, np.logical_and, "({0} != 0) & ({1} != 0)"),
    Op("logical_or", 2, np.logical_or, "({0} != 0) | ({1} != 0)"),
    Op("logical_xor", 2, np.logical_xor, "({0} != 0) ^ ({1} != 0)"),
    Op("logical_not", 1, np.logical_not, "{0} == 0"),
    # selection and conversion; `copy` is the identity on every dtype
    Op("where", 3, _select, "{1} if {0} else {2}"),
    Op("copy", 1, np.array, "{0}"),
    Op("cast", 1, np.array, "{0}"),
    # a scalar as every element of a vector
    Op("fill", 1, np.array, "{0}"),
    # sources: `iota` is the global index of the element, `uniform` a random number in [0, 1)
    # that depends on (key, global index) alone
    Op("iota", 0, _source, "_index"),
    Op("uniform", 2, philox.uniform, "_uniform({0}, {1})"),
)

TABLE: dict[str, Op] = {row.name: row for row in _ROWS}

INTERNAL = frozenset(
    name for row in _ROWS for name in (row.on_bool, row.on_int) if name and name not in ("copy",)
) - {"logical_or", "logical_and"} | {
    "copy",
    "cast",
    "fill",
    "iota",
    "sigmoid_of_exp",
    "uniform",
    "where",
}
"""Ops that have no function of their own: other rows, or the planner, use them."""


def specialise(name: str, dtype: str) -> str:
    """The op that computes ``name`` on arguments of ``dtype``."""
    op = TABLE[name]
    if dtype == "bool" and op.on_bool:
        return op.on_bool
    if dtype in ("int32", "int64") and op.on_int:
        return op.on_int
    return name
