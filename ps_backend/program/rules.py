"""The rules that every sweep and every call of one keeps, each as a sentence and a test of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakSet

import numpy as np

from ps_backend.errors import InvalidProgram
from ps_backend.limits import MOST_OPERAND_EXTENTS
from ps_backend.program import ops, row_ops
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.sweep import (
    COMBINE,
    Combination,
    Link,
    Program,
    Reduction,
    Step,
    Sweep,
    SweepCall,
    is_well_formed,
)
from ps_backend.program.types import DTYPES, FLOATS, Row, ValueType


def _dtypes_exist(sweep: Sweep) -> bool:
    return _DTYPES.issuperset([value.dtype for value in sweep.types])


_DTYPES = frozenset(DTYPES)


def _args_come_first(sweep: Sweep) -> bool:
    first = len(sweep.inputs) + len(sweep.scalars)
    return all(
        0 <= arg < number for number, step in enumerate(sweep.steps, first) for arg in step.args
    )


def _plain(sweep: Sweep) -> list[Step]:
    return [step for step in sweep.steps if isinstance(step, Step)]


def _elementwise(sweep: Sweep) -> list[Step]:
    return [step for step in _plain(sweep) if step.op in ops.TABLE]


def _listed_reductions(sweep: Sweep) -> list[Reduction]:
    """The reductions of values at some slots, of which the second value is a list."""
    return [r for r in sweep.reductions if REDUCERS[r.op].layout == "listed"]


def _arities_fit(sweep: Sweep) -> bool:
    return all(
        len(s.args) == (ops.TABLE if s.op in ops.TABLE else row_ops.TABLE)[s.op].arity
        for s in _plain(sweep)
    )


def _params_fit(sweep: Sweep) -> bool:
    return all(
        len(s.params) == (0 if s.op in ops.TABLE else row_ops.TABLE[s.op].params)
        for s in _plain(sweep)
    )


def _values_exist(sweep: Sweep) -> bool:
    count = len(sweep.inputs) + len(sweep.scalars) + len(sweep.steps)
    reduced = [value for reduction in sweep.reductions for value in reduction.args]
    return all(0 <= value < count for value in (*sweep.outputs, *reduced))


def _vectors_are_inputs(sweep: Sweep) -> bool:
    """A combination may go on from any value; what it scales or adds lies in memory as it is."""
    count = len(sweep.inputs)
    first = count + len(sweep.scalars)
    return all(
        (link == Link("start", link.vector) or (link.vector or 0) < count)
        and (link.scalar is None or count <= link.scalar < first)
        for combination in sweep.combinations
        for link in combination.links
    )


def _combined_types_fit(sweep: Sweep) -> bool:
    return all(
        step.type.dtype in FLOATS and sweep.types[arg].dtype == step.type.dtype
        for step in sweep.combinations
        for arg in step.args
    )


def _factors_fit(sweep: Sweep) -> bool:
    """Products are taken in float64, whichever of the two the factors are of."""
    pairs = [r.args for r in sweep.reductions if r.op == "dot"]
    kinds = [[sweep.types[arg] for arg in pair] for pair in pairs]
    return all(
        first.dtype == second.dtype
        and first.dtype in FLOATS
        and _broadcast_rows(sweep, pair, max(first.row, second.row))
        for pair, (first, second) in zip(pairs, kinds, strict=True)
    )


@lru_cache(maxsize=4096)
def _is_loop_of_numpy(op: str, args: tuple[str, ...], result: str) -> bool:
    """Whether NumPy has ``op`` on just these dtypes: kernels rely on it, down to element sizes."""
    row = ops.TABLE[op]
    if row.converts:
        return True
    if row.dtypes:
        return (*args, result) == row.dtypes
    if op == "where":
        return args[1] == args[2] == result
    if not row.has_loops:  # of our own, on floats
        return {*args, result} in ({"float64"}, {"float32"})
    if row.integral and np.dtype(result).kind not in "iu":
        return False
    kinds = tuple(map(np.dtype, (*args, result)))
    try:
        loop = row.loop_for(kinds[:-1])
        return loop[-1] == kinds[-1] if row.separate else loop == kinds
    except TypeError:
        return False


def _types_fit(sweep: Sweep) -> bool:
    dtypes = [value.dtype for value in sweep.types]
    return all(
        _is_loop_of_numpy(s.op, tuple([dtypes[arg] for arg in s.args]), s.type.dtype)
        for s in _elementwise(sweep)
    )


def _scalars_are_small(sweep: Sweep) -> bool:
    return all(len(value.row) <= MOST_OPERAND_EXTENTS for value in sweep.scalars)


def _rows_broadcast(sweep: Sweep) -> bool:
    """In every slot NumPy's rule; but a vector has to be made a column to go with a table."""
    return all(
        _broadcast_rows(sweep, step.args, step.type.row)
        for step in sweep.steps
        if isinstance(step, Combination) or step.op in ops.TABLE
    )


