"""The op table: one row per elementwise operation, the only place that lists them.

From a row come the operator and function that users call, the dtype of the result (NumPy's own
rule, asked of the ufunc), the source text of the kernel engines, what the planner may assume, and
the table in the documentation. To add an operation, add a row here and nothing else; a program that
has one of its own gives it to ``register``.

Kernel expressions are templates over scalar arguments ``{0}``, ``{1}``, ...; names that start with
an underscore are the helpers of ``kernels/compiled/scalar_math.py``. All arguments of a step
already have the dtype that NumPy's loop works in, so an expression never has to convert. A row
without a text is a ufunc whose own inner loop every engine calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ps_backend.program import derivatives, philox
from ps_backend.program import scipy_ufuncs as special
from ps_backend.program.derivatives import Derivatives
from ps_backend.program.scipy_ufuncs import OfSciPy

_LIBM_ULPS = 4


@dataclass(frozen=True, slots=True)
class Op:
    """One elementwise operation."""

    name: str
    """The name in the array API standard where it has one, else NumPy's or SciPy's."""
    arity: int
    function: Callable[..., Any]
    """What the operation means, on arrays: ``numpy``, or one of SciPy's by its name."""
    numba: str = ""
    """Scalar expression of the compiled kernel, with NumPy's bits unless ``ulps`` says otherwise;
    empty where the ufunc's own loop is called, and for what ``kernels/lowering.py``
    replaces."""
    on_bool: str | None = None
    """The op that has this meaning on booleans, where the expression does not; they are not cast
    for it, whatever NumPy's loop works in."""
    on_int: str | None = None
    """The op that has this meaning on integers, where the expression does not."""
    loop: bool = False
    """The ufunc's own loop is called wherever NumPy hands it out, be there a text or not: it has
    vector code that the compiler has not."""
    costly: bool = False
    """Computing it again takes longer than reading a stored result."""
    compares: bool = False
    """A comparison: a Python integer that the other dtype cannot hold is compared exactly."""
    separate: bool = False
    """Each operand is looked at by itself: nothing is gained by casting to a common dtype."""
    error: str = ""
    """How errors of the operands pass on: a rule of the testing kit's ``error_bounds``. Without
    one, operands must be exact for the result to be checked."""
    identity: bool = False
    """The result is the argument."""
    converts: bool = False
    """Takes what it gets; a kernel converts what comes out."""
    integral: bool = False
    """The kind for integers of another op."""
    part_of: np.ufunc | None = None
    """The ufunc with several results that this is one of: ``numpy`` computes that one alone."""
    part: int = 0
    """Which one of them."""
    dtypes: tuple[str, ...] = ()
    """Of the arguments and the result, where there is one kind and no ufunc to ask."""
    ulps: int = 0
    """How far the text may be from NumPy's result, in units of the last place."""
    internal: bool = False
    """Not a function of its own: other rows, or the planner, use it."""
    derivatives: Derivatives = ()
    """By argument: see ``derivatives``, which has those of the rows below. Without any, what
    uses the op cannot be differentiated, and the error names it."""
    no_derivative: str = ""
    """Why there are none, where there cannot be any."""

    @property
    def numpy(self) -> Callable[..., Any]:
        """What the operation means, on arrays; a ufunc wherever NumPy (or SciPy) has one."""
        found = self.function
        return found.ufunc if isinstance(found, OfSciPy) else found

    @property
    def has_loops(self) -> bool:
        """Whether a ufunc says which dtypes there are."""
        return isinstance(self.part_of or self.numpy, np.ufunc)

    def loop_for(self, operands: tuple[Any, ...]) -> tuple[np.dtype[Any], ...]:
        """The dtypes that NumPy's loop for ``operands`` (dtypes, ``int``, ``float``) takes, and
        that of the result. ``TypeError`` as NumPy's if there is none.
        """
        ufunc: Any = self.part_of or self.numpy
        found = ufunc.resolve_dtypes((*operands, *[None] * ufunc.nout))
        return (*found[: self.arity], found[self.arity + self.part])


def _math(name: str, numpy: np.ufunc, text: str, error: str = "monotone") -> Op:
    """A function of the C library, in NumPy's vector code where it has some."""
    return Op(name, 1, numpy, text, loop=True, costly=True, ulps=_LIBM_ULPS, error=error)


def _loop(name: str, numpy: np.ufunc | OfSciPy) -> Op:
    """A ufunc that only its own loop computes."""
    return Op(name, numpy.nin, numpy, loop=True, costly=True)


