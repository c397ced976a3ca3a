"""The table of collectives: results that servers compute in phases, as elements change place.

A phase is one message to each server that takes part. What it leaves in the *workspace* of the
collective on a server, the later phases fetch from there, on whichever server: the client only
waits in between, and sees no element. The functions that run the phases are in
``ps_backend.server.collectives``; a program that has a collective of its own gives it to both
``register``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    array_type,
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

    @property
    def made(self) -> NodeType:
        """The first of the outputs."""
        return self.outputs[0][1]


Params = tuple[int, ...]
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Collective:
    """One row of the table."""

    kind: str
    phases: int
    """Messages to each server. The first of several sees nothing but the server's own parts of the
    inputs, since these may have been computed in the same message."""
    check: Callable[[CollectiveTypes, Params], Mapping[int, NodeType] | None]
    """Raises ``TypeError`` or ``ValueError`` for types and parameters that it does not take. May
    return the types that its outputs have then, by number: others are refused."""


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
    def results(self) -> list[tuple[int, ClientType]]:
        """Number and type of what comes to the client."""
        return [(k, type) for k, type in self.types.outputs if isinstance(type, ClientType)]

    @property
    def made(self) -> list[int]:
        """The buffers that this phase makes."""
        return [number for number in self.outputs if number] if self.is_last else []

    def servers(self, servers: int) -> list[int]:
        """Who takes part: all that hold some of an array, in order."""
        return [*_holders(self.types, servers)]


@lru_cache(maxsize=1024)
def _holders(types: CollectiveTypes, servers: int) -> tuple[int, ...]:
    arrays = (*types.inputs, *(type for _, type in types.outputs))
    spaces = {type.space for type in arrays if isinstance(type, ArrayType)}
    found = {server for space in spaces for server in space.holders(servers)}
    return tuple(sorted(found or {0}))


def verify_collective(call: CollectiveCall) -> None:
    """Raise ``InvalidProgram`` unless there is such a collective, and it takes such arguments."""
    row = row_of(call.kind)
    if not 0 <= call.phase < row.phases:
        raise InvalidProgram(f"{call.kind} has phases 0 .. {row.phases - 1}, got {call.phase}")
    types, numbers = call.types, [number for number, _ in call.types.outputs]
    counts = (len(some) for some in (call.inputs, call.operands, call.outputs))
    on_servers = [isinstance(type, ArrayType) for _, type in types.outputs]
    if [*counts] != [len(types.inputs), len(types.operands), len(set(numbers))] or on_servers != [
        bool(buffer) for buffer in call.outputs
    ]:
        raise InvalidProgram(f"a call of {call.kind} names more or fewer arrays than their types")
    if set(call.inputs) & set(call.outputs) or len(set(call.made)) < len(call.made):
        raise InvalidProgram(f"a call of {call.kind} writes one of its inputs, or one output twice")
    try:
        _verify_types(row, types, call.params)
    except (TypeError, ValueError, IndexError) as error:
        raise InvalidProgram(f"{call.kind} does not take such arguments: {error}") from None


@lru_cache(maxsize=1024)
def _verify_types(row: Collective, types: CollectiveTypes, params: Params) -> None:
    """Raise ``TypeError``, ``ValueError`` or ``IndexError`` unless the row takes and makes them."""
    makes = row.check(types, params) or dict(types.outputs)
    for number, made in types.outputs:
        _need(made == makes.get(number), f"makes {makes.get(number)}, not {made}")


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


# --- the rows of the table ------------------------------------------------------------------------

SCATTER = "scatter"
"""Values that an index array brings to their places in an array, in its order.

Inputs: the base, the index array, the values. A base that is the same everywhere, and one value for
all, are operands instead. Parameters: the number in ``WAYS``; 1 if there is a base.
"""
SEARCH = "search"
"""Where values belong in a sorted array. Inputs: this vector, and values of its dtype.

