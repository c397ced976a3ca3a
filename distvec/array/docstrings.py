"""Docstrings of the functions that the tables of operations and of reductions make.

Each table row gives one function. This module gives its text: a summary and a true example from
the rows below, and sections that follow from the row of the operation itself.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ps_backend.program.ops import Op
from ps_backend.program.reducers import Reducer
from ps_backend.program.scipy_ufuncs import OfSciPy

_ELEMENTWISE = """
add: Add two arrays element by element, ``x1 + x2``.
    [1.0, 2.0, 3.0]; 10 -> [11., 12., 13.] float64
subtract: Subtract the second array from the first, ``x1 - x2``.
    [1.0, 2.0, 3.0]; 1 -> [0., 1., 2.] float64
multiply: Multiply two arrays element by element, ``x1 * x2``.
    [1.0, 2.0, 3.0]; 10 -> [10., 20., 30.] float64
divide: Divide the first array by the second, ``x1 / x2``.
    [1.0, 2.0, 3.0]; 2 -> [0.5, 1. , 1.5] float64
floor_divide: Divide and round down to a whole number, ``x1 // x2``.
    [7, 8, -7]; 2 -> [ 3,  4, -4] int64
remainder: Compute the remainder of ``x1 // x2``, with the sign of the divisor.
    [7, 8, -7]; 4 -> [3, 0, 1] int64
fmod: Compute the remainder of a division, with the sign of the dividend.
    [7, 8, -7]; 4 -> [ 3,  0, -3] int64
pow: Raise the elements of the first array to powers of the second, ``x1 ** x2``.
    [1.0, 2.0, 3.0]; 3 -> [ 1.,  8., 27.] float64
float_power: Raise elements to powers in float64, whatever the dtype of the operands.
    [1, 2, 3]; -1 -> [1.        , 0.5       , 0.33333333] float64
negative: Negate each element, ``-x``.
    [1.0, 0.5, -2.0] -> [-1. , -0.5,  2. ] float64
positive: Return each element unchanged, ``+x``.
    [1.0, 0.5, -2.0] -> [ 1. ,  0.5, -2. ] float64
conj: Return the complex conjugate: real elements stay unchanged.
    [1.0, 0.5, -2.0] -> [ 1. ,  0.5, -2. ] float64
abs: Compute the absolute value of each element.
    [1.0, -0.5, -2.0] -> [1. , 0.5, 2. ] float64
fabs: Compute the absolute value of each element as a float.
    [1, 0, -2] -> [1., 0., 2.] float64
sign: Return the sign of each element: -1, 0 or 1, and NaN for NaN.
    [3.0, 0.0, -2.0] -> [ 1.,  0., -1.] float64
signbit: Test whether the sign bit is set: for negative numbers and -0.0.
    [3.0, 0.0, -2.0] -> [False, False,  True] bool
copysign: Give the elements of the first array the signs of the second.
    [1.0, 2.0, 3.0]; -1.0 -> [-1., -2., -3.] float64
square: Compute the square of each element.
    [1.0, 2.0, 3.0] -> [1., 4., 9.] float64
reciprocal: Compute ``1 / x``; for integers the result is rounded towards zero.
    [1.0, 2.0, 4.0] -> [1.  , 0.5 , 0.25] float64
maximum: Take the larger of two elements; NaN if one is NaN.
    [1.0, 2.0, 3.0]; 2 -> [2., 2., 3.] float64
minimum: Take the smaller of two elements; NaN if one is NaN.
    [1.0, 2.0, 3.0]; 2 -> [1., 2., 2.] float64
fmax: Take the larger of two elements; a NaN is ignored if the other is a number.
    [1.0, np.nan, 3.0]; 2 -> [2., 2., 3.] float64
fmin: Take the smaller of two elements; a NaN is ignored if the other is a number.
    [1.0, np.nan, 3.0]; 2 -> [1., 2., 2.] float64
heaviside: Compute the step function: 0 below zero, 1 above, ``x2`` at zero.
    [-1.5, 0.0, 2.0]; 0.5 -> [0. , 0.5, 1. ] float64
nextafter: Return the next representable float after ``x1`` towards ``x2``.
    [0.0, 1.0]; 2.0 -> [5.e-324, 1.e+000] float64
