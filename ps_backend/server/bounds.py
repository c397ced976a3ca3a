"""Whether a request keeps within the bounds of ``limits``, asked before it is decoded.

They are asked before anything is done. The bounds of one command stand beside it; what a bound
depends on, such as the arrays that are there, the command checks itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

from ps_backend import limits
from ps_backend.limits import check, check_name
from ps_backend.wire import ps_pb2 as pb

_MOST_KEY_BYTES = 64


def verify_sender(request: pb.Request) -> None:
    """Raise ``ValueError`` unless the sender's names and key are within bounds."""
    check_name("session", request.session)
    check_name("client", request.client)
    check("bytes of a key", len(request.key), 0, _MOST_KEY_BYTES)


def verify_row(row: Iterable[int], most: int = limits.MOST_ROW_EXTENTS) -> None:
    """The same for the shape of a row, of ``most`` extents."""
    extents = tuple(row)
    if extents:
        check("extents of a row", len(extents), 0, most)
        check("elements of a row", prod(extents), 0, limits.MOST_ROW_ITEMS)


def verify_space(space: pb.Space) -> None:
    """The same for a space."""
    check("length of a space", space.length, 0, limits.MOST_LENGTH)
    check_name("kind of a space", space.kind)
    check("bytes of details of a space", len(space.details), 0, limits.MOST_DETAILS)


def verify_array(array: pb.Array) -> None:
    """The same for an array."""
    verify_space(array.space)
    verify_row(array.row)


def no_bounds(body: Any) -> None:
    """For a message that has nothing to bound."""


def name_within_bounds(field: str) -> Callable[[Any], None]:
    """For a message with a name in ``field``."""
    return lambda body: check_name(field, getattr(body, field))


_MOST_DIGEST = 64


def program_within_bounds(run: pb.Run) -> None:
    """Raise ``ValueError`` unless the program keeps within the bounds of ``limits``."""
    check("calls of a program", len(run.calls), 0, limits.MOST_CALLS)
    check("servers of a session", len(run.peers), 0, limits.MOST_SERVERS)
    check("lives of servers", len(run.lives), 0, limits.MOST_SERVERS)
    for address in run.peers:
        check_name("address", address)
    check("collectives of a program", len(run.before) + len(run.after), 0, limits.MOST_CALLS)
    for collective in (*run.before, *run.after):
        _collective_bounds(collective)
    values = held = 0
    for call in run.calls:
        verify_space(call.space)
        check("characters of a digest", len(call.digest), 0, _MOST_DIGEST)
        held += len(call.scalars)
        check("bytes of scalars of a program", held, 0, limits.MOST_OPERAND_BYTES)
        values += len(call.inputs) + len(call.outputs) + len(call.donors)
        check("values of a program", values, 0, limits.MOST_VALUES)
        for view in call.views:
            verify_space(view.space)
            verify_row(view.row)
        if call.HasField("sweep"):
            values += sum(1 + len(step.links) for step in call.sweep.steps)
            values += len(call.sweep.reductions)
            check("values of a program", values, 0, limits.MOST_VALUES)
            _sweep_bounds(call.sweep)


def _collective_bounds(collective: pb.MovementCall) -> None:
    check_name("kind of a collective", collective.kind)
    for name in ("inputs", "operands", "outputs"):
        check(f"{name} of a collective", len(getattr(collective, name)), 0, limits.MOST_VALUES)
    check("bytes of operands of a program", len(collective.values), 0, limits.MOST_OPERAND_BYTES)
    for value in collective.operands:
        verify_row(value.row, limits.MOST_OPERAND_EXTENTS)
    for array in (*collective.inputs, *(one.array for one in collective.outputs)):
        verify_array(array)
    for one in collective.outputs:
        verify_row(one.kept.row, limits.MOST_OPERAND_EXTENTS)


def _sweep_bounds(sweep: pb.Sweep) -> None:
    for name in ("inputs", "scalars", "outputs"):
        check(f"{name} of a sweep", len(getattr(sweep, name)), 0, limits.MOST_VALUES)
    for value in sweep.inputs:
        verify_row(value.row)
    for value in sweep.scalars:
        verify_row(value.row, limits.MOST_OPERAND_EXTENTS)
    for step in sweep.steps:
        check("arguments of a step", len(step.args), 0, limits.MOST_ARGUMENTS)
        check("parameters of a step", len(step.params), 0, limits.MOST_PARAMS)
        verify_row(step.type.row)
    for reduction in sweep.reductions:
        check("arguments of a reduction", len(reduction.args), 0, limits.MOST_ARGUMENTS)
