"""Hypothesis strategies for what distributed code is given: lengths, dtypes, vectors, servers,
single operations, and expressions made of them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt

from ps_backend.program import ops
from ps_backend.program.reducers import PUBLIC
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import DTYPES

_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "pow": operator.pow,
    "negative": operator.neg,
    "positive": operator.pos,
    "abs": operator.abs,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


@dataclass(frozen=True)
class Operation:
    """A function that is called alike on NumPy arrays and on distributed arrays.

    Parameters
    ----------
    name : str
        Name of the operation.
    arity : int
        Number of operands.
    function : callable
        The function, a Python operator or a NumPy function.
    ulps : int, default 0
        Allowed difference of elements from NumPy's in units in the last place; 0 means bitwise
        identical.

    Examples
    --------
    >>> from distvec.testing import ELEMENTWISE
    >>> add = next(operation for operation in ELEMENTWISE if operation.name == "add")
    >>> add(ps.ones(2), 1).numpy()
    array([2., 2.])
    """

    name: str
    arity: int
    function: Callable[..., Any]
    ulps: int = 0
    """How far the elements may be from NumPy's; 0 where they have NumPy's bits."""

    def __call__(self, *operands: Any) -> Any:
        """Apply the function to ``operands``."""
        return self.function(*operands)

    def __repr__(self) -> str:
        return self.name


def _where(condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition != 0, x, y)


def _of_row(row: ops.Op) -> Operation:
    function = _OPERATORS.get(row.name, row.numpy)
    return Operation(row.name, row.arity, function, row.ulps)


ELEMENTWISE = (
    *map(_of_row, ops.PUBLIC.values()),
    Operation("where", 3, _where),
)
"""Every row of the op table that users call, as an operator where there is one."""

REDUCTIONS = (
    *(
        Operation(name, 1, getattr(np, name, getattr(row.numpy, "reduce", row.numpy)))
        for name, row in PUBLIC.items()
    ),
    Operation("mean", 1, np.mean),
    Operation("count_nonzero", 1, np.count_nonzero),
    Operation("var", 1, np.var),
    Operation("ptp", 1, np.ptp),
    Operation("dot", 2, operator.matmul),
    Operation("norm", 1, np.linalg.norm),
)
"""From vectors to scalars."""

SERVER_COUNTS = (1, 2, 3, 7)
"""One, an even and an odd split, and more servers than a short vector has blocks."""

LENGTHS = (0, 1, 2, 1023, 1024, 1025, 3000)
"""Nothing, the shortest, around a block of 1024 elements, and three blocks of unequal length."""

SPECIAL = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 5e-324, 1e308, 0.5)
"""Values at which functions of floats change their ways."""

_ORDINARY = 1e6

_WIDTHS: dict[int, Literal[16, 32, 64]] = {2: 16, 4: 32, 8: 64}
"""By bytes of a float its bits."""


@cache
def server_counts() -> st.SearchStrategy[int]:
    """Return a strategy for numbers of servers: 1, 2, 3 and 7.

    Returns
    -------
    hypothesis.strategies.SearchStrategy
        Integers. They cover one server, even and odd splits, and more servers than blocks.

    Examples
    --------
    >>> from hypothesis import find
    >>> from distvec.testing import server_counts
    >>> find(server_counts(), lambda servers: servers > 2)
    3
    """
    return st.sampled_from(SERVER_COUNTS)


@cache
def lengths(min_length: int = 0) -> st.SearchStrategy[int]:
    """Return a strategy for lengths of vectors at which their split over servers changes.

    Parameters
    ----------
    min_length : int, default 0
        Smallest length.

    Returns
    -------
    hypothesis.strategies.SearchStrategy
        Integers from ``min_length`` to 3000.

    Examples
    --------
    >>> from hypothesis import find
    >>> from distvec.testing import lengths
    >>> find(lengths(), lambda n: n > 2)
    1023
    """
    return st.sampled_from([length for length in LENGTHS if length >= min_length])


def spaces(min_length: int = 0) -> st.SearchStrategy[DenseSpace]:
    """Return a strategy for the index sets of vectors of such lengths.

    Parameters
    ----------
    min_length : int, default 0
        Smallest length.

    Returns
    -------
    hypothesis.strategies.SearchStrategy
        ``DenseSpace`` objects.

    Examples
    --------
    >>> from hypothesis import find
    >>> from distvec.testing import spaces
    >>> find(spaces(min_length=1), lambda space: True).length
    1
    """
    return lengths(min_length).map(DenseSpace)


@cache
def dtypes(kinds: str = "fiub") -> st.SearchStrategy[str]:
    """Return a strategy for the dtypes that servers support.

    Parameters
    ----------
    kinds : str, default "fiub"
        NumPy's letters of kinds: floats, integers, unsigned integers, booleans.

    Returns
    -------
    hypothesis.strategies.SearchStrategy
        Names of dtypes.

    Examples
    --------
    >>> from hypothesis import find
    >>> from distvec.testing import dtypes
    >>> find(dtypes("b"), lambda name: True)
    'bool'
    """
    return st.sampled_from([name for name in DTYPES if np.dtype(name).kind in kinds])


@cache  # Hypothesis looks through each new strategy before it draws from it
def vectors(
    length: int, dtype: str = "float64", *, special: bool = True, scale: float = _ORDINARY
) -> st.SearchStrategy[npt.NDArray[Any]]:
    """Return a strategy for vectors that repeat a few drawn elements.

    Parameters
    ----------
    length : int
        Length of the vectors.
    dtype : str, default "float64"
        Dtype of the vectors.
    special : bool, default True
        Whether to draw infinities, NaN, zeros of both signs, and the limits of the dtype.
    scale : float, default 1e6
        Floats lie in ``[-scale, scale]``. Integers lie in ``[-20, 20]``, unsigned ones in
        ``[0, 20]``.

    Returns
    -------
    hypothesis.strategies.SearchStrategy
        NumPy arrays of shape ``(length,)``.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> from distvec.testing import same_on_all_backends, vectors
    >>> @settings(max_examples=3, deadline=None, database=None)
    ... @given(vectors(1025))
    ... def test(x):
    ...     same_on_all_backends(lambda x: np.maximum(x, 0.0), x, engines=["numpy"])
    >>> test()
    """
    kind = np.dtype(dtype)
    few = st.lists(_elements(kind, special, scale), min_size=1, max_size=17)
    # Hypothesis prints this call, which can be pasted.
    return st.builds(vector, few, st.just(length), st.just(kind.name))


def vector(values: Sequence[Any], length: int, dtype: str = "float64") -> npt.NDArray[Any]:
    """Return a vector that repeats values, as the strategy ``vectors`` draws it.

    Parameters
    ----------
    values : sequence
        The elements to repeat.
    length : int
        Length of the vector.
    dtype : str, default "float64"
        Dtype of the vector.

    Returns
    -------
    numpy.ndarray
        A vector of shape ``(length,)``.

    Examples
    --------
    >>> from distvec.testing import vector
    >>> vector([1, 2], 5)
    array([1., 2., 1., 2., 1.])
    """
    return np.resize(np.array(values, dtype), length)


@cache
def scalars(dtype: str | None = None) -> st.SearchStrategy[Any]:
    """Return a strategy for numbers.

    Parameters
    ----------
    dtype : str, optional
        Dtype of NumPy scalars. Default: Python's integers, floats and booleans.

    Returns
    -------
    hypothesis.strategies.SearchStrategy
        Scalars.

    Examples
    --------
    >>> from hypothesis import find
    >>> from distvec.testing import scalars
    >>> find(scalars(), lambda x: x > 2)
    3
    """
    if dtype is None:
        return st.integers(-5, 5) | st.floats(-100, 100) | st.booleans()
    return vectors(1, dtype).map(lambda values: values[0])


def _elements(kind: np.dtype[Any], special: bool, scale: float) -> st.SearchStrategy[Any]:
    if kind.kind == "b":
        return st.booleans()
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        ordinary = st.integers(max(-20, int(limits.min)), 20)
        return ordinary | st.sampled_from((limits.min, limits.max)) if special else ordinary
    limit = float(kind.type(min(scale, float(np.finfo(kind).max))))
    numbers = st.floats(-limit, limit, width=_WIDTHS[kind.itemsize])
    return _special_floats(kind) | numbers if special else numbers


def _special_floats(kind: np.dtype[Any]) -> st.SearchStrategy[float]:
    greatest = math.inf if kind.itemsize == 8 else float(np.finfo(kind).max) / 4

    def fitting(value: float) -> float:
        return value if math.isinf(value) else float(kind.type(np.clip(value, -greatest, greatest)))

    return st.sampled_from(SPECIAL).map(fitting)


_TESTS = frozenset(
    "equal not_equal less less_equal greater greater_equal isfinite isnan isinf".split()
) | {f"logical_{name}" for name in ("and", "or", "xor", "not")}

EXACT = tuple(one for one in ELEMENTWISE if one.ulps == 0 and one.name not in _TESTS)
"""From floats to floats, with NumPy's bits."""