def _broadcast_rows(sweep: Sweep, args: tuple[int, ...], result: Row) -> bool:
    rows = {sweep.types[arg].row for arg in args}
    vectors = any(not sweep.types[arg].row and arg not in sweep.constants for arg in args)
    widths = rows - {(), (1,)}
    if rows <= {()}:  # a number may be that of all elements of a table
        return not result if vectors else len(result) <= 1
    return not vectors and len(result) == 1 and result in (widths or {(1,)}) and len(widths) <= 1


def _row_types_fit(sweep: Sweep) -> bool:
    types = sweep.types
    return all(
        row_ops.fits(row_ops.TABLE[s.op], tuple([types[arg] for arg in s.args]), s.params, s.type)
        for s in sweep.row_steps
    )


def _is_scalar(sweep: Sweep, value: int) -> bool:
    return len(sweep.inputs) <= value < len(sweep.inputs) + len(sweep.scalars)


def _operands_are_held(sweep: Sweep) -> bool:
    wanted = [(s.args, row_ops.TABLE[s.op].held) for s in sweep.row_steps]
    wanted += [(r.args, REDUCERS[r.op].held) for r in sweep.reductions]
    return all(_is_scalar(sweep, arg) for args, held in wanted for arg in args[len(args) - held :])


def _own_arguments_are_rows(sweep: Sweep) -> bool:
    """What is not held by the client has at most one extent in a slot."""
    used = [s.args[: len(s.args) - row_ops.TABLE[s.op].held] for s in sweep.row_steps]
    used += [r.args[: len(r.args) - REDUCERS[r.op].held] for r in sweep.reductions]
    return all(len(sweep.types[arg].row) <= 1 for args in used for arg in args) and all(
        len(value.row) <= 1 for value in sweep.stored
    )


def _axes_exist(sweep: Sweep) -> bool:
    return all(
        r.axis is None
        or (r.axis == 0 and REDUCERS[r.op].is_public and len(sweep.types[r.args[0]].row) == 1)
        for r in sweep.reductions
    )


def _lists_are_lists(sweep: Sweep) -> bool:
    lists = [sweep.types[r.args[1]] for r in _listed_reductions(sweep)]
    return all(value.dtype == "int64" and len(value.row) == 1 for value in lists)


def _bins_are_counted(sweep: Sweep) -> bool:
    """Integers are, or values between edges, in some bins; and their weights are float64."""
    for reduction in sweep.reductions:
        kinds = [sweep.types[arg] for arg in reduction.args]
        if (reduction.op in _COUNTING) != (reduction.bins > 0):
            return False
        if not reduction.bins:
            continue
        if REDUCERS[reduction.op].held:
            if kinds.pop().row != (reduction.bins + 1,):
                return False
        elif np.dtype(kinds[0].dtype).kind not in "iu":
            return False
        if kinds[0].row or any(one != _WEIGHT for one in kinds[1:]):
            return False
    return True


_COUNTING = ("bincount", "weighted_bincount", "histogram", "weighted_histogram")
_WEIGHT = ValueType("float64")

RULES: tuple[tuple[str, Callable[[Sweep], bool]], ...] = (
    (f"dtypes are one of {', '.join(DTYPES)}", _dtypes_exist),
    (
        "every step is an op of the op table, a row op, or a combination",
        lambda s: all(step.op in ops.TABLE or step.op in row_ops.TABLE for step in _plain(s)),
    ),
    ("every step has as many arguments as its op takes", _arities_fit),
    ("every step has as many parameters as its op takes", _params_fit),
    ("arguments of a step are values before it", _args_come_first),
    ("outputs and reductions name values of the sweep", _values_exist),
    ("reductions are known", lambda s: all(r.op in REDUCERS for r in s.reductions)),
    (
        "every reduction has as many values as it takes",
        lambda s: all(len(r.args) == REDUCERS[r.op].arity for r in s.reductions),
    ),
    ("inner products are of two values of one float dtype", _factors_fit),
    ("steps have the dtypes of NumPy's loop for their op", _types_fit),
)

