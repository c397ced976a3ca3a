"""Run a plan: programs to the servers in order, scalar arithmetic on the client in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from distvec.expr import Buffer, Node
from distvec.planner import Plan
from distvec.planner.plan import PlannedProgram, PlannedSweep
from distvec.planner.simplify import product_of
from ps_backend import ops
from ps_backend.program import Program, SweepCall

if TYPE_CHECKING:
    from distvec.session import Session


def execute(session: Session, plan: Plan, *, wait: bool = True) -> None:
    """Give every node that ``plan`` computes its value. One message per program and server.

    With ``wait=False`` the last program's answer is not awaited if nothing has to come back with
    it. A failure leaves every node as it was.
    """
    values: dict[int, Any] = {}
    _compute_scalars(plan.before, values)
    origin = plan.release()
    for number, program in enumerate(plan.programs):
        last = number == len(plan.programs) - 1
        needs_answer = not last or any(sweep.reductions for sweep in program.sweeps)
        _run(session, program, values, wait=wait or needs_answer)
        _compute_scalars(program.scalars, values)
    for program in plan.programs:
        for sweep in program.sweeps:
            _remember_products(sweep, values)
    settled = [n for p in plan.programs for s in p.sweeps for n in (*s.stores, *s.reductions)]
    settled += [*plan.before, *(scalar for p in plan.programs for scalar in p.scalars)]
    for node in settled:
        session.graph.settle(node, values[id(node)], origin)
    for asked, simplified in plan.aliases:
        if asked is not simplified and not asked.known and simplified.known:
            session.graph.settle(asked, simplified.value, origin)


def _value(node: Node, values: dict[int, Any]) -> Any:
    return node.value if node.known else values[id(node)]


def _run(
    session: Session, program: PlannedProgram, values: dict[int, Any], *, wait: bool
) -> None:
    outputs = [[session.new_buffer(n.space, n.dtype) for n in s.stores] for s in program.sweeps]
    calls = tuple(
        SweepCall(
            sweep=sweep.structure,
            space=sweep.space,
            inputs=tuple(_value(node, values).id for node in sweep.inputs),
            scalars=tuple(_value(node, values).item() for node in sweep.scalars),
            outputs=tuple(buffer.id for buffer in buffers),
        )
        for sweep, buffers in zip(program.sweeps, outputs, strict=True)
    )
    partials = session.client.run(Program(calls), wait=wait)
    for position, (sweep, buffers) in enumerate(zip(program.sweeps, outputs, strict=True)):
        values.update((id(n), b) for n, b in zip(sweep.stores, buffers, strict=True))
        if partials is not None:
            _combine_all(sweep.reductions, partials[position], values)


def _combine_all(
    reductions: Sequence[Node], partials: Sequence[npt.NDArray[Any]], values: dict[int, Any]
) -> None:
    remaining = iter(partials)
    for node in reductions:
        parts = [next(remaining)]
        if node.op.startswith("arg"):
            parts.append(next(remaining))
        values[id(node)] = node.dtype.type(combine(node.op, *parts))


def combine(op: str, partials: npt.NDArray[Any], where: npt.NDArray[Any] | None = None) -> Any:
    """The result of a reduction from its partial results, one per block, in the order of blocks.

    The order is that of the blocks, whoever computed them, so the bits do not depend on the number
    of servers. An empty array gives the identity of the op.
    """
    with np.errstate(all="ignore"):
        match op:
            case "sum":
                return np.add.reduce(partials)
            case "prod":
                return np.multiply.reduce(partials)
            case "any":
                return np.bitwise_or.reduce(partials)
            case "all":
                return np.bitwise_and.reduce(partials) if len(partials) else 1
            case "min" | "max":
                return getattr(np, op)(partials)
            case "argmin" | "argmax" if where is not None:
                return where[getattr(np, op)(partials)]
    raise ValueError(f"unknown reduction {op!r}")


def _compute_scalars(scalars: Sequence[Node], values: dict[int, Any]) -> None:
    with np.errstate(all="ignore"):
        for node in scalars:
            arguments = [_value(arg, values) for arg in node.args]
            result = ops.TABLE[node.op].numpy(*arguments)
            values[id(node)] = node.dtype.type(result)


def _remember_products(sweep: PlannedSweep, values: dict[int, Any]) -> None:
    """Keep inner products with the buffers they are of, for the next expression that needs them."""
    for node in sweep.reductions:
        factors = product_of(node)
        if factors is None:
            continue
        a, b = (values.get(id(f)) if not f.known else f.value for f in factors)
        if isinstance(a, Buffer) and isinstance(b, Buffer):
            a.products[b.id] = b.products[a.id] = values[id(node)]
