"""A session without servers, in which a function is run on tracers; and the kinds of arguments that
it takes: rows of arrays, values per key, numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, cast

import numpy as np

from distvec.array.array import DistArray
from distvec.array.column_split import Transposed
from distvec.array.core.handle import Handle, SessionBase
from distvec.array.dispatch.array_api import Namespace
from distvec.diagnostics.profile import call_site, is_from_outside
from distvec.graph.build import check_dtype
from distvec.graph.host_eval import FUNCTIONS
from distvec.graph.node import MOVEMENT, MOVES, Graph, Node
from ps_backend.client import Client
from ps_backend.program import ops, row_ops
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import NodeType, Row, array_type, client_type


@dataclass(frozen=True, slots=True)
class RowsOf:
    """The rows of an array of the space, at the keys: of shape ``(n, *row)`` together."""

    dtype: str
    row: Row = ()

    def __str__(self) -> str:
        return f"rows of an array: {_shape(self.dtype, self.row)}"


@dataclass(frozen=True, slots=True)
class PerKey:
    """What comes along, one row for each key."""

    dtype: str
    row: Row = ()

    def __str__(self) -> str:
        return f"given per key: {_shape(self.dtype, self.row)}"


@dataclass(frozen=True, slots=True)
class Number:
    """A number, or a small array, of the call: the same for all keys."""

    dtype: str = "float64"
    shape: tuple[int, ...] = ()
    weak: bool = True
    """Whether it is a Python number, which takes the dtype of the rows that it meets."""

    def __str__(self) -> str:
        kind = "a number" if self.weak else _shape(self.dtype, self.shape)
        return f"the same for all keys: {kind}"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys themselves, as int64."""

    def __str__(self) -> str:
        return "the keys: int64 (n,)"


Kind = RowsOf | PerKey | Number | Keys

WEIGHTS, GRADIENT, STEP_SIZE, STEPS = "weights", "gradient", "step_size", "steps"
"""Arguments of a step of a row optimizer, beside its states."""


def _shape(dtype: str, row: Row) -> str:
    return f"{dtype} {row}" if row else dtype


def number_kind(name: str, value: Any) -> Number:
    """The kind of a number, or of an array that is the same for all keys; ``TypeError`` if none."""
    if isinstance(value, bool | np.bool_):
        return Number("bool", weak=False)
    if type(value) in (int, float):
        return Number("int64" if type(value) is int else "float64")
    if isinstance(value, np.generic | np.ndarray):
        return Number(check_dtype(value.dtype).name, np.shape(value), weak=False)
    if isinstance(value, int | float):
        return Number()
    raise TypeError(
        f"{name}: a row function takes arrays of its space, NumPy arrays with a row for each "
        f"key, and numbers; got a {type(value).__name__}"
    )


ARGUMENT = "argument"
"""The op of the nodes that stand for arguments."""
BATCH = DenseSpace(65_537)
"""Stands for the keys of a batch, of which there may be any number: no row is as long, so that
nothing fits it by chance."""


class NotTraceable(TypeError):
    """A function does what cannot be done with the rows of each key by themselves."""


def refuse(what: str, instead: str) -> NoReturn:
    """Raise ``NotTraceable`` that names the line of the function, and what to type ``instead``."""
    raise NotTraceable(
        f"{call_site()}: {what}; a row function sees the rows of some keys, on one of the servers, "
        f"and computes on each by itself. {instead}"
    )


_MOVED = (
    "Keys have no order and no neighbours: give what belongs to each key as an argument of its own"
)
_READ = "Write dv.where(condition, x, y) for a condition, and return what you want to read"


class _RowGraph(Graph):
    """The nodes of one function: made of what servers compute row by row, or the client itself."""

    def make(
        self, op: str, args: tuple[Node, ...], type: NodeType, params: tuple[Any, ...] = ()
    ) -> Node:
        """As ``Graph.make``. ``NotTraceable`` for what a row program cannot have."""
        if op in REDUCERS:
            refuse(
                "this brings together the rows of all keys, or needs them at the client",
                "Reduce along the rows, as x.sum(axis=1); what all keys together give is "
                "computed of whole arrays, outside, as float(w @ w)",
            )
        if op in MOVES or op == MOVEMENT or op == "iota":
            refuse("this reads the rows of other keys, by their places among them", _MOVED)
        row_op = row_ops.TABLE.get(op)
        if row_op is not None and (row_op.whole or row_op.slots is not None or op == "along_axis"):
            refuse("this changes or reads rows by the places of their keys", _MOVED)
        if op not in ops.TABLE and row_op is None and op not in FUNCTIONS:
            refuse(f"{op!r} is nothing that servers do row by row", _MOVED)
        return super().make(op, args, type, params)


