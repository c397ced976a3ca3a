"""Run a plan: programs to the servers in order, scalar arithmetic on the client in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.diagnostics.profile import note_plan
from distvec.graph.host_eval import cast_value, compute
from distvec.graph.node import SPREAD, Buffer, Graph, Node
from distvec.planner.linear import cancels, inner_of_terms
from distvec.planner.plan import (
    Plan,
    PlannedPhase,
    PlannedProgram,
    PlannedSweep,
    PlannedView,
    Reason,
)
from distvec.runtime.liveness import InFlightProgram, LiveValues, find_donors
from ps_backend.client import Client, Ended
from ps_backend.program.collectives import CollectiveCall
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.sweep import Program, SweepCall
from ps_backend.program.types import ClientType, NodeType
from ps_backend.program.views import View


class Cancelled(Exception):
    """Expanded inner products lost too many digits; ``products`` must be computed as they are."""

    def __init__(self, products: Sequence[Node]) -> None:
        super().__init__(f"the terms of {products!r} cancel")
        self.products = products
        self.programs = 0
        """Of its plan, those that had run by then."""


class Workspace:
    """What a movement leaves on the servers while it is under way; freed when nobody holds it."""

    __slots__ = ("_free", "id")

    def __init__(self, client: Client) -> None:
        self.id = client.new_id()
        self._free = client.free

    def __del__(self) -> None:
        self._free([self.id])


class Executor:
    """Runs plans on the servers of one session."""

    def __init__(self, client: Client, graph: Graph, holders: LiveValues) -> None:
        self.client, self.graph, self.holders = client, graph, holders

    def new_buffer(self, type: NodeType) -> Buffer:
        """A fresh buffer id with its finalizer; nothing is sent."""
        if isinstance(type, ClientType):
            raise TypeError("an array that is stored on the client needs no buffer")
        return Buffer(self.client.new_id(), type, self.client.free)

    def execute(
        self,
        plan: Plan,
        limit: float,
        *,
        reason: Reason = Reason.ASKED,
        wait: bool = True,
        between: Callable[[], None] | None = None,
    ) -> None:
        """Give every node that ``plan`` computes its value. One message per program and server.

        ``reason``: why the plan runs, for the active profile.

        With ``wait=False`` the last program's answer is not awaited if nothing has to come back
        with it: it is one of the holders' flights. A failure leaves every node as it was; after
        ``Cancelled`` the inner products that were computed are remembered, so that another plan
        does not ask for them again. ``limit``: how far one of them may cancel. ``between`` is
        called between programs, and may raise.
        """
        run, template = _Execution(self, plan, limit), plan.template
        programs, ran = template.programs, 0
        try:
            if template.before:
                run.compute_scalars(template.before)
            for program in programs[:-1]:
                ran += 1
                run.run(program, {}, wait=True)
                if between is not None:
                    between()
            if programs:
                ran = len(programs)
                run.run_last(programs[-1], wait=wait)
            else:
                run.settle()
        except Cancelled as cancelled:
            cancelled.programs = ran
            note_plan(replace(template, programs=programs[:ran]), reason)
            raise
        note_plan(template, reason)


class _Execution:
    """A plan under way, with the values of its nodes by position."""

    def __init__(self, executor: Executor, plan: Plan, limit: float) -> None:
        self._executor, self._plan, self._limit = executor, plan, limit
        self._planned, self._values = plan.template.values, plan.values[:]
        self._workspaces: dict[int, Workspace] = {}
        """By position of the first output of their movement."""

    def run_last(self, program: PlannedProgram, *, wait: bool) -> None:
        """The last program, which may write over dying vectors, and need not be awaited."""
        holders, flight = self._executor.holders, InFlightProgram()
        donors = find_donors(holders, self._plan)
        awaited = wait or program.answers or not program.is_local
        try:
            self.run(program, donors, wait=awaited, ended=flight.end)
        except KeyboardInterrupt:
            # Whether it ran is not known, and it may have written over what its nodes are computed
            # from: so they get their values as if it had, until the next evaluation has asked.
            holders.flights.append(flight)
            self.settle(flight, program)
            raise
        if awaited:
            self.settle()
        else:
            holders.flights.append(flight)
            self.settle(flight, program)

    def settle(
        self, flight: InFlightProgram | None = None, program: PlannedProgram | None = None
    ) -> None:
        """Give nodes their values; what ``flight`` is to make by ``program`` can be taken back."""
        graph, plan, values = self._executor.graph, self._plan, self._values
        awaited: set[int] = set()
        if flight is not None and program is not None:
            stored = {position for sweep in program.sweeps for position in sweep.stores}
            awaited = stored | set(program.made)
        template, nodes = plan.template, plan.nodes
        settled = [(nodes[k], k) for k in template.open if values[k] is not None]
        for node, position in (*settled, *plan.aliases):
            if node is None or node.value is not None or values[position] is None:
                continue
            if position in awaited and flight is not None:
                flight.remember(node, graph.snapshot(node))
            graph.settle(node, values[position], template)

    def run(
        self,
        program: PlannedProgram,
        donors: Mapping[int, int],
        *,
        wait: bool,
        ended: Ended | None = None,
    ) -> None:
        """Send ``program``, take in its answers, and compute the scalars that follow from them."""
        before = tuple(map(self._phase, program.before)) if program.before else ()
        calls = tuple([self._call(sweep, donors) for sweep in program.sweeps])
        after = tuple(map(self._phase, program.after)) if program.after else ()
        answers = self._executor.client.run(
            Program(calls, (), before, after), wait=wait, ended=ended
        )
        if answers is not None:
            partials, kept = answers[: len(calls)], answers[len(calls) :]
            for sweep, parts in zip(program.sweeps, partials, strict=True):
                self._combine(sweep, parts)
            for phase, found in zip(program.before, kept, strict=True):
                self._keep(phase, found)
        for sweep in program.sweeps:
            _remember_products(sweep, self._values)
        if program.scalars:
            self.compute_scalars(program.scalars)

    def _call(self, sweep: PlannedSweep, donors: Mapping[int, int]) -> SweepCall:
        """A sweep with the buffers of now, and new ones for what it stores."""
        values = self._values
        for position in sweep.stores:
            values[position] = self._executor.new_buffer(self._planned[position].type)
        return SweepCall(
            sweep.structure,
            sweep.space,
            tuple([values[position].id for position in sweep.inputs]),
            tuple([_operand(values[position]) for position in sweep.scalars]),
            tuple([values[position].id for position in sweep.stores]),
            tuple([values[donors[position]].id for position in sweep.stores]) if donors else (),
            tuple([_view(one, values) for one in sweep.views]) if any(sweep.views) else (),
        )

    def _phase(self, planned: PlannedPhase) -> CollectiveCall:
        """A phase with the buffers of now; the first one names those that the last will make."""
        types, values, key = self._planned, self._values, planned.outputs[0]
        if key not in self._workspaces:
            self._workspaces[key] = Workspace(self._executor.client)
        made = [position for position in planned.outputs if not types[position].type.on_client]
        for position in made if not planned.phase else ():
            values[position] = self._executor.new_buffer(types[position].type)
        return CollectiveCall(
            planned.kind,
            planned.phase,
            self._workspaces[key].id,
            planned.types,
            inputs=tuple([values[position].id for position in planned.inputs]),
            operands=tuple([np.asarray(values[position]) for position in planned.operands]),
            outputs=tuple([values[k].id if k in made else 0 for k in planned.outputs]),
            params=planned.params,
            whole=planned.phases == 1,
        )

    def _keep(self, phase: PlannedPhase, found: Sequence[npt.NDArray[Any]]) -> None:
        """Note the outputs that came to the client."""
        planned = self._planned
        kept = [position for position in phase.outputs if planned[position].type.on_client]
        if phase.is_last:
            for position, value in zip(kept, found, strict=True):
                self._values[position] = cast_value(value, planned[position].type)

    def _combine(self, sweep: PlannedSweep, partials: Sequence[npt.NDArray[Any]]) -> None:
        """The values of reductions, from the partial results of all servers."""
        remaining = iter(partials)
        for position in sweep.reductions:
            planned = self._planned[position]
            reducer, type = REDUCERS[planned.op], planned.type
            parts = [next(remaining) for _ in range(1 + reducer.locates)]
            if type.is_scalar:
                self._values[position] = type.dtype.type(reducer.combine(*parts))
            else:  # put together already; of those that locate, the indices come last
                self._values[position] = cast_value(parts[-1], type)

    def compute_scalars(self, scalars: Sequence[int]) -> None:
        """What the client computes; ``Cancelled`` where expanded inner products lose digits."""
        planned, values = self._planned, self._values
        cancelled: list[Node] = []
        unsure: set[int] = set()
        with np.errstate(all="ignore"):
            for number in scalars:
                op, params, type, inputs, is_expanded = planned[number]
                if unsure and not unsure.isdisjoint(inputs):
                    unsure.add(number)
                    continue
                arguments = [values[index] for index in inputs]
                if not is_expanded:
                    values[number] = compute(op, params, type, arguments)
                    continue
                values[number], magnitude = inner_of_terms(arguments)
                if cancels(values[number], magnitude, self._limit):
                    cancelled.append(self._plan.direct[number])
                    unsure.add(number)
        if cancelled:  # all of them together: each plan that follows is another message
            raise Cancelled(cancelled)


def _view(view: PlannedView | None, values: Sequence[Any]) -> View | None:
    """How servers read an input, with the buffers of now."""
    if view is None:
        return None
    index = 0 if view.index is None else values[view.index].id
    start, step = view.params
    return View(view.source.space, view.source.row, start, step, view.op == SPREAD, index)


def _operand(value: Any) -> Any:
    """What the client keeps, as a sweep takes it: a Python number, or an array."""
    return value if value.ndim else value.item()


def _remember_products(sweep: PlannedSweep, values: list[Any]) -> None:
    """Keep inner products with the buffers they are of, for the next expression that needs them."""
    for reduction, factors in zip(sweep.reductions, sweep.products, strict=True):
        if factors is None:
            continue
        a, b = values[factors[0]], values[factors[1]]
        if isinstance(a, Buffer) and isinstance(b, Buffer):
            a.remember_product(b.id, values[reduction])
            b.remember_product(a.id, values[reduction])