Parameter: 1 if a value belongs after those equal to it.
"""
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
LINEAR_RECURRENCE = "linear_recurrence"
"""``y[t] = a[t] * y[t - 1] + b[t]``. Inputs: ``b``, and ``a`` if it is on the servers. Operands:
``y[-1]``, and ``a`` if it is the same in all rows."""
TSQR = "tsqr"
"""Q of a tall table, output 0, and R, output 1, which the client keeps; see
``ps_backend.server.collectives.tsqr``. Both in float64, but for Q of a table of float32."""

_INT, _FLOAT, _SINGLE = (np.dtype(one) for one in (np.int64, np.float64, np.float32))
Made = Mapping[int, NodeType]


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise TypeError(what)


def _check_scatter(types: CollectiveTypes, params: Params) -> Made:
    (way, has_base), made = params, types.made
    _need(0 <= way < len(WAYS) and has_base in (0, 1), f"knows no parameters {params}")
    base, (index, *values) = types.inputs[:has_base], types.inputs[has_base:]
    _need((index.dtype, index.row) == (_INT, ()), f"takes int64 indices, not {index}")
    counts = len(values) < 2 and len(types.operands) == 2 - has_base - len(values)
    _need(counts and isinstance(made, ArrayType), "makes an array of a base and values")
    _need(all(one.space == index.space for one in values), "needs a value for each index")
    _need_rows((*values, *types.operands), made.row)
    return {0: base[0] if base else made}


def _check_search(types: CollectiveTypes, params: Params) -> Made:
    (after,), (table, values) = params, types.inputs
    _need(after in (0, 1) and not types.operands, "takes a table and values")
    _need((table.row, values.row) == ((), ()), "takes vectors")
    _need(table.dtype == values.dtype, f"takes one dtype, not {table.dtype} and {values.dtype}")
    return {0: array_type(values.space, _INT)}


def _check_sort(types: CollectiveTypes, params: Params) -> Made:
    (source,), (descending, equal_zeros) = types.inputs, params
    _need({descending, equal_zeros} <= {0, 1} and not types.operands, "takes one array, two flags")
    space = types.made.space
    _need(0 < space.length <= source.space.length, f"makes some of the elements of {source}")
    dtypes = {VALUES: source.dtype, ORDER: _INT, STARTS: np.dtype(np.bool_)}
    return {number: array_type(space, dtype, source.row) for number, dtype in dtypes.items()}


def _check_order_statistics(types: CollectiveTypes, params: Params) -> Made:
    (source,), (ranks,) = types.inputs, types.operands
    count, columns = ranks.row
    _need(ranks.dtype == "int64" and not params, "takes one array, and a table of ranks")
    _need(columns in (1, source.width), f"needs ranks for 1 or {source.width} columns")
    return {0: ClientType(source.dtype, (count, *source.row))}


def _check_scan(scan: Scan, types: CollectiveTypes, params: Params) -> Made:
    (source,), dtype = types.inputs, types.made.dtype
    _need(not types.operands and not params, "takes one array")
    _need(scan.gives(dtype), f"gives no {dtype}")
    return {0: source.of(dtype)}


def _check_reduceat(scan: Scan, types: CollectiveTypes, params: Params) -> Made:
    (source,), (indices,), dtype = types.inputs, types.operands, types.made.dtype
    (count,) = indices.row
    _need(indices.dtype == "int64" and not params, f"needs indices, got {indices}")
    _need(scan.gives(dtype), f"gives no {dtype}")
    return {0: ClientType(dtype, (count, *source.row))}


def _check_recurrence(types: CollectiveTypes, params: Params) -> Made:
    b, *a = types.inputs
    initial, *constant = types.operands
    _need(len(a) + len(constant) == 1 and not params, "takes a, b and where to begin")
    _need(all(one.space == b.space for one in a), "needs a and b over one space")
    _need_rows((*a, *constant, initial), b.row)
    dtype = types.made.dtype
    _need(dtype.name in FLOATS, f"gives {' or '.join(FLOATS)}, not {dtype}")
    return {0: b.of(dtype)}


def _check_tsqr(types: CollectiveTypes, params: Params) -> Made:
    (table,) = types.inputs
    (columns,) = table.row
    _need(not types.operands and not params, "takes one table")
    _need(table.space.length >= columns, "a table of at least as many rows as columns is needed")
    q = table if table.dtype == _SINGLE else table.of(_FLOAT)
    return {0: q, 1: ClientType(_FLOAT, (columns, columns))}


def _need_rows(some: Iterable[ArrayType | ValueType], row: Row) -> None:
    """Rows that are broadcast to ``row``."""
    for one in some:
        _need(one.row in ((), (1,), row), f"needs rows of {row}, not {one.row}")


for _row in (
    Collective(SCATTER, 2, _check_scatter),
    Collective(SEARCH, 4, _check_search),
    Collective(SORT, 2, _check_sort),
    Collective(ORDER_STATISTICS, 2, _check_order_statistics),
    *(Collective(one.kind, 2, partial(_check_scan, one)) for one in _ROWS),
    *(Collective(one.between, 2, partial(_check_reduceat, one)) for one in _ROWS),
    Collective(LINEAR_RECURRENCE, 2, _check_recurrence),
    Collective(TSQR, 2, _check_tsqr),
):
    register(_row)