@dataclass(frozen=True)
class Expression:
    """A function of vectors that consists of steps; each step may use all earlier values.

    Parameters
    ----------
    arity : int
        Number of arguments.
    steps : sequence of tuple of (Operation, tuple of int)
        Operations with the numbers of their operands: first the arguments, then the results of
        earlier steps.

    See Also
    --------
    expressions : Draw random expressions.

    Examples
    --------
    >>> from distvec.testing import ELEMENTWISE, Expression
    >>> add = next(operation for operation in ELEMENTWISE if operation.name == "add")
    >>> double = Expression(1, [(add, (0, 0))])
    >>> double
    (v0): v1 = add(v0, v0)
    >>> double(ps.ones(2)).numpy()
    array([2., 2.])
    """

    arity: int
    steps: Sequence[tuple[Operation, tuple[int, ...]]]
    """Operations, and which values they are of: the arguments, then the results of steps."""

    def __call__(self, *arguments: Any) -> Any:
        """Return the result of the last step."""
        if len(arguments) != self.arity:
            raise TypeError(f"{self!r} takes {self.arity} arguments, got {len(arguments)}")
        values = list(arguments)
        for operation, operands in self.steps:
            values.append(operation(*(values[number] for number in operands)))
        return values[-1]

    def __repr__(self) -> str:
        lines = [
            f"v{number} = {operation}({', '.join(f'v{k}' for k in operands)})"
            for number, (operation, operands) in enumerate(self.steps, self.arity)
        ]
        return f"({', '.join(f'v{k}' for k in range(self.arity))}): {'; '.join(lines)}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How Hypothesis prints a failing example."""
        printer.text(repr(self))


