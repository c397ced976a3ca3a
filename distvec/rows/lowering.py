"""From a function that has run on tracers to a row program, and to what a call of it needs: which
rows change and how, and which numbers the client computes before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distvec.array.core.handle import Handle, is_broadcastable
from distvec.graph import build
from distvec.graph.build import check_dtype
from distvec.graph.host_eval import cast_value, value_of
from distvec.graph.node import Graph, Node, topological
from distvec.planner.emit import sweep_of
from distvec.planner.fuse import Traversal
from distvec.rows.tracer import ARGUMENT, BATCH, Keys, Kind, NotTraceable, PerKey, RowsOf, Trace
from ps_backend.program.row_program import RowProgram, Scatter
from ps_backend.program.sweep import Scalar, Sweep
from ps_backend.program.types import NodeType, array_type


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    op: str
    params: tuple[Any, ...]
    type: NodeType
    args: tuple[int, ...]
    constant: Any
    """The value, where it is known."""
    argument: str
    """The argument that it is, if it is one."""


class Numbers:
    """The runtime scalars of a sweep, computed from the numbers that a call gives by name.

    ``2 * lr / (1 - beta)`` of numbers costs the servers nothing.
    """

    def __init__(self, wanted: Sequence[Node], arguments: Mapping[Node, str]) -> None:
        order = list(topological(wanted, lambda node: node.known))
        place = {id(node): number for number, node in enumerate(order)}
        self._steps = [
            _Step(
                node.op,
                node.params,
                node.type,
                tuple(place[id(arg)] for arg in node.args),
                node.value,
                arguments.get(node, ""),
            )
            for node in order
        ]
        self._wanted = [place[id(node)] for node in wanted]

    def of(self, given: Mapping[str, Any]) -> tuple[Scalar, ...]:
        """The scalars of a call, in the order of the sweep's."""
        values: list[Any] = []
        for step in self._steps:
            value = step.constant
            if step.argument:
                value = cast_value(given[step.argument], step.type)
            elif value is None:
                value = value_of(step.op, step.params, step.type, [values[k] for k in step.args])
            values.append(value)
        return tuple([values[k] if values[k].ndim else values[k].item() for k in self._wanted])


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """New rows, and how they are joined to those that are there."""

    op: str
    rows: Any
    where: Any = None
    """Booleans, for which keys; None: for all."""


def replace_rows(rows: Any, *, where: Any = None) -> Update:
    """Write ``rows``: what a row function returns without saying more.

    ``where``, here and below: booleans, for which keys rows are written. A key that does not exist
    is inserted where one of the arrays of its space is written.
    """
    return Update("replace", rows, where)


def add_rows(rows: Any, *, where: Any = None) -> Update:
    """Add ``rows`` to the stored rows, which the function need not read."""
    return Update("add", rows, where)


def min_rows(rows: Any, *, where: Any = None) -> Update:
    """Store the elementwise minimum of ``rows`` and the stored rows."""
    return Update("min", rows, where)


def max_rows(rows: Any, *, where: Any = None) -> Update:
    """Store the elementwise maximum of ``rows`` and the stored rows."""
    return Update("max", rows, where)


@dataclass(frozen=True, slots=True, eq=False)
class Returned:
    """What a function returned, sorted out."""

    updates: Mapping[str, Update]
    values: tuple[Any, ...]
    several: bool
    """Whether the values are to come back as a tuple."""


def parse_returned(returned: Any, function: str) -> Returned:
    """A dict of updates by the names of arguments; values per key; or a pair of both.

    ``TypeError`` for anything else.
    """
    updates: Mapping[str, Any] = {}
    values = returned
    if isinstance(returned, Mapping):
        updates, values = returned, None
    elif isinstance(returned, tuple) and returned and isinstance(returned[0], Mapping):
        if len(returned) != 2:
            raise TypeError(
                f"{function} must return updates, or updates with one value or a tuple of "
                "values: return updates, (a, b)"
            )
        updates, values = returned
    several = isinstance(values, tuple | list)
    found = tuple(values) if several else () if values is None else (values,)
    if not updates and not found:
        raise TypeError(
            f"{function} returns no rows and no values; return {{'w': new_rows}} to write the rows "
            f"of the argument w, or return one value per key"
        )
    given = {
        name: one if isinstance(one, Update) else replace_rows(one) for name, one in updates.items()
    }
    return Returned(given, found, several)


