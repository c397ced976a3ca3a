"""The table of collectives: results that servers compute in phases, as elements change place.

A phase is one message to each server that takes part. What it leaves in the *workspace* of the
collective on a server, the later phases fetch from there, on whichever server: the client only
waits in between, and sees no element. The functions that run the phases are in
``ps_backend.server.collectives``; a program that has a collective of its own gives it to both
``register``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.errors import InvalidProgram
from ps_backend.program.types import (
    FLOATS,
    ArrayType,
    ClientType,
    NodeType,
    Row,
    ValueType,
    client_type,
    dtype_of,
    widest,
)


@dataclass(frozen=True, slots=True)
class CollectiveTypes:
    """The types of what a collective takes and makes."""

    inputs: tuple[ArrayType, ...]
    operands: tuple[ValueType, ...]
    """Of small arrays that the client holds."""
    outputs: tuple[tuple[int, NodeType], ...]
    """Those that are wanted, by their numbers; what the client keeps comes with the answer."""


Params = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Collective:
    """One row of the table."""

    kind: str
    phases: int
    """Messages to each server. The first of several sees nothing but the server's own parts of the
    inputs, since these may have been computed in the same message."""
    check: Callable[[CollectiveTypes, Params], None]
    """Raises ``TypeError`` or ``ValueError`` for types and parameters that it does not take."""


TABLE: dict[str, Collective] = {}


def register(row: Collective) -> None:
    """Add a collective; ``ValueError`` if there is one of that kind."""
    if row.kind in TABLE:
        raise ValueError(f"there is a collective {row.kind!r} already; give it another name")
    TABLE[row.kind] = row


def row_of(kind: str) -> Collective:
    """The row of that kind; ``InvalidProgram`` if there is none."""
    row = TABLE.get(kind)
    if row is None:
        raise InvalidProgram(f"no collective {kind[:40]!r} is known here")
    return row


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """One phase of a collective, with what it runs on."""

    kind: str
    phase: int
    workspace: int
    """What the phases of one collective have in common: an id that no buffer has."""
    types: CollectiveTypes
    inputs: tuple[int, ...]
    operands: tuple[npt.NDArray[np.generic], ...]
    outputs: tuple[int, ...]
    """Buffers, as ``types.outputs``; 0 where the client keeps it."""
    params: Params
    whole: bool = False
    """Whether it stands for all phases: a single server takes part."""

    @property
    def is_last(self) -> bool:
        """Whether the outputs are made in this phase."""
        return self.whole or self.phase == row_of(self.kind).phases - 1

    @property
    def arrays(self) -> list[ArrayType]:
        """The types of what servers hold of it."""
        made = [type for _, type in self.types.outputs if isinstance(type, ArrayType)]
        return [*self.types.inputs, *made]

    @property
    def results(self) -> list[tuple[int, ClientType]]:
        """Number and type of what comes to the client."""
        return [(k, type) for k, type in self.types.outputs if isinstance(type, ClientType)]

    @property
    def made(self) -> list[int]:
        """The buffers that this phase makes."""
        return [number for number in self.outputs if number] if self.is_last else []

    def servers(self, servers: int) -> list[int]:
        """Who takes part: all that hold some of an array, in order."""
        holders = (type.space.holders(servers) for type in self.arrays)
        return sorted({0}.union(*holders) if not self.arrays else set().union(*holders))


def verify_collective(call: CollectiveCall) -> None:
    """Raise ``InvalidProgram`` unless there is such a collective, and it takes such arguments."""
    row = row_of(call.kind)
    if not 0 <= call.phase < row.phases:
        raise InvalidProgram(f"{call.kind} has phases 0 .. {row.phases - 1}, got {call.phase}")
    numbers = [number for number, _ in call.types.outputs]
    fits = (
        _same_length(call.inputs, call.types.inputs)
        and _same_length(call.operands, call.types.operands)
        and _same_length(call.outputs, numbers)
        and len(set(numbers)) == len(numbers)
        and all(
            bool(buffer) is isinstance(type, ArrayType)
            for buffer, (_, type) in zip(call.outputs, call.types.outputs, strict=True)
        )
    )
    if not fits:
        raise InvalidProgram(f"a call of {call.kind} names more or fewer arrays than their types")
    if set(call.inputs) & set(call.outputs) or len(set(call.made)) < len(call.made):
        raise InvalidProgram(f"a call of {call.kind} writes what it reads, or twice")
    try:
        row.check(call.types, call.params)
    except (TypeError, ValueError, IndexError) as error:
        raise InvalidProgram(f"{call.kind} does not take such arguments: {error}") from None


def _same_length(values: Sequence[object], types: Sequence[object]) -> bool:
    return len(values) == len(types)


COUNT, HISTOGRAM = "count", "histogram"


def _check_counts(kind: str, types: CollectiveTypes, params: Params) -> None:
    values, *weights = types.inputs
    ((number, made),) = types.outputs
    _need(not params and number == 0 and len(weights) < 2, "takes values and weights")
    _need(all((one.space, one.row) == (values.space, ()) for one in weights), "needs weights alike")
    _need(not values.row, f"takes a vector, not {values}")
    sums = np.dtype(np.float64 if weights else np.int64)
    _need(isinstance(made, ClientType) and made.dtype == sums, f"makes {sums}, not {made}")
    _need(len(made.shape) == 1, "makes a number for each bin")
    if kind == COUNT:
        _need(values.dtype.kind in "iu" and not types.operands, "counts integers")
    else:
        edges, limits = types.operands
        _need(edges.row == (made.shape[0] + 1,) and limits.row in ((0,), (2,)), "takes edges")


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise TypeError(what)


for _kind in (COUNT, HISTOGRAM):
    register(Collective(_kind, 2, partial(_check_counts, _kind)))

SCATTER = "scatter"

ASSIGN = "assign"
"""The last value for a place stays; the others are ufuncs, whose ``at`` it is."""
WAYS: tuple[str, ...] = (
    ASSIGN, "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power",
    "maximum", "minimum", "fmax", "fmin", "logical_and", "logical_or", "logical_xor",
    "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "hypot", "copysign",
    "logaddexp", "logaddexp2", "gcd", "lcm", "arctan2", "fmod", "equal", "not_equal", "less",
    "less_equal", "greater", "greater_equal",
)  # fmt: skip


def ufunc_of(way: int) -> np.ufunc | None:
    """What joins a value to what is there; None where it replaces that."""
    found: np.ufunc | None = None if WAYS[way] == ASSIGN else getattr(np, WAYS[way])
    return found


def _check_scatter(types: CollectiveTypes, params: Params) -> None:
    way, has_base = params
    ((number, made),) = types.outputs
    _need(0 <= way < len(WAYS) and has_base in (0, 1), f"knows no parameters {params}")
    _need(isinstance(made, ArrayType) and number == 0, "makes an array on the servers")
    base, (index, *values) = types.inputs[:has_base], types.inputs[has_base:]
    _need(not base or base[0] == made, f"makes an array like {base}, not {made}")
    _need(index.dtype == np.int64 and not index.row, f"takes int64 indices, not {index}")
    count = 2 - has_base - len(values)
    _need(len(values) < 2 and len(types.operands) == count, "takes a base and values")
    _need(not values or values[0].space == index.space, "needs a value for each index")
    rows = [one.row for one in values] + [one.row for one in types.operands]
    _need(all(row in ((), (1,), made.row) for row in rows), f"needs rows of {made.row}, not {rows}")


register(Collective(SCATTER, 2, _check_scatter))

SEARCH = "search"


def _check_search(types: CollectiveTypes, params: Params) -> None:
    (after,), (table, values) = params, types.inputs
    ((number, made),) = types.outputs
    _need(after in (0, 1) and number == 0 and not types.operands, "takes a table and values")
    _need(not table.row and not values.row, "takes vectors")
    _need(table.dtype == values.dtype, f"takes one dtype, not {table.dtype} and {values.dtype}")
    fits = isinstance(made, ArrayType) and (made.space, made.row) == (values.space, ())
    _need(fits and made.dtype == np.int64, f"makes a place for each value, not {made}")


register(Collective(SEARCH, 4, _check_search))

SORT = "sort"
"""The elements of an array, of each column of a table, in order: the first so many.