def _part(name: str, numpy: np.ufunc, part: int) -> Op:
    """One of the results of a ufunc that has several."""

    def result(*operands: Any) -> Any:
        return numpy(*operands)[part]

    return Op(name, numpy.nin, result, costly=True, part_of=numpy, part=part, internal=True)


def _infix(name: str, numpy: np.ufunc, sign: str, error: str, **traits: Any) -> Op:
    """An operator between its two arguments, in every engine."""
    return Op(name, 2, numpy, f"{{0}} {sign} {{1}}", error=error, **traits)


def _comparison(name: str, numpy: np.ufunc, sign: str) -> Op:
    return _infix(name, numpy, sign, "comparison", compares=True)


def _logical(name: str, numpy: np.ufunc, text: str) -> Op:
    return Op(name, numpy.nin, numpy, text, separate=True, error="truth")


def _of_ints(name: str, numpy: np.ufunc, text: str = "") -> Op:
    """The kind for integers of another op; without a text its own loop computes it."""
    return Op(
        name, numpy.nin, numpy, text, loop=not text, costly=True, integral=True, internal=True
    )


def _select(condition: Any, first: Any, second: Any) -> Any:
    return np.where(condition, first, second)


def _sigmoid_of_exp(x: Any, e: Any) -> Any:
    return np.where(x >= 0, 1, e) / (1 + e)


def _source(*_: Any) -> Any:
    raise TypeError("a source op has no arguments to apply a NumPy function to")