COMBINATION_RULES: tuple[tuple[str, Callable[[Sweep], bool]], ...] = (
    (
        "combinations start once, and each link has the operands of its op",
        lambda s: all(map(is_well_formed, s.combinations)),
    ),
    ("combinations scale and add inputs, by runtime scalars", _vectors_are_inputs),
    ("combinations are of values of one float dtype", _combined_types_fit),
)

ROW_RULES: tuple[tuple[str, Callable[[Sweep], bool]], ...] = (
    ("scalars have rows of two extents at most", _scalars_are_small),
    (
        "rows are broadcast to that of the result, but vectors are not",
        _rows_broadcast,
    ),
    ("row ops have arguments, parameters and results that they take", _row_types_fit),
    ("matrices, and lists of slots or columns, are runtime scalars", _operands_are_held),
    ("what has a value in each slot has rows of one extent at most", _own_arguments_are_rows),
    ("reductions are of all elements, or of rows of shape (k,) along axis 0", _axes_exist),
    ("lists of slots are int64 scalars of shape (m,)", _lists_are_lists),
    ("integers, or values between edges, are counted, and weights are float64", _bins_are_counted),
)


def verify_sweep(sweep: Sweep) -> None:
    """Raise ``InvalidProgram`` naming the first rule that ``sweep`` breaks.

    It is looked at once, however many servers of this process run it.
    """
    if sweep in _legal:
        return
    _verify(sweep, RULES)
    if any(step.op == COMBINE for step in sweep.steps):
        _verify(sweep, COMBINATION_RULES)
    if _has_rows(sweep):
        _verify(sweep, ROW_RULES)
    _legal.add(sweep)


_legal: WeakSet[Sweep] = WeakSet()


def _verify(sweep: Sweep, rules: tuple[tuple[str, Callable[[Sweep], bool]], ...]) -> None:
    for rule, holds in rules:
        if not holds(sweep):
            raise InvalidProgram(f"a sweep breaks the rule {rule!r}:\n{sweep}")


def _has_rows(sweep: Sweep) -> bool:
    """Whether there is more than numbers in each slot, and reductions of all of them to one."""
    return (
        any(value.row for value in sweep.types)
        or any(step.op not in ops.TABLE and step.op != COMBINE for step in sweep.steps)
        or any(r.axis is not None or r.bins or REDUCERS[r.op].layout for r in sweep.reductions)
    )


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


def _scalar_value(call: SweepCall, value: int) -> Any:
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
    lists += [r.args[1] for r in _listed_reductions(sweep)]
    return all(_all_below(_scalar_value(call, value), call.space.length) for value in lists)


def _columns_exist(call: SweepCall) -> bool:
    sweep = call.sweep
    columns = [(s.args, row_ops.TABLE[s.op].columns) for s in sweep.row_steps]
    return all(
        _all_below(_scalar_value(call, args[place]), sweep.types[args[0]].row[0])
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


def verify_calls(calls: Sequence[SweepCall]) -> list[int]:
    """Raise ``InvalidProgram`` for calls of legal sweeps that do not fit together.

    Returns their donors. Of a call that takes, and gives away, whole buffers by number alone, a
    server finds out the rest when it looks for these. What is read through a view must be there for
    all calls: servers fetch it from one another at any time while they run the program.
    """
    donors: dict[int, None] = {}  # in order
    written: set[int] = set()
    for call in calls:
        if call.donors or call.views or call.sweep.takes_rows:
            verify_call(call)
        for number in call.inputs:
            if number in donors:
                raise InvalidProgram(f"buffer {number} is read after its memory was given away")
        for number in call.outputs:
            if number in written:
                raise InvalidProgram(f"buffer {number} is written twice by the program")
            written.add(number)
        for number in call.donors:
            if number in donors:
                raise InvalidProgram(f"buffer {number} gives its memory away twice")
            if number in written:
                raise InvalidProgram(f"buffer {number} is made and given away by one program")
            donors[number] = None
    for number in sorted({number for call in calls for number in call.sources}):
        if number in written or number in donors:
            raise InvalidProgram(
                f"buffer {number} is read through a view, and made or given away by the same "
                f"program"
            )
    return list(donors)


def verify(program: Program) -> None:
    """Raise ``InvalidProgram`` naming the first rule that ``program`` breaks."""
    for call in program.calls:
        verify_sweep(call.sweep)
        verify_call(call)
    verify_calls(program.calls)