spacing: Return the distance to the next float that is larger in magnitude.
    [1.0, 1024.0] -> [2.22044605e-16, 2.27373675e-13] float64
ldexp: Compute ``x1 * 2**x2`` for an integer ``x2``.
    [1.0, 2.0, 3.0]; 3 -> [ 8., 16., 24.] float64
gcd: Compute the greatest common divisor of two integers.
    [12, 18, 7]; 6 -> [6, 6, 1] int64
lcm: Compute the least common multiple of two integers.
    [4, 6, 7]; 6 -> [12,  6, 42] int64
floor: Round each element down to a whole number.
    [1.7, 0.5, -1.2] -> [ 1.,  0., -2.] float64
ceil: Round each element up to a whole number.
    [1.7, 0.5, -1.2] -> [ 2.,  1., -1.] float64
trunc: Round each element towards zero to a whole number.
    [1.7, 0.5, -1.2] -> [ 1.,  0., -1.] float64
sqrt: Compute the square root of each element; NaN for negative elements.
    [1.0, 4.0, 9.0] -> [1., 2., 3.] float64
cbrt: Compute the cube root of each element.
    [1.0, 8.0, -27.0] -> [ 1.,  2., -3.] float64
hypot: Compute ``sqrt(x1**2 + x2**2)`` without overflow in between.
    [3.0, 5.0, 8.0]; [4.0, 12.0, 15.0] -> [ 5., 13., 17.] float64
exp: Compute the exponential of each element.
    [0.0, 1.0, 2.0] -> [1.        , 2.71828183, 7.3890561 ] float64
exp2: Compute ``2**x`` for each element.
    [0.0, 1.0, 3.0] -> [1., 2., 8.] float64
expm1: Compute ``exp(x) - 1``, accurate for small elements.
    [0.0, 0.5, 1.0] -> [0.        , 0.64872127, 1.71828183] float64
log: Compute the natural logarithm of each element.
    [1.0, 2.0, 10.0] -> [0.        , 0.69314718, 2.30258509] float64
log1p: Compute ``log(1 + x)``, accurate for small elements.
    [0.0, 0.5, 1.0] -> [0.        , 0.40546511, 0.69314718] float64
log2: Compute the logarithm to base 2 of each element.
    [1.0, 2.0, 8.0] -> [0., 1., 3.] float64
log10: Compute the logarithm to base 10 of each element.
    [1.0, 10.0, 1000.0] -> [0., 1., 3.] float64
logaddexp: Compute ``log(exp(x1) + exp(x2))`` without overflow.
    [0.0, 1.0, 1000.0]; 1000.0 -> [1000.        , 1000.        , 1000.69314718] float64
logaddexp2: Compute ``log2(2**x1 + 2**x2)`` without overflow.
    [0.0, 1.0, 2000.0]; 2000.0 -> [2000., 2000., 2001.] float64
sin: Compute the sine of each element, an angle in radians.
    [0.0, 0.5, 1.0] -> [0.        , 0.47942554, 0.84147098] float64
cos: Compute the cosine of each element, an angle in radians.
    [0.0, 0.5, 1.0] -> [1.        , 0.87758256, 0.54030231] float64
tan: Compute the tangent of each element, an angle in radians.
    [0.0, 0.5, 1.0] -> [0.        , 0.54630249, 1.55740772] float64
asin: Compute the inverse sine, in radians between -pi/2 and pi/2.
    [0.0, 0.5, 1.0] -> [0.        , 0.52359878, 1.57079633] float64
acos: Compute the inverse cosine, in radians between 0 and pi.
    [0.0, 0.5, 1.0] -> [1.57079633, 1.04719755, 0.        ] float64
atan: Compute the inverse tangent, in radians between -pi/2 and pi/2.
    [0.0, 0.5, 1.0] -> [0.        , 0.46364761, 0.78539816] float64
atan2: Compute the angle of the point (x2, x1), in radians between -pi and pi.
    [0.0, 1.0, -1.0]; [-1.0, 0.0, 1.0] -> [ 3.14159265,  1.57079633, -0.78539816] float64
sinh: Compute the hyperbolic sine of each element.
    [0.0, 0.5, 1.0] -> [0.        , 0.52109531, 1.17520119] float64
