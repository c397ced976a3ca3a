"""The table of reductions: one row each, the only place that lists them.

A row says what a reduction means (NumPy's ufunc), in what its partial results are accumulated, and
how compiled kernels fold a chunk of values and join it to the chunks before. To add a reduction,
add a row here and nothing else; a program that has one of its own gives it to ``register``. The
same along each row is a row op, ``row_NAME``, which follows from the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ps_backend.errors import NothingToReduce
from ps_backend.program import householder, ops, row_ops, summation_order
from ps_backend.program.derivatives import REDUCTIONS, Derivative, Derivatives
from ps_backend.program.row_ops import Params, Place, RowOp, Values, width
from ps_backend.program.types import ValueType, dtype_of, widest

Partial = tuple[Any, ...]
"""A partial result: an array, or two of those that locate."""

_OF_SOME: Derivatives = (lambda t, y, result, count: t, None)
_TOGETHER = 1024
"""Elements of so many short rows are reduced along axis 0 side by side."""
_COMPARISONS = {"<": np.less, ">": np.greater}
_FLOAT, _INT, _BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_)


@dataclass(frozen=True, slots=True)
class Reducer:
    """One reduction. Floats accumulate in float64, unsigned integers in uint64, everything else in
    int64, if nothing else is said.
    """

    name: str
    numpy: Callable[..., Any]
    """The ufunc that it is the ``reduce`` of; or, of those that ``locate``, the function."""
    fold: str = ""
    """Text of a chunk of floats reduced, by helpers of ``kernels/compiled/scalar_math.py``."""
    fold_ints: str = ""
    """The same of integers."""
    join: str = ""
    """Text of two results joined, ``{a}`` of the chunks before and ``{b}`` of the next one."""
    join_ints: str = ""
    """The same of integers, where it is another."""
    in_order: summation_order.OfRows | None = None
    """Each row of a matrix of float64 reduced as ``summation_order`` says. Compiled kernels then
    join chunks in its tree, and ``fold`` must keep to it within a chunk; without it, floats are
    joined chunk by chunk, and the bits may depend on the engine."""
    identity: int | None = None
    """What nothing reduces to; None where the first chunk starts."""
    accumulator: str = ""
    """The dtype in which values of every dtype are accumulated."""
    picks: bool = False
    """The result is one of the values, in their dtype. Otherwise it is in the dtype of floats, and
    in that of the accumulator for other values."""
    arity: int = 1
    """Arguments that it takes: of two that are not held, it reduces the products in float64."""
    truth: bool = False
    """Reduces whether values are true."""
    locates: bool = False
    """Gives the place of a value: each partial result is a value and its global index."""
    place: Callable[..., Any] | None = None
    """Of those that pick: NumPy's function that finds where, which along short rows is faster."""
    better: str = ""
    """Of those that locate: the comparison by which a value replaces the one found before."""

    held: int = 0
    """How many of its last arguments are runtime scalars."""
    layout: str = ""
    """What its partial results are, if they are not one element a block: see ``partials``."""

    doc: str = ""
    """The first line of the function's docstring, in the imperative."""
    derivative: Derivative | None = None
    """As those of ``derivatives.REDUCTIONS``, which has that of the rows below. Without one, what
    uses the reduction cannot be differentiated, unless its results are no floats."""

    @property
    def is_public(self) -> bool:
        """Whether users call it by name: inner products the planner finds."""
        return self.arity == 1 and not self.layout

    @property
    def takes_dtype(self) -> bool:
        """Whether users may say in which dtype to accumulate."""
        return not (self.picks or self.truth or self.locates)

    @property
    def refusal(self) -> str:
        """Of nothing, where that has no result: in NumPy's words."""
        if self.locates:
            return f"attempt to get {self.name} of an empty sequence"
        name = self.numpy.__name__
        return f"zero-size array to reduction operation {name} which has no identity"

    @property
    def of_some(self) -> str:
        """The op that takes a result and of how many values it is, and refuses that of nothing."""
        return f"{self.name}_of_some"

    def _of_some(self, result: Any, count: Any) -> Any:
        if not count:
            raise NothingToReduce(self.refusal)
        return result

    def result(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype of the result for values of ``dtype``."""
        if self.truth or self.locates:
            return _BOOL if self.truth else _INT
        return dtype if self.picks or dtype.kind == "f" else self.accumulators(dtype.name)[0]

    def accumulators(self, dtype: str) -> tuple[np.dtype[Any], ...]:
        """Dtypes of the arrays of partial results, one element a block, of values of ``dtype``."""
        wide = dtype_of(self.accumulator) if self.accumulator else widest(dtype)
        return (wide, _INT) if self.locates else (wide,)

    def wide(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The first of ``accumulators``, remembered: NumPy takes microseconds to name a dtype."""
        return _first_accumulator(self.accumulator, dtype)

    def over_rows(self, rows: np.ndarray) -> np.ndarray:
        """Each row of a matrix reduced: to a value, or to the place of one in its row.

        What is ``in_order`` is not for floats.
        """
        reduce = self.numpy if self.locates else self.numpy.reduce  # type: ignore[attr-defined]
        result: np.ndarray = reduce(rows, axis=1)
        if self.picks and result.dtype.kind == "f":
            result += 0.0  # of zeros of both signs, who is picked depends on the processor
        return result

    def joined(self, left: Partial, right: Partial) -> Partial:
        """Two partial results as one, of which ``left`` comes first in the order of slots."""
        if not self.locates:
            return (self.numpy(left[0], right[0]),)
        (a, i), (b, j) = left, right
        wins = _COMPARISONS[self.better](b, a) | (np.not_equal(b, b) & np.equal(a, a))
        return np.where(wins, b, a), np.where(wins, j, i)

    def along_rows(self, rows: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Each row of a table reduced, into ``out`` of the dtype of the result."""
        if self.locates:
            return self.numpy(rows, axis=1, out=out)  # type: ignore[no-any-return]
        if self.place is not None:
            places = self.place(rows, axis=1)[:, None]
            out[...] = np.take_along_axis(rows, places, axis=1)[:, 0]
            return out
        wide = _wide(self.name, rows.dtype)
        if self.numpy is np.add and wide == _FLOAT:
            # Quicker than its reduce; and a row's bits are its own, which they are not in BLAS.
            out[...] = np.einsum("ij->i", rows.astype(wide, copy=False))
            return out
        self.numpy.reduce(rows, axis=1, dtype=wide, out=out)  # type: ignore[attr-defined]
        return out

    def below(self, rows: np.ndarray) -> np.ndarray:
        """The columns of a table reduced, as accumulated; not those that locate.

        Of tables of one shape, ``(tables, rows, columns)``, each as if it was alone.
        """
        wide = _wide(self.name, rows.dtype)
        reduce = self.numpy.reduce  # type: ignore[attr-defined]
        *tables, count, width = rows.shape
        together = 1 << (max(1, _TOGETHER // width).bit_length() - 1)
        whole = count // together * together
        if together == 1 or not whole or not rows.flags.c_contiguous:
            if tables:
                return np.stack([self.below(table) for table in rows])
            return reduce(rows, axis=0, dtype=wide)  # type: ignore[no-any-return]
        side_by_side = rows[..., :whole, :].reshape(*tables, -1, together * width)
        reduced = reduce(side_by_side, axis=-2, dtype=wide).reshape(*tables, together, width)
        reduced = reduce(reduced, axis=-2, dtype=wide)
        if whole < count:
            reduced = self.numpy(reduced, reduce(rows[..., whole:, :], axis=-2, dtype=wide))
        return reduced  # type: ignore[no-any-return]

    def combine(self, partials: np.ndarray, where: np.ndarray | None = None) -> Any:
        """The result from its partial results, one per block, in the order of blocks.

        The order is that of the blocks, whoever computed them, so the bits do not depend on the
        number of servers. An empty array gives the identity.
        """
        if len(partials) == 1:  # of short arrays
            only = partials[0] if where is None else where[0]
            return only + 0 if self.numpy is np.add else only  # as its reduce: never -0.0
        with np.errstate(all="ignore"):
            if where is not None:
                return where[self.numpy(partials)]
            return self.numpy.reduce(partials)  # type: ignore[attr-defined]


_ROWS = (
    Reducer(
        "sum",
        np.add,
        "_sum({})",
        "_int_sum({})",
        "{a} + {b}",
        in_order=summation_order.sums,
        identity=0,
        doc="Sum all elements, or those along an axis.",
    ),
    Reducer(
        "dot",
        np.add,
        "_sum({})",
        join="{a} + {b}",
        in_order=summation_order.sums,
        identity=0,
        arity=2,
    ),
    # T.T @ U, of tables or vectors T and U
    Reducer("gram", np.add, identity=0, arity=2, layout="tree"),
    # R of the QR decomposition of a table T, which is both values: R.T @ R is T.T @ T
    Reducer(
        "triangle",
        householder.join_triangles,
        identity=0,
        accumulator="float64",
        arity=2,
        layout="tree",
    ),
    # how often each of the numbers 0 .. bins-1 is there, and the sums of their weights; others are
    # not counted
    Reducer("bincount", np.add, identity=0, accumulator="int64", layout="total"),
    Reducer("weighted_bincount", np.add, identity=0, accumulator="float64", arity=2, layout="tree"),
    # the same of values that are between two of the edges, which are the last argument
    Reducer("histogram", np.add, identity=0, accumulator="int64", arity=2, held=1, layout="total"),
    Reducer(
        "weighted_histogram",
        np.add,
        identity=0,
        accumulator="float64",
        arity=3,
        held=1,
        layout="tree",
    ),
    # the values themselves, and those at some slots: the second value is a list of them
    Reducer("collect", np.concatenate, picks=True, layout="slots"),
    Reducer("take", np.take, picks=True, arity=2, held=1, layout="listed"),
    Reducer(
        "prod",
        np.multiply,
        "_prod({})",
        "_int_prod({})",
        "{a} * {b}",
        in_order=summation_order.products,
        identity=1,
        doc="Multiply all elements, or those along an axis.",
    ),
    Reducer(
        "min",
        np.minimum,
        "_min({})",
        "_smallest({})",
        "_minimum({a}, {b})",
        "min({a}, {b})",
        picks=True,
        place=np.argmin,
        doc="Return the smallest element, of all or along an axis.",
    ),
    Reducer(
        "max",
        np.maximum,
        "_max({})",
        "_largest({})",
        "_maximum({a}, {b})",
        "max({a}, {b})",
        picks=True,
        place=np.argmax,
        doc="Return the largest element, of all or along an axis.",
    ),
    Reducer(
        "nanmin",
        np.fmin,
        "_least_number({})",
        "_smallest({})",
        "_fmin({a}, {b})",
        "min({a}, {b})",
        picks=True,
        doc="Return the smallest element that is not NaN.",
    ),
    Reducer(
        "nanmax",
        np.fmax,
        "_greatest_number({})",
        "_largest({})",
        "_fmax({a}, {b})",
        "max({a}, {b})",
        picks=True,
        doc="Return the largest element that is not NaN.",
    ),
    Reducer(
        "any",
        np.logical_or,
        "",
        "_largest({})",
        "{a} | {b}",
        identity=0,
        accumulator="int64",
        truth=True,
        doc="Test whether any element is true, that is not zero.",
    ),
    Reducer(
        "all",
        np.logical_and,
        "",
        "_smallest({})",
        "{a} & {b}",
        identity=1,
        accumulator="int64",
        truth=True,
        doc="Test whether all elements are true, that is not zero.",
    ),
    Reducer(
        "argmin",
        np.argmin,
        "_argmin({})",
        "_argmin({})",
        locates=True,
        better="<",
        doc="Return the index of the smallest element, the first of equal ones.",
    ),
    Reducer(
        "argmax",
        np.argmax,
        "_argmax({})",
        "_argmax({})",
        locates=True,
        better=">",
        doc="Return the index of the largest element, the first of equal ones.",
    ),
)

# What this process knows: a state of the process for the reason that ``ops`` gives.
REDUCERS: dict[str, Reducer] = {}
PUBLIC: dict[str, Reducer] = {}
"""Those that users call by name."""
NAMES: dict[Any, str] = {}
"""By NumPy's function or ufunc the row that stands for it."""


def register(row: Reducer) -> None:
    """Add a reduction. The processes of the servers that are to run it need it as well.

    ``ValueError`` if there is one, or an op, of that name.
    """
    if row.name in REDUCERS or row.name in ops.TABLE:
        raise ValueError(f"{row.name!r} is there already; give the new reduction another name")
    REDUCERS[row.name] = row
    if row.identity is None and not row.layout:
        of_some = ops.Op(row.of_some, 2, row._of_some, internal=True, derivatives=_OF_SOME)
        ops.register(of_some)
    if not row.layout:
        NAMES.setdefault(row.numpy, row.name)
    if row.is_public:
        PUBLIC[row.name] = row
        row_ops.register(_along_rows(row))


def _along_rows(row: Reducer) -> RowOp:
    def result(values: Values, params: Params) -> ValueType:
        width(values[0])
        return ValueType(row.result(np.dtype(values[0].dtype)).name)

    def run(out: Any, place: Place, rows: Any) -> Any:
        return row.along_rows(rows, out)

    return RowOp(f"row_{row.name}", 1, result, run)


@cache
def _first_accumulator(named: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(named) if named else widest(dtype.name)


@cache
def _wide(name: str, dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """What a reduction says to NumPy to accumulate in."""
    row = REDUCERS[name]
    return None if row.picks or row.truth else row.accumulators(dtype.name)[0]


def complete(row: Reducer) -> Reducer:
    """``row`` with its derivative: its own, or else that of ``derivatives``."""
    return replace(row, derivative=row.derivative or REDUCTIONS.get(row.name))


for _row in _ROWS:
    register(complete(_row))
