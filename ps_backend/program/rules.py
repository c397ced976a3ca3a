"""The rules that every program keeps, each as what must hold and a test of it.

Servers ask them of all that comes, kernels of what they are to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from ps_backend.errors import InvalidProgram
from ps_backend.program import ops
from ps_backend.program.combination import Link, is_well_formed
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.sweep import Program, Step, Sweep, SweepCall
from ps_backend.program.types import DTYPES, FLOATS


def _args_come_first(sweep: Sweep) -> bool:
    first = len(sweep.inputs) + len(sweep.scalars)
    return all(
        0 <= arg < number for number, step in enumerate(sweep.steps, first) for arg in step.args
    )


def _plain(sweep: Sweep) -> Iterator[Step]:
    return (step for step in sweep.steps if isinstance(step, Step))


def _arities_fit(sweep: Sweep) -> bool:
    return all(len(step.args) == ops.TABLE[step.op].arity for step in _plain(sweep))


def _values_exist(sweep: Sweep) -> bool:
    count = len(sweep.inputs) + len(sweep.scalars) + len(sweep.steps)
    reduced = (value for reduction in sweep.reductions for value in reduction.args)
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
    kinds = [[sweep.types[arg].dtype for arg in r.args] for r in sweep.reductions if r.op == "dot"]
    return all(first == second and first in FLOATS for first, second in kinds)


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
    if row.integral and not result.startswith("int"):
        return False
    kinds = tuple(map(np.dtype, (*args, result)))
    try:
        loop = row.loop_for(kinds[:-1])
        return loop[-1] == kinds[-1] if row.separate else loop == kinds
    except TypeError:
        return False


def _types_fit(sweep: Sweep) -> bool:
    types = sweep.types
    return all(
        _is_loop_of_numpy(s.op, tuple([types[arg].dtype for arg in s.args]), s.type.dtype)
        for s in _plain(sweep)
    )


def _rows_are_one(sweep: Sweep) -> bool:
    arrays = (*sweep.inputs, *(step.type for step in sweep.steps))
    return len({value.row for value in arrays}) <= 1


def _axes_exist(sweep: Sweep) -> bool:
    return all(
        r.axis is None or (r.axis in (0, 1) and len(sweep.types[r.args[0]].row) == 1)
        for r in sweep.reductions
    )


RULES: tuple[tuple[str, Callable[[Sweep], bool]], ...] = (
    (f"dtypes are one of {', '.join(DTYPES)}", lambda s: all(t.dtype in DTYPES for t in s.types)),
    (
        "every step is an op of the op table, or a combination",
        lambda s: all(step.op in ops.TABLE for step in _plain(s)),
    ),
    ("every step has as many arguments as its op takes", _arities_fit),
    ("arguments of a step are values before it", _args_come_first),
    ("outputs and reductions name values of the sweep", _values_exist),
    ("reductions are known", lambda s: all(r.op in REDUCERS for r in s.reductions)),
    (
        "every reduction has as many values as it takes",
        lambda s: all(len(r.args) == REDUCERS[r.op].arity for r in s.reductions),
    ),
    ("inner products are of two values of one float dtype", _factors_fit),
    (
        "combinations start once, and each link has the operands of its op",
        lambda s: all(map(is_well_formed, s.combinations)),
    ),
    ("combinations scale and add inputs, by runtime scalars", _vectors_are_inputs),
    ("combinations are of values of one float dtype", _combined_types_fit),
    ("steps have the dtypes of NumPy's loop for their op", _types_fit),
    ("scalars have no row shape", lambda s: all(t.row == () for t in s.scalars)),
    ("all arrays have rows of one shape", _rows_are_one),
    ("reductions are of all elements, or of rows of shape (k,) along axis 0 or 1", _axes_exist),
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


def _has_index(call: SweepCall) -> bool:
    return any(view is not None and view.index for view in call.views)


_CALL_RULES: tuple[tuple[str, Callable[[SweepCall], bool]], ...] = (
    ("one buffer id per input", lambda c: len(c.inputs) == len(c.sweep.inputs)),
    ("one value per runtime scalar", lambda c: len(c.scalars) == len(c.sweep.scalars)),
    ("one buffer id per output", lambda c: len(c.outputs) == c.sweep.makes),
    ("no buffer is both read and written", lambda c: not set(c.inputs) & set(c.outputs)),
    ("one donor per output, or none at all", lambda c: len(c.donors) in (0, len(c.outputs))),
    ("no donor gives twice", lambda c: len(set(c.donors)) == len(c.donors)),
    ("donors are inputs of their outputs' type", _donors_fit),
    ("no buffer is written twice", lambda c: len(set(c.outputs)) == len(c.outputs)),
    ("one view per input, or none at all", lambda c: len(c.views) in (0, len(c.inputs))),
    ("views stay within their buffers", _views_fit),
    (
        "no indices where memory is given away: they may be out of range on one server only",
        lambda c: not (c.donors and _has_index(c)),
    ),
)


RUNS: Mapping[int | None, tuple[str, ...]] = MappingProxyType(
    {None: ("numba", "mixed", "numexpr"), 0: (), 1: ()}
)
"""By the axis of a reduction, the engines that have a kernel for it."""


def verify_engine(sweep: Sweep, engine: str) -> None:
    """Raise ``NotImplementedError`` naming the first reduction that ``engine`` cannot run."""
    for reduction in sweep.reductions:
        if engine not in RUNS[reduction.axis]:
            axes = ", ".join(f"axis={axis}" for axis, engines in RUNS.items() if engine in engines)
            raise NotImplementedError(
                f"no kernel computes {reduction.op} along axis={reduction.axis} yet; "
                f"supported: {axes} (all elements)"
            )


def verify_sweep(sweep: Sweep) -> None:
    """Raise ``InvalidProgram`` naming the first rule that ``sweep`` breaks."""
    for rule, holds in RULES:
        if not holds(sweep):
            raise InvalidProgram(f"a sweep breaks the rule {rule!r}:\n{sweep}")


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