Outputs: 0, the elements; 1, their indices, equal ones in their order; 2, whether each differs from
the one before. Parameters: 1 for descending; 1 if -0.0 and 0.0 are equal, and come out as 0.0.
"""
VALUES, ORDER, STARTS = 0, 1, 2

ORDER_STATISTICS = "order_statistics"
"""The elements of an array, of each column of a table, that a sort would put at some ranks.

Operand: the ranks, int64, ``(count, 1)`` or ``(count, columns)``. Output: the elements, for the
client.
"""


def _check_sort(types: CollectiveTypes, params: Params) -> None:
    (source,) = types.inputs
    if types.operands or len(params) != 2 or not {*params} <= {0, 1}:
        raise TypeError("takes one array, whether to descend, and whether zeros are equal")
    lengths = set()
    for number, made in types.outputs:
        dtypes = {VALUES: source.dtype.name, ORDER: "int64", STARTS: "bool"}
        if not isinstance(made, ArrayType) or made.row != source.row:
            raise TypeError(f"makes arrays with rows as those of {source}, not {made}")
        if made.dtype.name != dtypes.get(number):
            raise TypeError(f"makes no {made.dtype} as output {number}")
        lengths.add(made.space)
    if len(lengths) != 1 or not 0 < lengths.pop().length <= source.space.length:
        raise ValueError(f"makes arrays of one length, at most that of {source}")


def _check_order_statistics(types: CollectiveTypes, params: Params) -> None:
    (source,), (ranks,), ((number, made),) = types.inputs, types.operands, types.outputs
    if params or number or ranks.dtype != "int64" or len(ranks.row) != 2:
        raise TypeError("takes one array, and a table of ranks")
    count, columns = ranks.row
    if columns not in (1, source.width):
        raise ValueError(f"needs ranks for 1 or {source.width} columns, got {columns}")
    shape = (count, *source.row)
    if not isinstance(made, ClientType) or (made.dtype, made.shape) != (source.dtype, shape):
        raise TypeError(f"gives {source.dtype} values of shape {shape}, not {made}")


register(Collective(SORT, 2, _check_sort))
register(Collective(ORDER_STATISTICS, 2, _check_order_statistics))


@dataclass(frozen=True, slots=True)
class Scan:
    """One associative ufunc."""

    ufunc: np.ufunc
    identity: float | None = None
    """What a block with nothing before it goes on from, if it is the same in every dtype."""
    of_floats: float | None = None
    """That of floats, where it is another one: joined to it, no value changes one bit."""
    of_integers: str = ""
    """``"least"``, ``"greatest"`` or ``"ones"``: that of integers, which depends on the dtype."""
    rounds: bool = False
    """Results of floats depend on the order in which they are joined."""
    truth: bool = False
    """Joins whether values are true."""

    @property
    def name(self) -> str:
        """NumPy's name of the ufunc."""
        return self.ufunc.__name__

    @property
    def kind(self) -> str:
        """The collective that computes the running results of an array."""
        return f"accumulate_{self.name}"

    @property
    def between(self) -> str:
        """The collective that reduces what lies between indices, which are its operand."""
        return f"reduceat_{self.name}"

    @property
    def along_rows(self) -> str:
        """The row op that computes them along each row."""
        return f"row_accumulate_{self.name}"

    def result(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype of NumPy's running results of values of ``dtype``.

        ``TypeError`` where it has none, or one that servers have not.
        """
        return _result(self.name, dtype.name)

    def gives(self, dtype: np.dtype[Any]) -> bool:
        """Whether results may be asked for in ``dtype``, to which values are cast first."""
        return self.ufunc in (np.add, np.multiply) or self.result(dtype) == dtype

    def accumulator(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype in which results of ``dtype`` are computed."""
        return dtype if self.truth else widest(dtype.name)

    def start(self, wide: np.dtype[Any]) -> Any:
        """The identity, as a scalar of the accumulator ``wide``."""
        if wide.kind == "f" and self.of_floats is not None:
            return wide.type(self.of_floats)
        if self.of_integers and wide.kind in "iu":
            limits = np.iinfo(wide)
            found = {"least": limits.min, "greatest": limits.max, "ones": ~wide.type(0)}
            return wide.type(found[self.of_integers])
        return wide.type(self.identity)

    def is_exact(self, wide: np.dtype[Any]) -> bool:
        """Whether results computed in ``wide`` are the same however they are joined."""
        return not self.rounds or wide.kind != "f"


_INFINITY, _NAN = float("inf"), float("nan")
_ROWS = (
    Scan(np.add, 0, of_floats=-0.0, rounds=True),
    Scan(np.multiply, 1, rounds=True),
    Scan(np.maximum, of_floats=-_INFINITY, of_integers="least"),
    Scan(np.minimum, of_floats=_INFINITY, of_integers="greatest"),
    Scan(np.fmax, of_floats=_NAN, of_integers="least"),
    Scan(np.fmin, of_floats=_NAN, of_integers="greatest"),
    Scan(np.logical_and, True, truth=True),
    Scan(np.logical_or, False, truth=True),
    Scan(np.logical_xor, False, truth=True),
    Scan(np.bitwise_and, of_integers="ones"),
    Scan(np.bitwise_or, 0),
    Scan(np.bitwise_xor, 0),
    Scan(np.logaddexp, -_INFINITY, rounds=True),
    Scan(np.logaddexp2, -_INFINITY, rounds=True),
)

SCANS: dict[str, Scan] = {row.name: row for row in _ROWS}
"""By the name of the ufunc."""


@lru_cache(maxsize=256)
def _result(name: str, dtype: str) -> np.dtype[Any]:
    return dtype_of(SCANS[name].ufunc.accumulate(np.ones(1, dtype)).dtype.name)


# --- collectives ----------------------------------------------------------------------------------


def _check_scan(scan: Scan, types: CollectiveTypes, params: Params) -> None:
    """One array, one of the same space and row; any dtype may be asked for."""
    (source,), ((number, made),) = types.inputs, types.outputs
    _need(not types.operands and not params and number == 0, "takes one array")
    fits = isinstance(made, ArrayType) and (made.space, made.row) == (source.space, source.row)
    _need(fits, f"makes an array like {source}, not {made}")
    _need(scan.gives(made.dtype), f"gives no {made.dtype}")


def _check_reduceat(scan: Scan, types: CollectiveTypes, params: Params) -> None:
    """One array and indices, of which the client gets a row for each."""
    (source,), (indices,), ((number, made),) = types.inputs, types.operands, types.outputs
    _need(not params and number == 0, "takes one array")
    _need(indices.dtype == "int64" and len(indices.row) == 1, f"needs indices, got {indices}")
    fits = isinstance(made, ClientType) and made.shape == (*indices.row, *source.row)
    _need(fits, f"makes a row for each index, not {made}")
    _need(scan.gives(made.dtype), f"gives no {made.dtype}")


for _row in _ROWS:
    register(Collective(_row.kind, 2, partial(_check_scan, _row)))
    register(Collective(_row.between, 2, partial(_check_reduceat, _row)))

Array = npt.NDArray[Any]

LINEAR_RECURRENCE = "linear_recurrence"
"""Inputs: ``b``, and ``a`` if it is on the servers. Operands: ``y[-1]``, and ``a`` of all rows."""


def recur(a: Array, b: Array, state: Array, y: Array) -> None:
    """Rows of ``y``: ``a`` times the row before, ``state`` at first, plus that of ``b``.

    Tables ``(rows, width)``, but ``a`` may have one row or one column instead; ``state`` is of
    ``width``, and the last row is left in it. Quicker than NumPy where each row is one number.
    """
    for column in range(b.shape[1]):
        factors = a[:, column if a.shape[1] > 1 else 0].tolist()
        if len(factors) < len(b):
            factors *= len(b)
        last, found = float(state[column]), []
        for factor, term in zip(factors, b[:, column].tolist(), strict=True):
            last = factor * last + term
            found.append(last)
        y[:, column], state[column] = found, last


def linear_recurrence(a: Array, b: Array, initial: Array) -> Array:
    """The recurrence of small arrays, or NumPy's, which are broadcast, in float64."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    state = np.array(np.broadcast_to(initial, shape[1:]), np.float64).reshape(-1)
    factors, terms = (np.broadcast_to(x, shape).reshape(shape[0], state.size) for x in (a, b))
    y = np.empty(terms.shape)
    recur(factors, terms, state, y)
    return y.reshape(shape)


def _check_recurrence(types: CollectiveTypes, params: Params) -> None:
    b, *a = types.inputs
    initial, *held = types.operands
    ((number, made),) = types.outputs
    _need(len(a) + len(held) == 1 and not params and number == 0, "takes a, b and where to begin")
    fits = isinstance(made, ArrayType) and (made.space, made.row) == (b.space, b.row)
    _need(fits, f"makes an array like {b}, not {made}")
    _need(made.dtype.name in FLOATS, f"gives {' or '.join(FLOATS)}, not {made.dtype}")
    _need(not a or a[0].space == b.space, "needs a and b over one space")
    _need(_stretches(initial.row, b.row), f"begins with a value for each column, got {initial}")
    rows = [*(one.row for one in a), *(one.row for one in held)]
    _need(all(_stretches(row, b.row) for row in rows), "needs rows of a as those of b")


def _stretches(row: Row, to: Row) -> bool:
    return row in ((), (1,), to)


register(Collective(LINEAR_RECURRENCE, 2, _check_recurrence))

TSQR = "tsqr"

_FLOAT, _SINGLE = np.dtype(np.float64), np.dtype(np.float32)


def _check_tsqr(types: CollectiveTypes, params: Params) -> None:
    (table,) = types.inputs
    if types.operands or params or len(table.row) != 1 or table.space.length < table.width:
        raise ValueError("one table of at least as many rows as columns is decomposed")
    q = table if table.dtype == _SINGLE else table.of(_FLOAT)
    made = {0: q, 1: client_type(_FLOAT, table.row * 2)}
    if any(type != made.get(number) for number, type in types.outputs):
        raise TypeError(f"of {table} come {made[0]} and {made[1]}")


register(Collective(TSQR, 2, _check_tsqr))
