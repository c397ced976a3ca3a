"""Signatures of functions on rows that no row program stands for: plug-ins.

    w: rows float32[k], gradient: each float32[k], keys, step: number float64 -> w, norms: float64

Rows of an array of the space, a row that comes along with each key, the keys, and numbers; then the
arrays whose rows it replaces, and what it returns per key. A letter stands for any length of rows,
the same one wherever it stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ps_backend.program.types import ValueType, dtype_of

ROWS, EACH, NUMBER, KEYS = "rows", "each", "number", "keys"
KINDS = (ROWS, EACH, NUMBER, KEYS)
MOST_ARGUMENTS = 64
"""Arguments and results of one signature."""

_WORD = r"[A-Za-z_]\w{0,99}"
_TYPE = r"(?P<dtype>\w+?)(?:\[(?P<row>\d{1,9}|[a-z])\])?"
_ARGUMENT = re.compile(rf"(?P<name>{_WORD})\s*:\s*(?P<kind>rows|each|number)\s+{_TYPE}", re.ASCII)
_RESULT = re.compile(rf"(?P<name>{_WORD})(?:\s*:\s*{_TYPE})?", re.ASCII)
_KEYS_TYPE = "int64"


@dataclass(frozen=True, slots=True)
class RowType:
    """A dtype, and how many elements a row has: so many, as many as a letter says, or one."""

    dtype: str
    row: int | str | None = None

    @classmethod
    def of(cls, type: ValueType) -> RowType:
        """That of one type of value alone."""
        return cls(type.dtype, type.row[0] if type.row else None)

    def __str__(self) -> str:
        return self.dtype if self.row is None else f"{self.dtype}[{self.row}]"

    def fits(self, type: ValueType, lengths: dict[str, int]) -> bool:
        """Whether it is one of ``type``; notes what its letter stands for."""
        if type.dtype != self.dtype or len(type.row) != (self.row is not None):
            return False
        if isinstance(self.row, str):
            return lengths.setdefault(self.row, type.row[0]) == type.row[0]
        return self.row is None or type.row == (self.row,)

    def resolved(self, lengths: Mapping[str, int]) -> ValueType:
        """The type, where letters stand for ``lengths``."""
        if self.row is None:
            return ValueType(self.dtype)
        return ValueType(
            self.dtype, (lengths[self.row] if isinstance(self.row, str) else self.row,)
        )


@dataclass(frozen=True, slots=True)
class Argument:
    """What a function gets: one of ``KINDS``."""

    name: str
    kind: str
    type: RowType

    def __str__(self) -> str:
        return KEYS if self.kind == KEYS else f"{self.name}: {self.kind} {self.type}"


@dataclass(frozen=True)
class Signature:
    """What a function gets, which arrays it gives new rows, and what it returns."""

    arguments: tuple[Argument, ...]
    updates: tuple[str, ...] = ()
    returns: tuple[tuple[str, RowType], ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, Argument]:
        """The arguments by their names."""
        return {one.name: one for one in self.arguments}

    @cached_property
    def results(self) -> tuple[str, ...]:
        """The names of what it makes: first new rows, then what it returns."""
        return (*self.updates, *(name for name, _ in self.returns))

    def names(self, kind: str) -> list[str]:
        """The arguments of one kind, in order."""
        return [one.name for one in self.arguments if one.kind == kind]

    def bind(self, types: Mapping[str, ValueType], what: str) -> tuple[ValueType, ...]:
        """The types of its results if the arguments, by name, are of ``types``.

        ``TypeError`` that names ``what`` if they are none that it takes.
        """
        lengths: dict[str, int] = {}
        for one in self.arguments:
            if not one.type.fits(types[one.name], lengths):
                letter = f" ({one.type.row} = {lengths[one.type.row]})" if (
                    isinstance(one.type.row, str) and one.type.row in lengths
                ) else ""  # fmt: skip
                raise TypeError(
                    f"{what}: {one.name} is to be {one.kind} {one.type}{letter}, and is "
                    f"{RowType.of(types[one.name])}"
                )
        return (
            *(types[name] for name in self.updates),
            *(type.resolved(lengths) for _, type in self.returns),
        )

    def __str__(self) -> str:
        results = [*self.updates, *(f"{name}: {type}" for name, type in self.returns)]
        return f"{', '.join(map(str, self.arguments))} -> {', '.join(results)}"

    @classmethod
    def parsed(cls, text: str) -> Signature:
        """Of a text as above. ``ValueError`` or ``TypeError`` that quotes what is wrong in it."""
        before, arrow, after = text.partition("->")
        if not arrow:
            raise ValueError(f"a signature is 'arguments -> results', got {text[:200]!r}")
        arguments = [_parse_argument(part.strip()) for part in _parts(before)]
        updates, returns = [], []
        for part in _parts(after):
            found = _RESULT.fullmatch(part.strip())
            if found is None:
                raise ValueError(
                    f"{part.strip()[:100]!r}: a result is 'w', for new rows of an argument, or "
                    f"'norms: float64', for a returned array"
                )
            if found["dtype"] is None:
                updates.append(found["name"])
            else:
                returns.append((found["name"], _type(found["dtype"], found["row"])))
        made = cls(tuple(arguments), tuple(updates), tuple(returns))
        made.verify()
        return made

    def verify(self) -> None:
        """Raise ``ValueError`` unless its parts fit together."""
        names = [one.name for one in self.arguments]
        made = [*names, *(name for name, _ in self.returns)]
        if len(set(made)) < len(made) or len(set(self.updates)) < len(self.updates):
            raise ValueError(f"a name is there twice in {self}")
        if len(made) > MOST_ARGUMENTS:
            raise ValueError(f"a function has at most {MOST_ARGUMENTS} arguments and results")
        rows = self.names(ROWS)
        for name in self.updates:
            if name not in rows:
                raise ValueError(f"{name} is updated, so let it be an argument '{name}: rows ...'")
        letters = {one.type.row for one in self.arguments}
        for name, type in self.returns:
            if isinstance(type.row, str) and type.row not in letters:
                raise ValueError(f"{name}: {type}, and no argument says how many {type.row} is")
        if any(one.kind == NUMBER and one.type.row is not None for one in self.arguments):
            raise ValueError(f"a number has no row: {self}")
        if not made or not self.results:
            raise ValueError("a function of rows gets something, and makes something")


def _parts(text: str) -> Sequence[str]:
    return text.split(",") if text.strip() else ()


def _parse_argument(text: str) -> Argument:
    if text == KEYS:
        return Argument(KEYS, KEYS, RowType(_KEYS_TYPE))
    found = _ARGUMENT.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text[:100]!r}: an argument is 'w: rows float32[k]', 'g: each float32[k]', "
            f"'step: number float64', or 'keys'"
        )
    return Argument(found["name"], found["kind"], _type(found["dtype"], found["row"]))


def _type(dtype: str, row: str | None) -> RowType:
    dtype_of(dtype)
    if row is None:
        return RowType(dtype)
    return RowType(dtype, int(row) if row.isdigit() else row)
