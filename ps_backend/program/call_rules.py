"""The rules that a sweep keeps together with what it runs on, and the calls of a program together.

What can be known of the structure alone is in ``rules``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ps_backend.errors import InvalidProgram
from ps_backend.program import row_ops
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.rules import verify_sweep
from ps_backend.program.sweep import Program, SweepCall


def _donors_fit(call: SweepCall) -> bool:
    """Also that no output is an input as it is: it would be read after others were stored."""
    given = dict(zip(call.inputs, call.sweep.inputs, strict=True))
    computed = len(call.sweep.inputs)
    return all(
        given.get(donor) == call.sweep.types[value] and value >= computed
        for donor, value in zip(call.donors, call.sweep.outputs, strict=False)
    )


def _views_fit(call: SweepCall) -> bool:
    return all(
        view is None or view.fits(call.space.length, value.row)
        for view, value in zip(call.views, call.sweep.inputs, strict=False)
    )


def _may_fail(call: SweepCall) -> bool:
    return call.sweep.may_fail or any(view is not None and view.index for view in call.views)


def _held(call: SweepCall, value: int) -> Any:
    return call.scalars[value - len(call.sweep.inputs)]


def _operands_have_shapes(call: SweepCall) -> bool:
    return all(
        isinstance(value, np.ndarray) and (value.shape, value.dtype.name) == (type.row, type.dtype)
        for value, type in zip(call.scalars, call.sweep.scalars, strict=True)
        if type.row
    )


def _all_below(indices: Any, end: int) -> bool:
    return not indices.size or (indices.min() >= 0 and indices.max() < end)


def _slots_exist(call: SweepCall) -> bool:
    sweep = call.sweep
    slots = [(s.args, row_ops.TABLE[s.op].slots) for s in sweep.row_steps]
    lists = [args[place] for args, place in slots if place is not None]
    lists += [r.args[1] for r in sweep.reductions if REDUCERS[r.op].layout == "listed"]
    return all(_all_below(_held(call, value), call.space.length) for value in lists)


def _columns_exist(call: SweepCall) -> bool:
    sweep = call.sweep
    columns = [(s.args, row_ops.TABLE[s.op].columns) for s in sweep.row_steps]
    return all(
        _all_below(_held(call, args[place]), sweep.types[args[0]].row[0])
        for args, place in columns
        if place is not None
    )


def _held_for_all_slots(call: SweepCall) -> bool:
    whole = [s.args[0] for s in call.sweep.row_steps if row_ops.TABLE[s.op].whole]
    return all(call.sweep.types[value].row[0] == call.space.length for value in whole)


_CALL_RULES: tuple[tuple[str, Callable[[SweepCall], bool]], ...] = (
    ("one buffer id per input", lambda c: len(c.inputs) == len(c.sweep.inputs)),
    ("one value per runtime scalar", lambda c: len(c.scalars) == len(c.sweep.scalars)),
    ("one buffer id per output", lambda c: len(c.outputs) == len(c.sweep.outputs)),
    ("no buffer is both read and written", lambda c: not set(c.inputs) & set(c.outputs)),
    ("one donor per output, or none at all", lambda c: len(c.donors) in (0, len(c.outputs))),
    ("no donor gives twice", lambda c: len(set(c.donors)) == len(c.donors)),
    ("donors are inputs of their outputs' type", _donors_fit),
    ("no buffer is written twice", lambda c: len(set(c.outputs)) == len(c.outputs)),
    ("one view per input, or none at all", lambda c: len(c.views) in (0, len(c.inputs))),
    ("views stay within their buffers", _views_fit),
    (
        "no indices where memory is given away: they may be out of range on one server only",
        lambda c: not (c.donors and _may_fail(c)),
    ),
    ("scalars with rows are arrays of their shape", _operands_have_shapes),
    ("lists of slots are of slots of the space", _slots_exist),
    ("lists of columns are of columns of the table", _columns_exist),
    ("what is held by slot has a row for each slot of the space", _held_for_all_slots),
)


def verify_call(call: SweepCall) -> None:
    """Raise ``InvalidProgram`` naming the first rule that ``call`` of a legal sweep breaks."""
    for rule, holds in _CALL_RULES:
        if not holds(call):
            raise InvalidProgram(f"a sweep call breaks the rule {rule!r}:\n{call.sweep}")


def verify_sources(calls: Sequence[SweepCall]) -> None:
    """Raise ``InvalidProgram`` if what one call reads through a view is not there for all of them.

    Servers fetch it from one another at any time while they run the program.
    """
    sources = {number for call in calls for number in call.sources}
    changed = {number for call in calls for number in (*call.outputs, *call.donors)}
    for number in sorted(sources & changed):
        raise InvalidProgram(
            f"buffer {number} is read through a view, and made or given away by the same program"
        )


def verify(program: Program) -> None:
    """Raise ``InvalidProgram`` naming the first rule that ``program`` breaks."""
    for call in program.calls:
        verify_sweep(call.sweep)
        verify_call(call)
    verify_sources(program.calls)