def fit_to_slot(graph: Graph, node: Node, type: NodeType, name: str) -> Node:
    """``node`` in the dtype and with the rows of ``type``, those of the array called ``name``.

    ``TypeError`` where its dtype does not fit, as for ``x[:] = values``; ``ValueError`` where its
    shape does not.
    """
    if not np.can_cast(node.dtype, type.dtype, "same_kind"):
        raise TypeError(
            f"new rows of {name!r} are {node.dtype}, but the array is {type.dtype}; convert "
            f"them: .astype({type.dtype.name!r})"
        )
    if not is_broadcastable(node.type.shape, type.shape):
        own = node.type.shape if node.on_client else ("n", *node.type.row)
        raise ValueError(
            f"new rows of {name!r} have shape {_format_shape(own)}; for n keys the array needs "
            f"{_format_shape(('n', *type.row))}"
        )
    return build.cast(graph, build.broadcast_to(graph, node, type), type.dtype)


def _format_shape(shape: tuple[object, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"


def per_key(graph: Graph, value: Any) -> Node:
    """What is returned for each key. ``TypeError`` for what is the same for all."""
    node = as_node(graph, value)
    if node.on_client:
        raise TypeError(
            f"the function returns a value of shape {node.type.shape} that does not depend on "
            "the rows; return one value per key"
        )
    return node


@dataclass(frozen=True, slots=True, eq=False)
class NewRows:
    """Rows that are joined to the ``old`` ones by ``op``, for the keys ``where``; None: for all."""

    new: Node
    old: Node
    op: str
    where: Node | None


@dataclass(frozen=True)
class Lowered:
    """A row program, and the nodes of what a call of it needs, each in the program's order."""

    program: RowProgram
    arrays: Sequence[Node]
    given: Sequence[Node]
    scalars: Sequence[Node]


def lower(
    rows: Sequence[Node],
    given: Sequence[Node],
    keys: Node | None,
    scatters: Sequence[NewRows],
    returned: Sequence[Node],
) -> Lowered:
    """The program that computes ``returned``, and new rows.

    ``rows``, ``given`` and ``keys`` are the arguments; those that nothing is made of are left out.
    """
    masks = [one.where for one in scatters if one.where is not None]
    stores = list(dict.fromkeys([*(one.new for one in scatters), *returned, *masks]))
    order = list(topological(stores, lambda node: node.known))
    used = {id(node) for node in order if node.op == ARGUMENT and not node.on_client}
    position = {id(node): number for number, node in enumerate(order)}
    traversal = Traversal(0, BATCH, stores, reasons={id(node): "" for node in stores})
    planned = sweep_of(traversal, used, position)
    gathered = [node for node in rows if id(node) in used]
    along = [node for node in given if id(node) in used]
    with_keys = [keys] if keys is not None and id(keys) in used else []
    at = {number: place for place, number in enumerate(planned.inputs)}
    places = [at[position[id(node)]] for node in (*gathered, *along, *with_keys)]
    written = {id(one.old) for one in scatters}
    arrays = [node for node in rows if id(node) in used or id(node) in written]
    number = {id(node): place for place, node in enumerate(arrays)}
    output = {id(node): place for place, node in enumerate(stores)}
    if scatters and planned.structure.may_fail:
        raise NotTraceable(
            "indices along the rows may be out of bounds, which would be found after some "
            "servers had written. Return the elements and write them by a second function, or "
            "use numpy.where(columns == index, new, old)"
        )
    program = RowProgram(
        _reorder_inputs(planned.structure, places),
        gathers=tuple([number[id(node)] for node in gathered]),
        scatters=tuple(
            [
                Scatter(
                    output[id(one.new)],
                    number[id(one.old)],
                    one.op,
                    None if one.where is None else output[id(one.where)],
                )
                for one in scatters
            ]
        ),
        returns=tuple([output[id(node)] for node in returned]),
        with_keys=bool(with_keys),
    )
    program.verify()
    return Lowered(program, arrays, along, [order[place] for place in planned.scalars])


def _reorder_inputs(sweep: Sweep, inputs: Sequence[int]) -> Sweep:
    """``sweep`` with its inputs in another order."""
    number: dict[int, int] = {old: new for new, old in enumerate(inputs)}
    number |= {value: value for value in range(len(inputs), len(sweep.types))}
    return replace(
        sweep,
        inputs=tuple(sweep.inputs[old] for old in inputs),
        steps=tuple(step.renumbered(number) for step in sweep.steps),
        outputs=tuple(number[value] for value in sweep.outputs),
    )


def as_node(graph: Graph, value: Any) -> Node:
    """What a function returned, as a node: of a tracer, or of numbers that are the same for all."""
    if isinstance(value, Handle):
        return value.node
    host = np.asarray(value)
    return graph.client_value(host, check_dtype(host.dtype))


@dataclass(frozen=True, eq=False)
class Traced:
    """A row program with the names of what it takes. Of one signature: dtypes and rows."""

    name: str
    kinds: Mapping[str, Kind]
    """By argument what it is."""
    program: RowProgram
    arrays: tuple[str, ...]
    """The arguments that stand for arrays, as the program counts these."""
    given: tuple[str, ...]
    """Those that bring a row for each key, in the order of the program's inputs."""
    numbers: Numbers
    several: bool
    """Whether what it returns per key is a tuple."""

    def scalars(self, arguments: Mapping[str, Any]) -> tuple[Scalar, ...]:
        """The runtime scalars of the sweep, from the numbers among ``arguments``."""
        return self.numbers.of(arguments)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        program, sweep = self.program, self.program.sweep
        yield f"row program of {self.name}: one message to each server that holds some of the keys"
        for name, kind in self.kinds.items():
            yield f"  {name}: {kind}"
        names = [f"rows of {self.arrays[array]}" for array in program.gathers]
        names += [f"{name}, per key" for name in self.given] + ["the keys"] * program.with_keys
        first = len(sweep.inputs)
        for number, line in enumerate(str(sweep).splitlines()):
            if not line.startswith("store "):
                what = f"  <- {names[number]}" if number < first else ""
                yield f"  {line}{what}"
        verbs = {"replace": "replaces", "add": "is added to", "min": "lowers", "max": "raises"}
        for scatter in program.scatters:
            value = sweep.outputs[scatter.output]
            mask = (
                "" if scatter.where is None else f", where %{sweep.outputs[scatter.where]} is true"
            )
            yield f"  %{value} {verbs[scatter.op]} the rows of {self.arrays[scatter.array]}{mask}"
        for output in program.returns:
            yield f"  %{sweep.outputs[output]} is returned"
        if not program.changes:
            yield "  it only reads: keys that are not there are not inserted"


def trace(
    name: str, function: Callable[[Mapping[str, Any]], Any], kinds: Mapping[str, Kind]
) -> Traced:
    """Run ``function`` once, on tracers by the names of its arguments, and see what it returns.

    ``NotTraceable`` for what is no row program; ``TypeError`` and ``ValueError`` for what it must
    not return.
    """
    home = Trace()
    tracers = {argument: home.tracer(kind) for argument, kind in kinds.items()}
    nodes = {argument: tracer.node for argument, tracer in tracers.items()}
    returned = parse_returned(function(tracers), name)
    found = lower(
        [nodes[argument] for argument, kind in kinds.items() if isinstance(kind, RowsOf)],
        [nodes[argument] for argument, kind in kinds.items() if isinstance(kind, PerKey)],
        next((nodes[argument] for argument, kind in kinds.items() if kind == Keys()), None),
        [
            NewRows(
                _new_rows(home, name, argument, update, kinds),
                nodes[argument],
                update.op,
                _mask(home.graph, argument, update.where),
            )
            for argument, update in returned.updates.items()
        ],
        [per_key(home.graph, value) for value in returned.values],
    )
    names = {id(node): argument for argument, node in nodes.items()}
    return Traced(
        name,
        kinds,
        found.program,
        tuple([names[id(node)] for node in found.arrays]),
        tuple([names[id(node)] for node in found.given]),
        Numbers(found.scalars, {node: argument for argument, node in nodes.items()}),
        returned.several,
    )


def _new_rows(
    home: Trace, function: str, name: str, update: Update, kinds: Mapping[str, Kind]
) -> Node:
    """The node of new rows, as the array ``name`` takes them."""
    kind = kinds.get(name)
    if not isinstance(kind, RowsOf):
        arrays = [one for one, other in kinds.items() if isinstance(other, RowsOf)]
        raise NotTraceable(
            f"{function} returns new rows for {name!r}, but its arrays are: "
            f"{', '.join(arrays) or '(no arrays)'}"
        )
    type = array_type(BATCH, kind.dtype, kind.row)
    return fit_to_slot(home.graph, as_node(home.graph, update.rows), type, name)


def _mask(graph: Graph, name: str, where: Any) -> Node | None:
    """The node of the booleans where rows are written. ``TypeError`` if they are none."""
    if where is None:
        return None
    node = as_node(graph, where)
    if node.on_client or node.dtype != np.bool_ or node.type.row:
        raise TypeError(
            f"where= of the new rows of {name!r} must be a boolean for each key, such as "
            f"counts > 3; got {node.dtype} of shape "
            f"{_format_shape(node.type.shape if node.on_client else ('n', *node.type.row))}"
        )
    return node