cosh: Compute the hyperbolic cosine of each element.
    [0.0, 0.5, 1.0] -> [1.        , 1.12762597, 1.54308063] float64
tanh: Compute the hyperbolic tangent of each element.
    [0.0, 0.5, 1.0] -> [0.        , 0.46211716, 0.76159416] float64
asinh: Compute the inverse hyperbolic sine of each element.
    [0.0, 0.5, 1.0] -> [0.        , 0.48121183, 0.88137359] float64
acosh: Compute the inverse hyperbolic cosine of each element, at least 1.
    [1.0, 1.5, 2.0] -> [0.        , 0.96242365, 1.3169579 ] float64
atanh: Compute the inverse hyperbolic tangent of each element.
    [0.0, 0.5, -0.5] -> [ 0.        ,  0.54930614, -0.54930614] float64
deg2rad: Convert angles from degrees to radians.
    [0.0, 90.0, 180.0] -> [0.        , 1.57079633, 3.14159265] float64
rad2deg: Convert angles from radians to degrees.
    [0.0, 0.5, 1.0] -> [ 0.        , 28.64788976, 57.29577951] float64
radians: Convert angles from degrees to radians.
    [0.0, 90.0, 180.0] -> [0.        , 1.57079633, 3.14159265] float64
degrees: Convert angles from radians to degrees.
    [0.0, 0.5, 1.0] -> [ 0.        , 28.64788976, 57.29577951] float64
sigmoid: Compute the logistic sigmoid, ``1 / (1 + exp(-x))``.
    [-1.0, 0.0, 2.0] -> [0.26894142, 0.5       , 0.88079708] float64
logit: Compute ``log(x / (1 - x))``, the inverse of the logistic sigmoid.
    [0.25, 0.5, 0.9] -> [-1.09861229,  0.        ,  2.19722458] float64
log_expit: Compute the logarithm of the logistic sigmoid without loss of precision.
    [-1.0, 0.0, 2.0] -> [-1.31326169, -0.69314718, -0.12692801] float64
erf: Compute the error function of each element.
    [0.0, 0.5, 1.0] -> [0.        , 0.52049988, 0.84270079] float64
erfc: Compute the complementary error function, ``1 - erf(x)``.
    [0.0, 0.5, 1.0] -> [1.        , 0.47950012, 0.15729921] float64
erfcx: Compute the scaled complementary error function, ``exp(x**2) * erfc(x)``.
    [0.0, 1.0, 10.0] -> [1.        , 0.42758358, 0.05614099] float64
ndtr: Compute the distribution function of the standard normal distribution.
    [-1.0, 0.0, 1.96] -> [0.15865525, 0.5       , 0.9750021 ] float64
log_ndtr: Compute the logarithm of the standard normal distribution function.
    [-5.0, 0.0, 2.0] -> [-15.06499839,  -0.69314718,  -0.02301291] float64
gammaln: Compute the logarithm of the absolute value of the gamma function.
    [1.0, 3.0, 10.0] -> [ 0.        ,  0.69314718, 12.80182748] float64
digamma: Compute the derivative of the logarithm of the gamma function.
    [1.0, 2.0, 10.0] -> [-0.57721566,  0.42278434,  2.25175259] float64
i0: Compute the modified Bessel function of the first kind of order 0.
    [0.0, 1.0, 2.0] -> [1.        , 1.26606588, 2.2795853 ] float64
i1: Compute the modified Bessel function of the first kind of order 1.
    [0.0, 1.0, 2.0] -> [0.        , 0.5651591 , 1.59063685] float64
xlogy: Compute ``x1 * log(x2)``, which is 0 if ``x1`` is 0.
    [0.0, 1.0, 2.0]; [0.0, 2.0, 3.0] -> [0.        , 0.69314718, 2.19722458] float64
xlog1py: Compute ``x1 * log(1 + x2)``, which is 0 if ``x1`` is 0.
    [0.0, 1.0, 2.0]; [-1.0, 1.0, 2.0] -> [0.        , 0.69314718, 2.19722458] float64
entr: Compute ``-x * log(x)``: 0 at zero and minus infinity below.
    [0.0, 0.5, 2.0] -> [ 0.        ,  0.34657359, -1.38629436] float64
