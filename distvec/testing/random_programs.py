"""The strategy of random programs: each instruction is tried on NumPy before it is taken."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np

from distvec.testing import instructions
from distvec.testing.error_bounds import Undecidable
from distvec.testing.instructions import Instruction, Machine, Program, bounded_machine
from distvec.testing.strategies import ELEMENTWISE, REDUCTIONS, Operation, lengths, scalars, vectors
from ps_backend.program.types import DTYPES

MOVEMENTS = (
    Operation("roll", 1, lambda x: np.roll(x, 3)),
    Operation("running_sum", 1, lambda x: np.cumsum(x) / (1.0 + len(x))),
    Operation("sorted", 1, lambda x: np.sort(x)),
    Operation("in_order_of", 2, lambda x, y: x[np.argsort(y, stable=True)]),
)
"""For which elements change place, and so server."""

COMBINATIONS = (
    Operation("axpy", 3, lambda s, x, y: s * x + y),
    Operation("mix", 2, lambda x, y: 0.5 * x - y / 4.0),
    Operation("project", 2, lambda x, y: x - ((x @ y) / (1.0 + y @ y)) * y),
    Operation("residual", 3, lambda x, y, z: (x - ((x @ y) / (1.0 + y @ y)) * y) @ (z + 0.5 * x)),
    Operation("normalise", 1, lambda x: x / (1.0 + np.linalg.norm(x))),
    Operation("cosine", 2, lambda x, y: (x @ y) / (1.0 + np.linalg.norm(x) * np.linalg.norm(y))),
)
"""What optimizers are made of: linear combinations whose coefficients are inner products."""

_ROW = np.array([0.5, -2.0, 1.0])

PIECES = (
    Operation("reverse", 1, lambda x: x[::-1].copy()),
    Operation("lagged", 2, lambda x, y: x[1:] @ y[:-1]),
    Operation("roughness", 1, lambda x: np.linalg.norm(x[2:] - 2.0 * x[1:-1] + x[:-2])),
    Operation("every_other", 2, lambda x, y: np.max(x[::2] - y[::2])),
    Operation("where_positive", 2, lambda x, y: np.sum(x[y > 0])),
    Operation("column", 2, lambda x, y: (x[:, None] * _ROW - y[:, None])[:, 1].copy()),
    Operation("rows", 1, lambda x: np.maximum(x[:, None] + _ROW, 0.0)[::-1, ::2][:, 1].copy()),
)
"""Slices, masks and tables, of which something of the length of the others is made, or a scalar."""

IN_PLACE = tuple(
    Operation(f"operator.{name}", 2, getattr(operator, name))
    for name in "iadd isub imul itruediv ifloordiv imod ipow".split()
)

_INTO = (np.add, np.subtract, np.multiply, np.divide, np.maximum)

Draft = Callable[[st.DrawFn, Machine, str], Instruction | None]
"""Draws an instruction that may bind the given new name; None where there is nothing to take."""


@st.composite
def programs(
    draw: st.DrawFn,
    *,
    min_length: int = 0,
    max_instructions: int = 24,
    special: bool = True,
    dtypes: Sequence[str] = DTYPES,
) -> Program:
    """Draw programs over a few vectors of one length, vectors of length 1, and scalars.

    They use all operations and reductions on shared subexpressions, with in-place updates,
    ``out=``, aliases, copies, deletions, pushes, pulls, and evaluations at any point.

    Parameters
    ----------
    min_length : int, default 0
        Smallest length of the vectors.
    max_instructions : int, default 24
        Largest number of instructions.
    special : bool, default True
        Whether inputs contain infinities, NaN and other special values.
    dtypes : sequence of str, optional
        Dtypes of the inputs that are not float64. Default: all dtypes of the servers.

    Returns
    -------
    Program
        A program, drawn by Hypothesis.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> from distvec.testing import assert_same_reads, programs, server_machine
    >>> @settings(max_examples=2, deadline=None, database=None)
    ... @given(programs(max_instructions=3))
    ... def test(program):
    ...     assert_same_reads(program, program.run(server_machine(ps)))
    >>> test()
    """
    length = draw(lengths(min_length))
    machine = bounded_machine()
    inputs = {}
    for name in ("a", "b", *"cd"[: draw(st.integers(0, 2))]):
        values = draw(_input(length, special, dtypes) if name in "cd" else vectors(length, **_TAME))
        inputs[name] = values
        machine.variables[name] = machine.array(values)
    least = draw(st.integers(1, max(1, max_instructions // 2)))
    drawn = draw(st.lists(_instruction(machine), min_size=least, max_size=max_instructions))
    return Program(inputs, [instruction for instruction in drawn if instruction is not None])


@st.composite
def _instruction(draw: st.DrawFn, machine: Machine) -> Instruction | None:
    """Draw an instruction and run it on ``machine``; None if its result is not certain."""
    instruction = draw(st.sampled_from(_DRAFTS))(draw, machine, _new_name(machine))
    if instruction is not None:
        try:
            machine.run(instruction)
        except Undecidable:
            return None
    return instruction


def _new_name(machine: Machine) -> str:
    """Return a name that no variable has; the name of a deleted one may return."""
    numbers = [int(name[1:]) for name in machine.variables if name.startswith("v")]
    return f"v{max(numbers, default=0) + 1}"


_TAME: dict[str, Any] = {"special": False, "scale": 100.0}


@st.composite
def _input(draw: st.DrawFn, length: int, special: bool, dtypes: Sequence[str]) -> Any:
    size = draw(st.sampled_from((length, length, length, 1)))
    dtype = draw(st.sampled_from(dtypes))
    if special and draw(st.booleans()):
        return draw(vectors(size, dtype))
    return draw(vectors(size, dtype, **_TAME))


# --- picking operands ---------------------------------------------------------------------------


def _names(machine: Machine, allowed: Callable[[Any], bool] = lambda array: True) -> list[str]:
    return [name for name, array in machine.variables.items() if allowed(array)]


def _is_vector(array: Any) -> bool:
    return len(array.shape) == 1


def _is_main(array: Any) -> bool:
    return _is_vector(array) and len(array) != 1


def _is_float(array: Any) -> bool:
    return bool(array.dtype.kind == "f")


def _pick(
    draw: st.DrawFn, machine: Machine, allowed: Callable[[Any], bool] = lambda array: True
) -> str | None:
    """A variable; one of those ``allowed`` if there is one."""
    names = _names(machine, allowed) or _names(machine)
    # Draw the first ones twice as often, so that programs meet their earlier results again.
    return draw(st.sampled_from(names[:2] + names)) if names else None


def _operand(draw: st.DrawFn, machine: Machine) -> Any:
    """A variable, or now and then a number."""
    if draw(st.integers(0, 4)) == 4:
        return draw(scalars())
    return _pick(draw, machine)


# --- one function for each kind of instruction --------------------------------------------------


def _elementwise(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    operation = draw(st.sampled_from(ELEMENTWISE))
    operands = [_pick(draw, machine)]
    operands += [_operand(draw, machine) for _ in range(operation.arity - 1)]
    operands = draw(st.permutations(operands))
    if None in operands or (operation.name == "pow" and not _has_float_base(machine, operands)):
        return None
    return instructions.Apply(new, operation, tuple(operands))


def _has_float_base(machine: Machine, operands: list[Any]) -> bool:
    """Whether the base is of floats: powers of integers are refused, as exponents are unknown."""
    return isinstance(operands[0], str) and _is_float(machine.value(operands[0]))


def _reduction(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    operation = draw(st.sampled_from(REDUCTIONS))
    if not _names(machine, _is_vector):
        return None
    operands = tuple(_pick(draw, machine, _is_vector) for _ in range(operation.arity))
    return instructions.Apply(new, operation, operands)


def _combination(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    operation = draw(st.sampled_from(COMBINATIONS))
    if not _names(machine, _is_main):
        return None
    operands = [_pick(draw, machine, _is_main) for _ in range(operation.arity)]
    if operation.name == "axpy":
        operands[0] = _pick(draw, machine, lambda array: not _is_vector(array))
    return instructions.Apply(new, operation, tuple(operands))


def _piece(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    operation = draw(st.sampled_from(PIECES + MOVEMENTS))
    if not _names(machine, _is_main):
        return None
    operands = tuple(_pick(draw, machine, _is_main) for _ in range(operation.arity))
    return instructions.Apply(new, operation, operands)


_SHIFTS: tuple[tuple[slice, slice], ...] = (
    (slice(1, None), slice(None, -1)),
    (slice(None, -2), slice(2, None)),
    (slice(1, -1), slice(1, -1)),
    (slice(None, None, 2), slice(None, None, 2)),
)


def _assign_part(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    if not _names(machine, _is_main):
        return None
    target, source, condition = (_pick(draw, machine, _is_main) or "" for _ in range(3))
    new_dtype, old_dtype = (machine.value(name).dtype for name in (source, target))
    if not np.can_cast(new_dtype, old_dtype, "same_kind"):
        return None
    if draw(st.booleans()):
        return instructions.AssignMask(target, source, condition)
    to, of = draw(st.sampled_from(_SHIFTS))
    return instructions.AssignSlice(target, to, source, of)


def _in_place(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    operation = draw(st.sampled_from(IN_PLACE))
    target, operand = _pick(draw, machine), _operand(draw, machine)
    if target is None or operand is None:
        return None
    if operation.name.endswith("pow") and not _has_float_base(machine, [target]):
        return None
    return instructions.InPlace(operation, target, operand)


def _draw_into(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    operands = (_pick(draw, machine), _operand(draw, machine))
    target = _pick(draw, machine, _is_vector)
    if target is None or None in operands:
        return None
    return instructions.Into(draw(st.sampled_from(_INTO)), operands, target)


def _assign_all(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    target, source = _pick(draw, machine, _is_vector), _pick(draw, machine)
    if target is None or source is None:
        return None
    dtype = machine.value(source).dtype
    # Other casts are done by NumPy in silence and refused by the servers.
    safe = np.can_cast(dtype, machine.value(target).dtype, "same_kind")
    return instructions.AssignAll(target, source) if safe else None


def _alias(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    source = _pick(draw, machine)
    return None if source is None else instructions.Alias(new, source)


def _copy(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    source = _pick(draw, machine)
    return None if source is None else instructions.Copy(new, source)


def _delete(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    name = _pick(draw, machine)
    return None if name is None else instructions.Delete(name)


def _indices(draw: st.DrawFn, machine: Machine, name: str) -> tuple[int, ...]:
    length = len(machine.value(name))
    return tuple(draw(st.lists(st.integers(-length, length - 1), min_size=1, max_size=6)))


def _is_not_empty(array: Any) -> bool:
    return _is_vector(array) and len(array) > 0


def _push(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    if not _names(machine, _is_not_empty):
        return None
    target = _pick(draw, machine, _is_not_empty) or ""
    indices = _indices(draw, machine, target)
    numbers = st.integers(-9, 9) if draw(st.booleans()) else st.floats(-100, 100)
    values = draw(st.lists(numbers, min_size=len(indices), max_size=len(indices)))
    return instructions.Push(target, indices, tuple(values))


def _pull(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    if not _names(machine, _is_not_empty):
        return None
    source = _pick(draw, machine, _is_not_empty) or ""
    return instructions.Pull(source, _indices(draw, machine, source))


def _draw_read(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    source = _pick(draw, machine)
    return None if source is None else instructions.Read(source)


def _evaluate(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    names = _names(machine)
    if not names:
        return None
    return instructions.Evaluate(
        tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=4)))
    )


def _flush(draw: st.DrawFn, machine: Machine, new: str) -> Instruction | None:
    return instructions.Flush()


_WEIGHTS: dict[Draft, int] = {
    _elementwise: 5,
    _combination: 5,
    _reduction: 3,
    _in_place: 3,
    _piece: 2,
    _assign_part: 2,
    _evaluate: 2,
    _draw_into: 1,
    _assign_all: 1,
    _alias: 1,
    _copy: 1,
    _delete: 1,
    _push: 1,
    _pull: 1,
    _draw_read: 1,
    _flush: 1,
}
_DRAFTS = [draft for draft, weight in _WEIGHTS.items() for _ in range(weight)]