@st.composite
def expressions(
    draw: st.DrawFn,
    arity: int = 2,
    *,
    max_steps: int = 8,
    operations: Sequence[Operation] = EXACT,
) -> Expression:
    """Draw expressions of vectors with shared parts.

    Parameters
    ----------
    arity : int, default 2
        Number of arguments.
    max_steps : int, default 8
        Largest number of steps.
    operations : sequence of Operation, optional
        Operations to choose from. Default: operations from floats to floats that are bitwise
        identical to NumPy's.

    Returns
    -------
    Expression
        An expression, drawn by Hypothesis.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> from distvec.testing import expressions, same_on_all_backends
    >>> @settings(max_examples=3, deadline=None, database=None)
    ... @given(expressions(arity=2, max_steps=3))
    ... def test(function):
    ...     x = np.linspace(-1.0, 1.0, 5)
    ...     same_on_all_backends(function, x, 2 - x, engines=["numpy"], rtol=0)
    >>> test()
    """
    steps: list[tuple[Operation, tuple[int, ...]]] = []
    for count in range(arity, arity + draw(st.integers(1, max_steps))):
        operation = draw(st.sampled_from(operations))
        numbers = st.lists(
            st.integers(0, count - 1), min_size=operation.arity, max_size=operation.arity
        )
        steps.append((operation, tuple(draw(numbers))))
    return Expression(arity, steps)