_ROWS = (
    # arithmetic
    _infix("add", np.add, "+", "sum", on_bool="logical_or"),
    _infix("subtract", np.subtract, "-", "sum"),
    _infix("multiply", np.multiply, "*", "product", on_bool="logical_and"),
    _infix("divide", np.divide, "/", "quotient"),
    Op(
        "floor_divide",
        2,
        np.floor_divide,
        "_floor_divide({0}, {1})",
        on_int="int_floor_divide",
        costly=True,
    ),
    _of_ints("int_floor_divide", np.floor_divide),
    Op("remainder", 2, np.remainder, "_remainder({0}, {1})", on_int="int_remainder", costly=True),
    _of_ints("int_remainder", np.remainder),
    _loop("fmod", np.fmod),
    Op(
        "pow",
        2,
        np.power,
        "{0} ** {1}",
        on_int="int_pow",
        loop=True,
        costly=True,
        ulps=_LIBM_ULPS,
    ),
    _of_ints("int_pow", np.power, "_int_pow({0}, {1})"),
    _loop("float_power", np.float_power),
    Op("negative", 1, np.negative, "-{0}", error="sum"),
    Op("positive", 1, np.positive, "{0}", error="contraction", identity=True),
    Op("conj", 1, np.conjugate, "{0}", error="contraction", identity=True),
    Op("abs", 1, np.absolute, "abs({0})", on_bool="copy", error="contraction"),
    Op("fabs", 1, np.fabs, "abs({0})"),
    Op("sign", 1, np.sign, "_sign({0})", error="step"),
    Op("signbit", 1, np.signbit, on_bool="false", loop=True),
    _loop("copysign", np.copysign),
    Op("square", 1, np.square, "{0} * {0}", error="square"),
    Op(
        "reciprocal",
        1,
        np.reciprocal,
        "1 / {0}",
        on_int="int_reciprocal",
        error="inverse",
    ),
    _of_ints("int_reciprocal", np.reciprocal),
    Op("maximum", 2, np.maximum, "_maximum({0}, {1})", on_bool="logical_or", error="contraction"),
    Op("minimum", 2, np.minimum, "_minimum({0}, {1})", on_bool="logical_and", error="contraction"),
    _loop("fmax", np.fmax),
    _loop("fmin", np.fmin),
    _loop("heaviside", np.heaviside),
    _loop("nextafter", np.nextafter),
    _loop("spacing", np.spacing),
    _loop("ldexp", np.ldexp),
    _part("frexp_mantissa", np.frexp, 0),
    _part("frexp_exponent", np.frexp, 1),
    _part("modf_fraction", np.modf, 0),
    _part("modf_whole", np.modf, 1),
    _loop("gcd", np.gcd),
    _loop("lcm", np.lcm),
    # rounding
    Op("floor", 1, np.floor, "np.floor({0})", on_bool="copy", on_int="copy", error="step"),
    Op("ceil", 1, np.ceil, "np.ceil({0})", on_bool="copy", on_int="copy", error="step"),
    Op("trunc", 1, np.trunc, "np.trunc({0})", on_bool="copy", on_int="copy", error="step"),
    Op("round", 1, np.rint, "_rint({0})", error="step"),
    # powers, exponentials and logarithms
    Op("sqrt", 1, np.sqrt, "math.sqrt({0})", error="monotone"),
    _loop("cbrt", np.cbrt),
    _loop("hypot", np.hypot),
    _math("exp", np.exp, "math.exp({0})"),
    _loop("exp2", np.exp2),
    _math("expm1", np.expm1, "math.expm1({0})"),
    _math("log", np.log, "_log({0})"),
    _math("log1p", np.log1p, "math.log1p({0})"),
    _math("log2", np.log2, "math.log2({0})"),
    _math("log10", np.log10, "math.log10({0})"),
    _loop("logaddexp", np.logaddexp),
    _loop("logaddexp2", np.logaddexp2),
    # trigonometric and hyperbolic functions, and angles
    _math("sin", np.sin, "math.sin({0})", "contraction"),
    _math("cos", np.cos, "math.cos({0})", "contraction"),
    _loop("tan", np.tan),
    _loop("asin", np.arcsin),
    _loop("acos", np.arccos),
    _loop("atan", np.arctan),
    _loop("atan2", np.arctan2),
    _loop("sinh", np.sinh),
    _loop("cosh", np.cosh),
    _math("tanh", np.tanh, "math.tanh({0})"),
    _loop("asinh", np.arcsinh),
    _loop("acosh", np.arccosh),
    _loop("atanh", np.arctanh),
    _loop("deg2rad", np.deg2rad),
    _loop("rad2deg", np.rad2deg),
    _loop("radians", np.radians),
    _loop("degrees", np.degrees),
    # SciPy's special functions
    Op("sigmoid", 1, special.expit, costly=True, ulps=_LIBM_ULPS, error="monotone"),
    # of an x, given exp(-|x|): what sigmoid comes down to where NumPy computes the exponential
    Op(
        "sigmoid_of_exp",
        2,
        _sigmoid_of_exp,
        "(type({1})(1) if {0} >= 0 else {1}) / (type({1})(1) + {1})",  # 1 of its own dtype
        internal=True,
    ),
    _loop("logit", special.logit),
    _loop("log_expit", special.log_expit),
    _loop("erf", special.erf),
    _loop("erfc", special.erfc),
    _loop("erfcx", special.erfcx),
    _loop("ndtr", special.ndtr),
    _loop("log_ndtr", special.log_ndtr),
    _loop("gammaln", special.gammaln),
    _loop("digamma", special.psi),
    _loop("i0", special.i0),
    _loop("i1", special.i1),
    _loop("xlogy", special.xlogy),
    _loop("xlog1py", special.xlog1py),
    _loop("entr", special.entr),
    _loop("kl_div", special.kl_div),
    _loop("rel_entr", special.rel_entr),
    _loop("huber", special.huber),
    _loop("pseudo_huber", special.pseudo_huber),
    # comparisons and tests
    _comparison("equal", np.equal, "=="),
    _comparison("not_equal", np.not_equal, "!="),
    _comparison("less", np.less, "<"),
    _comparison("less_equal", np.less_equal, "<="),
    _comparison("greater", np.greater, ">"),
    _comparison("greater_equal", np.greater_equal, ">="),
    Op(
        "isfinite", 1, np.isfinite, "{0} - {0} == 0", on_bool="true", separate=True, error="certain"
    ),
    Op("isnan", 1, np.isnan, "{0} != {0}", separate=True, error="certain"),
    Op(
        "isinf",
        1,
        np.isinf,
        "_isinf({0})",
        on_bool="false",
        on_int="false",
        separate=True,
        error="certain",
    ),
    Op("true", 1, np.isfinite, "True", internal=True),
    Op("false", 1, np.isinf, "False", internal=True),
    # logic, and bits
    _logical("logical_and", np.logical_and, "({0} != 0) & ({1} != 0)"),
    _logical("logical_or", np.logical_or, "({0} != 0) | ({1} != 0)"),
    _logical("logical_xor", np.logical_xor, "({0} != 0) ^ ({1} != 0)"),
    _logical("logical_not", np.logical_not, "{0} == 0"),
    Op("bitwise_and", 2, np.bitwise_and, "{0} & {1}"),
    Op("bitwise_or", 2, np.bitwise_or, "{0} | {1}"),
    Op("bitwise_xor", 2, np.bitwise_xor, "{0} ^ {1}"),
    Op("bitwise_invert", 1, np.invert, "~{0}", on_bool="logical_not"),
    _loop("bitwise_left_shift", np.left_shift),
    _loop("bitwise_right_shift", np.right_shift),
    _loop("bitwise_count", np.bitwise_count),
    # selection and conversion; `copy` is the identity on every dtype
    Op("where", 3, _select, "{1} if {0} else {2}", internal=True, error="selection"),
    Op("copy", 1, np.array, "{0}", internal=True, identity=True, converts=True),
    Op("cast", 1, np.array, "{0}", internal=True, converts=True),
    # a scalar as every element of a vector
    Op("fill", 1, np.array, "{0}", internal=True, converts=True),
    # sources: `iota` is the global index of the element, `uniform` a random number in [0, 1)
    # that depends on (key, global index) alone
    Op("iota", 0, _source, "_index", internal=True, dtypes=("int64",)),
    Op(
        "uniform",
        2,
        philox.uniform,
        "_uniform({0}, {1})",
        costly=True,
        internal=True,
        dtypes=("int64", "int64", "float64"),
    ),
    # of the standard normal distribution, from two keys
    Op(
        "normal",
        3,
        philox.normal,
        "_normal({0}, {1}, {2})",
        costly=True,
        internal=True,
        dtypes=("int64", "int64", "int64", "float64"),
    ),
    # the index at a place of the permutation that (key, length) name
    Op(
        "permuted",
        3,
        philox.permuted,
        "_permuted({0}, {1}, {2})",
        costly=True,
        internal=True,
        dtypes=("int64", "int64", "int64", "int64"),
    ),
)

