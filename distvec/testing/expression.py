"""Random expressions: functions to compare between NumPy and servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st

from distvec.testing.operations import ELEMENTWISE, Operation

_TESTS = frozenset(
    "equal not_equal less less_equal greater greater_equal isfinite isnan isinf".split()
) | {f"logical_{name}" for name in ("and", "or", "xor", "not")}

EXACT = tuple(one for one in ELEMENTWISE if one.ulps == 0 and one.name not in _TESTS)
"""From floats to floats, with NumPy's bits."""


@dataclass(frozen=True)
class Expression:
    """A function of ``arity`` vectors, made of steps that each use any value before them."""

    arity: int
    steps: Sequence[tuple[Operation, tuple[int, ...]]]
    """Operations, and which values they are of: the arguments, then the results of steps."""

    def __call__(self, *arguments: Any) -> Any:
        """The last step's result."""
        if len(arguments) != self.arity:
            raise TypeError(f"{self!r} takes {self.arity} arguments, got {len(arguments)}")
        values = list(arguments)
        for operation, operands in self.steps:
            values.append(operation(*(values[number] for number in operands)))
        return values[-1]

    def __repr__(self) -> str:
        lines = [
            f"v{number} = {operation}({', '.join(f'v{k}' for k in operands)})"
            for number, (operation, operands) in enumerate(self.steps, self.arity)
        ]
        return f"({', '.join(f'v{k}' for k in range(self.arity))}): {'; '.join(lines)}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How Hypothesis prints a failing example."""
        printer.text(repr(self))


@st.composite
def expressions(
    draw: st.DrawFn,
    arity: int = 2,
    *,
    max_steps: int = 8,
    operations: Sequence[Operation] = EXACT,
) -> Expression:
    """Expressions of ``arity`` vectors with shared parts.

    By default of operations from floats to floats whose elements have NumPy's bits.
    """
    steps: list[tuple[Operation, tuple[int, ...]]] = []
    for count in range(arity, arity + draw(st.integers(1, max_steps))):
        operation = draw(st.sampled_from(operations))
        numbers = st.lists(
            st.integers(0, count - 1), min_size=operation.arity, max_size=operation.arity
        )
        steps.append((operation, tuple(draw(numbers))))
    return Expression(arity, steps)