kl_div: Compute ``x1 * log(x1 / x2) - x1 + x2``; infinity outside its domain.
    [0.0, 0.5, 1.0]; 0.5 -> [0.5       , 0.        , 0.19314718] float64
rel_entr: Compute ``x1 * log(x1 / x2)``, the terms of the relative entropy.
    [0.0, 0.5, 1.0]; 0.5 -> [0.        , 0.        , 0.69314718] float64
huber: Compute the Huber function of ``x2``: quadratic up to ``x1``, then linear.
    [1.0, 1.0, 1.0]; [0.5, 1.0, 3.0] -> [0.125, 0.5  , 2.5  ] float64
pseudo_huber: Compute a smooth Huber function of ``x2`` that bends near ``x1``.
    [1.0, 1.0, 1.0]; [0.5, 1.0, 3.0] -> [0.11803399, 0.41421356, 2.16227766] float64
equal: Compare elements, ``x1 == x2``.
    [1.0, 2.0, 3.0]; 2 -> [False,  True, False] bool
not_equal: Compare elements, ``x1 != x2``.
    [1.0, 2.0, 3.0]; 2 -> [ True, False,  True] bool
less: Compare elements, ``x1 < x2``.
    [1.0, 2.0, 3.0]; 2 -> [ True, False, False] bool
less_equal: Compare elements, ``x1 <= x2``.
    [1.0, 2.0, 3.0]; 2 -> [ True,  True, False] bool
greater: Compare elements, ``x1 > x2``.
    [1.0, 2.0, 3.0]; 2 -> [False, False,  True] bool
greater_equal: Compare elements, ``x1 >= x2``.
    [1.0, 2.0, 3.0]; 2 -> [False,  True,  True] bool
isfinite: Test whether each element is finite: not infinite and not NaN.
    [1.0, np.inf, np.nan] -> [ True, False, False] bool
isnan: Test whether each element is NaN.
    [1.0, np.inf, np.nan] -> [False, False,  True] bool
isinf: Test whether each element is plus or minus infinity.
    [1.0, np.inf, np.nan] -> [False,  True, False] bool
logical_and: Test whether both elements are true, that is not zero.
    [1.0, 0.0, 2.0]; [1.0, 1.0, 0.0] -> [ True, False, False] bool
logical_or: Test whether one of two elements is true, that is not zero.
    [1.0, 0.0, 0.0]; [1.0, 1.0, 0.0] -> [ True,  True, False] bool
logical_xor: Test whether exactly one of two elements is true, that is not zero.
    [1.0, 0.0, 0.0]; [1.0, 1.0, 0.0] -> [False,  True, False] bool
logical_not: Test whether each element is false, that is zero.
    [1.0, 0.0, -2.0] -> [False,  True, False] bool
bitwise_and: Compute the bitwise AND of integers or booleans, ``x1 & x2``.
    [5, 6, 7]; 3 -> [1, 2, 3] int64
bitwise_or: Compute the bitwise OR of integers or booleans, ``x1 | x2``.
    [5, 6, 8]; 3 -> [ 7,  7, 11] int64
bitwise_xor: Compute the bitwise XOR of integers or booleans, ``x1 ^ x2``.
    [5, 6, 7]; 3 -> [6, 5, 4] int64
bitwise_invert: Invert all bits of integers, or negate booleans, ``~x``.
    [0, 1, 7] -> [-1, -2, -8] int64
bitwise_left_shift: Shift the bits of integers to the left, ``x1 << x2``.
    [1, 2, 3]; 4 -> [16, 32, 48] int64
bitwise_right_shift: Shift the bits of integers to the right, ``x1 >> x2``.
    [16, 32, 48]; 4 -> [1, 2, 3] int64
bitwise_count: Count the bits that are 1 in the absolute value of each integer.
    [0, 7, 255] -> [0, 3, 8] uint8