# What this process knows. Every layer asks these tables, on the client and on servers, so they are
# one state of the process and no argument; a row stays what it was, and none ever goes.
TABLE: dict[str, Op] = {}
PUBLIC: dict[str, Op] = {}
"""The rows that users call by name."""
NAMES: dict[Any, str] = {}
"""By function the row that stands for it, the general one, not that of one dtype: ``name_of``."""


def register(row: Op) -> None:
    """Add an operation. The processes of the servers that are to run it need it as well.

    ``ValueError`` if there is one of that name.
    """
    if row.name in TABLE:
        raise ValueError(f"there is an op {row.name!r} already; give the new one another name")
    TABLE[row.name] = row
    if not row.internal:
        PUBLIC[row.name] = row
    if isinstance(row.function, np.ufunc | OfSciPy):
        NAMES.setdefault(row.function, row.name)


def name_of(ufunc: Any) -> str | None:
    """The row that stands for a ufunc of NumPy or SciPy, if one does."""
    name = NAMES.get(ufunc)
    if name is not None or not isinstance(ufunc, np.ufunc):
        return name
    of_scipy = OfSciPy(ufunc.__name__, ufunc.nin)
    if not of_scipy.stands_for(ufunc):
        return None
    # What NumPy has by the same name, as log1p, is the same function.
    return NAMES.get(of_scipy, NAMES.get(getattr(np, ufunc.__name__, None)))


def complete(row: Op) -> Op:
    """``row`` with its derivatives: its own, or else those of ``derivatives``."""
    return replace(
        row,
        derivatives=row.derivatives or derivatives.COLUMN.get(row.name, ()),
        no_derivative=row.no_derivative or derivatives.REASONS.get(row.name, ""),
    )


for _row in _ROWS:
    register(complete(_row))

PARTS: Mapping[Any, tuple[str, ...]] = MappingProxyType(
    {
        np.divmod: ("floor_divide", "remainder"),
        np.frexp: ("frexp_mantissa", "frexp_exponent"),
        np.modf: ("modf_fraction", "modf_whole"),
    }
)
"""By ufunc with several results the rows that compute these, in their order."""


VARYING = frozenset(
    "pow cbrt exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan atan2 sinh cosh tanh "
    "asinh acosh atanh sigmoid float_power hypot logaddexp logaddexp2 logit log_expit erf erfc "
    "erfcx ndtr log_ndtr gammaln digamma i0 i1 xlogy xlog1py entr kl_div rel_entr "
    "pseudo_huber".split()
)
"""Of floats, ops whose last bits depend on the processor: NumPy, or the C library that NumPy and
SciPy call, has versions for several instruction sets. All engines call the same one, so between
engines their bits are equal."""


def specialise(name: str, dtype: str) -> str:
    """The op that computes ``name`` on arguments of ``dtype``."""
    op = TABLE[name]
    if dtype == "bool" and op.on_bool:
        return op.on_bool
    if np.dtype(dtype).kind in "iu" and op.on_int:
        return op.on_int
    return name
