"""Linear combinations: many vectors, scalars and roundings as one step of a sweep.

A combination is a running value that vectors are added to, one after the other, each with a
coefficient. It says in what order the roundings come, and every link is rounded by itself, so its
bits are those of the same arithmetic in NumPy. Kernels have one loop for any number of vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ps_backend.program.types import ValueType

OP = "combine"
"""What the op table, which knows no combinations, is not asked for."""


@dataclass(frozen=True, slots=True)
class Link:
    """One operation on the running value: ``op`` is one of ``OPERANDS``.

    ``vector`` and ``scalar`` are values of the sweep. What starts or is added is the vector, times
    the scalar if there is one; it is taken ``negative`` where that is set.
    """

    op: str
    vector: int | None = None
    scalar: int | None = None
    negative: bool = False

    def renumbered(self, number: Mapping[int, int]) -> Link:
        """The same of other values."""
        vector = None if self.vector is None else number[self.vector]
        scalar = None if self.scalar is None else number[self.scalar]
        return Link(self.op, vector, scalar, self.negative)

    def __str__(self) -> str:
        factors = [f"%{value}" for value in (self.scalar, self.vector) if value is not None]
        sign = "-" if self.negative else _SIGNS.get(self.op, self.op)
        return f"{sign}{'*'.join(factors)}"


OPERANDS: Mapping[str, tuple[bool, bool | None, bool]] = MappingProxyType(
    {
        "start": (True, None, True),
        "add": (True, None, True),
        "scale": (False, True, False),
        "divide": (False, True, False),
        "shift": (False, True, True),
        "negate": (False, False, False),
    }
)
"""By op: whether it takes a vector, whether a scalar (None: as one likes), may be ``negative``."""

_SIGNS = {"start": "", "add": "+", "scale": "*", "divide": "/", "shift": "+"}


@dataclass(frozen=True, slots=True)
class Combination:
    """Links in order of rounding, all of the float dtype of ``type``."""

    links: tuple[Link, ...]
    type: ValueType

    @property
    def op(self) -> str:
        """As of other steps; no row of the op table."""
        return OP

    @property
    def args(self) -> tuple[int, ...]:
        """All values it is computed from, in order of use."""
        pairs = ((link.vector, link.scalar) for link in self.links)
        return tuple(value for pair in pairs for value in pair if value is not None)

    def renumbered(self, number: Mapping[int, int]) -> Combination:
        """The same of other values."""
        return Combination(tuple([link.renumbered(number) for link in self.links]), self.type)

    @property
    def vectors(self) -> int:
        """How many vectors it combines."""
        return sum(link.vector is not None for link in self.links)

    def __str__(self) -> str:
        return f"{OP}({', '.join(map(str, self.links))})"


def is_well_formed(combination: Combination) -> bool:
    """Whether it starts, once, and all links have the operands that their ops take."""
    starts = [link.op == "start" for link in combination.links]
    return starts == [True] + [False] * (len(starts) - 1) and all(map(_fits, combination.links))


def _fits(link: Link) -> bool:
    if link.op not in OPERANDS:
        return False
    vector, scalar, signed = OPERANDS[link.op]
    return (
        (link.vector is not None) == vector
        and scalar in (None, link.scalar is not None)
        and (signed or not link.negative)
    )