"""
"""Name and summary; operands, result and its dtype. Rows that programs register need none."""

_REDUCTIONS = """
sum: ([[1, 2], [3, 4]], axis=0) -> [4, 6], dtype=int64, shape=(2,)
prod: ([1.0, 2.0, 4.0]) -> 8.0, dtype=float64, shape=()
min: ([[3.0, 1.0], [2.0, 5.0]], axis=1) -> [1., 2.], dtype=float64, shape=(2,)
max: ([[3.0, 1.0], [2.0, 5.0]], axis=1) -> [3., 5.], dtype=float64, shape=(2,)
nanmin: ([2.0, np.nan, 1.0]) -> 1.0, dtype=float64, shape=()
nanmax: ([2.0, np.nan, 1.0]) -> 2.0, dtype=float64, shape=()
any: ([0.0, 2.0, 0.0]) -> True, dtype=bool, shape=()
all: ([[1, 2], [0, 4]], axis=1) -> [ True, False], dtype=bool, shape=(2,)
argmin: ([3.0, 1.0, 2.0]) -> 1, dtype=int64, shape=()
argmax: ([[3.0, 1.0], [2.0, 5.0]], axis=1) -> [0, 1], dtype=int64, shape=(2,)
"""
"""Name, arguments and result."""

_DTYPES = {
    "ldexp": "``x1`` is a float, ``x2`` an integer; the result has the dtype of ``x1``.",
    "bitwise_count": "Integers and booleans give uint8; floats raise ``TypeError``.",
}
"""Rules that two dtypes of one kind do not show."""

_UNARY = """x : DistArray
    Input array of rank 0, 1 or 2."""

_BINARY = """x1, x2 : DistArray, array_like or number
    Operands, broadcast against each other. At least one is a DistArray. Beside a table, a row of
    numbers can stay on the client; put other arrays on the servers: ``ps.array(values)``."""

_ELEMENTWISE_TEXT = """{summary}

Parameters
----------
{parameters}

Returns
-------
DistArray
    Lazy array with one result for each element.

Raises
------
TypeError
    If {no_array}, or NumPy does not define the operation for {dtype}.
{see_also}
Notes
-----
{dtypes}

The call sends no request. The function is evaluated in the same pass over memory as the
expression that uses the result.
"""

_REDUCTION_TEXT = """{summary}

Parameters
----------
x : DistArray
    Input array of rank 0, 1 or 2.
axis : {axes}, optional
    Axis to reduce. None (default) reduces all elements.
{dtype}out : DistArray, optional
    Array of the result's shape that receives the result.
keepdims : bool, default False
    Keep each reduced axis with length 1.
{more}
Returns
-------
DistArray
    Lazy scalar, or lazy array without the reduced axis.

Raises
------
AxisError
    If ``x`` does not have the axis.
{refusal}
See Also
--------
numpy.{name} : The same function of arrays on the client.

Notes
-----
{result}

The call sends no request. The evaluation takes one request per server, and shares the pass over
memory with the expression that computes ``x``. Of a table, ``axis=0`` gives a row that is stored
on the client, and ``axis=1`` a vector on the servers.
"""

_DTYPE = """dtype : dtype, optional
    Dtype to cast the elements to first; the result has it, too.
"""
_INITIAL = """initial : number, optional
    Value that takes part in the reduction like one more element.
"""
_WHERE = """where : array_like of bool, default True
    Mask that is broadcast to ``x``; only elements with a true mask are reduced.