class _NoServers:
    """In the place of the client: whatever would ask a server for something is refused."""

    def __getattr__(self, name: str) -> NoReturn:
        refuse("this asks servers about whole arrays", f"{_MOVED}. {_READ}")


class Tracer(DistArray):
    """An array that stands for an argument, or for what was made of some."""

    __slots__ = ()
    __hash__ = None

    def __len__(self) -> int:
        if not self.node.on_client and is_from_outside():
            refuse("len() asks how many keys there are", "That differs from server to server")
        return super().__len__()

    def __iter__(self) -> Iterator[Any]:
        if self.node.on_client:
            return super().__iter__()
        refuse("this iterates over the keys", "Write what is to be done with all of them at once")

    def __repr__(self) -> str:
        shape = self.shape if self.node.on_client else ("n", *self.shape[1:])
        return f"<stands for {self.dtype} ({', '.join(map(str, shape))})>"

    __str__ = __repr__


class Trace(SessionBase):
    """Where one function is run once."""

    def __init__(self) -> None:
        super().__init__(cast(Client, _NoServers()))
        self.graph = _RowGraph()

    def _transposed(self, table: Any) -> Transposed:
        """As ``SessionBase._transposed``."""
        return Transposed(table)

    def tracer(self, kind: Kind) -> Tracer:
        """What stands for an argument of that kind."""
        type: NodeType
        match kind:
            case RowsOf() | PerKey():
                type = array_type(BATCH, kind.dtype, kind.row)
            case Keys():
                type = array_type(BATCH, np.int64)
            case Number():
                type = client_type(np.dtype(kind.dtype), kind.shape)
        node = self.graph.placeholder(ARGUMENT, type)
        if isinstance(kind, Number) and kind.weak:
            self.graph.weak.add(node)
        return Tracer(self, node)

    # --- what a session does otherwise ----------------------------------------------------------

    def track(self, array: Any) -> None:
        """Nobody computes tracers, and so nobody has to know of them."""

    def compute(self, *arrays: Any) -> NoReturn:
        """``NotTraceable``: there are no values."""
        refuse("this needs a value, as float(), bool(), if and .numpy() do", _READ)

    def evaluate_implicitly(self, array: Any, what: str, *others: Any) -> Any:
        """The value of what the client knows; else ``NotTraceable``."""
        if array.node.value is not None:
            return array.node.value
        refuse(f"{what} needs a value", _READ)

    def transfer_implicitly(self, node: Node, what: str, count: int) -> None:
        """``NotTraceable``, for what is not here."""
        if not node.on_client:
            refuse(f"{what} needs elements here", _READ)

    def plan(self, *arrays: Any) -> NoReturn:
        """``NotTraceable``: what runs is known once the function has returned."""
        refuse("explain() within the function", "Call f.explain(...) on the function itself")

    def flush(self) -> None:
        """Nothing is sent off."""

    def array(self, values: Any, dtype: Any = None) -> Tracer:
        """A small array that is the same for all keys: it goes along with each call."""
        if isinstance(values, Handle):
            return Tracer(self, values.node).astype(values.dtype if dtype is None else dtype)
        host = np.asarray(values, None if dtype is None else check_dtype(dtype))
        return Tracer(self, self.graph.client_value(host, check_dtype(host.dtype)))

    def select(self, values: Any, mask: Any) -> NoReturn:
        """``NotTraceable``: how many keys are left, only their values tell."""
        refuse("x[mask] leaves out keys", "Write dv.where(mask, x, 0)")

    def scatter(self, x: Any, indices: Any, values: Any) -> NoReturn:
        """``NotTraceable``: keys are not known by places."""
        refuse("indices name other keys by their places", _MOVED)

    def readonly_slice(self, values: Any) -> Any:
        """A slice, which is like any other array here."""
        return values

    @cached_property
    def namespace(self) -> Namespace:
        """The array API namespace that solvers ask tracers for."""
        return Namespace(self)