"""


def of_operation(row: Op) -> str:
    """The docstring of the elementwise function that ``row`` makes."""
    summary, example = _rows().get(row.name, (f"Apply ``{row.name}`` to each element.", ""))
    is_unary = row.arity == 1
    text = _ELEMENTWISE_TEXT.format(
        summary=summary,
        parameters=_UNARY if is_unary else _BINARY,
        no_array="``x`` is not a DistArray" if is_unary else "no operand is a DistArray",
        dtype="its dtype" if is_unary else "their dtypes",
        see_also=_see_also(row),
        dtypes=_dtype_rule(row),
    )
    if not example:
        return text
    operands, _, result = example.partition(" -> ")
    values, dtype = result.rsplit(" ", 1)
    given = ", ".join(
        f"ps.array({operand})" if operand.startswith("[") else operand
        for operand in operands.split("; ")
    )
    shape = f"({values.count(',') + 1},)"
    return f"{text}{_example(row.name, given, f'{values}, dtype={dtype}, shape={shape}')}"


def of_reduction(row: Reducer) -> str:
    """The docstring of the reduction that ``row`` makes."""
    has_initial = not (row.truth or row.locates)
    refusal = ""
    if row.identity is None:
        unless = " and ``initial`` is not given" if has_initial else ""
        refusal = f"ValueError\n    If there are no elements to reduce{unless}.\n"
    text = _REDUCTION_TEXT.format(
        summary=row.doc,
        axes="int" if row.locates else "int or tuple of int",
        dtype=_DTYPE if row.takes_dtype else "",
        more=(_INITIAL if has_initial else "") + ("" if row.locates else _WHERE),
        refusal=refusal,
        name=row.name,
        result=_result_rule(row),
    )
    example = _reductions().get(row.name)
    if example is None:
        return text
    given, _, result = example.partition(") -> ")
    values, comma, axis = given.removeprefix("(").partition(", axis")
    return f"{text}{_example(row.name, f'ps.array({values}){comma}{axis}', result)}"


def _example(name: str, given: str, result: str) -> str:
    return f"\nExamples\n--------\n>>> dv.{name}({given})\nDistArray({result})\n"


@cache
def _rows() -> dict[str, tuple[str, str]]:
    """By name of an operation its summary and its example."""
    lines = _ELEMENTWISE.strip().split("\n")
    rows = {}
    for head, example in zip(lines[::2], lines[1::2], strict=True):
        name, _, summary = head.partition(": ")
        rows[name] = summary, example.strip()
    return rows


@cache
def _reductions() -> dict[str, str]:
    """By name of a reduction its example."""
    return dict(line.split(": ", 1) for line in _REDUCTIONS.strip().split("\n"))


def _see_also(row: Op) -> str:
    """The section that names the function of NumPy or SciPy, if there is one."""
    function: Any = row.function
    if isinstance(function, OfSciPy):
        name = f"scipy.special.{function.name}"
    elif isinstance(function, np.ufunc):
        of_numpy = getattr(np, function.__name__, None) is function
        name = f"{'numpy' if of_numpy else 'scipy.special'}.{function.__name__}"
    else:
        return ""
    return f"\nSee Also\n--------\n{name} : The same function of arrays on the client.\n"


def _dtype_rule(row: Op) -> str:
    """A sentence on the dtype of the result. It does not import ``scipy.special``."""
    if row.name in _DTYPES:
        return _DTYPES[row.name]
    if isinstance(row.function, OfSciPy):
        return "float64 and float32 keep their dtype; int64 gives float64."
    if not row.has_loops:
        return "The result has the dtype that the function gives."
    double, single, integer, boolean = (_result(row, name) for name in _PROBES)
    if double == "bool":
        return "The result is boolean."
    if double is None:
        others = "integers and booleans" if boolean else "integers"
        return f"Only {others} are supported; other dtypes raise ``TypeError``."
    if single != "float32":
        return f"The result is {double}."
    if integer != "int64":
        return f"Floats keep their dtype; int64 gives {integer}."
    same = "the dtype of ``x``" if row.arity == 1 else "the common dtype of the operands"
    refusal = "" if boolean else " Booleans raise ``TypeError``."
    return f"The result has {same}.{refusal}"


_PROBES = "float64", "float32", "int64", "bool"


def _result(row: Op, dtype: str) -> str | None:
    """The dtype of the result for operands of ``dtype``, or None if NumPy has no loop for it."""
    try:
        return row.loop_for((np.dtype(dtype),) * row.arity)[-1].name
    except TypeError:
        return None


def _result_rule(row: Reducer) -> str:
    """Sentences on the dtype of a reduction and on NaN."""
    if row.truth:
        return "The result is boolean."
    if row.locates:
        return (
            "The result is int64. Without ``axis`` it is the index into the flattened array.\n"
            "If an element is NaN, the result is the index of the first NaN."
        )
    if row.numpy in (np.minimum, np.maximum):
        return "The result has the dtype of ``x``. If an element is NaN, the result is NaN."
    if row.numpy in (np.fmin, np.fmax):
        return "The result has the dtype of ``x``. It is NaN only if all elements are NaN."
    if row.picks:
        return "The result has the dtype of ``x``."
    if row.accumulator:
        return f"The elements are accumulated in {row.accumulator}."
    return (
        "Floats keep their dtype and are accumulated in float64.\n"
        "Integers and booleans give int64, unsigned integers uint64."
    )
