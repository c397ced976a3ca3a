"""Row programs on the rows of chosen keys: keys as users have them, how rows travel, and calls of
row functions and plug-ins.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from distvec.array.array import DistArray
from distvec.array.core.handle import Handle
from distvec.array.core.handle import SessionBase as Session
from distvec.diagnostics.profile import measured
from distvec.graph.build import check_dtype
from distvec.rows.api import Plugin, RowFunction
from distvec.rows.tracer import Keys, Kind, Number, PerKey, RowsOf, number_kind
from ps_backend.client import WIRES, KeyBatch, KeySpace, KeyView
from ps_backend.program.initializers import Fill
from ps_backend.program.keys import check_keys, hash_texts, hash_tuples
from ps_backend.program.row_program import SCATTERS, RowProgram, own_program
from ps_backend.program.sweep import Scalar
from ps_backend.program.types import Row, ValueType, dtype_of
from ps_backend.program.user_signatures import EACH, KEYS, NUMBER, ROWS, Signature

OFF = "off"
"""Rows travel as they are."""


def chosen_wire(kind: str | None, row: Row | None = None) -> str:
    """One of ``WIRES``, or empty for as they are: ``None`` and ``"off"``.

    ``row``: the shape of a row, where all of them have one. ``ValueError`` for what there is not.
    """
    if kind is None or kind == OFF:
        return ""
    if kind not in WIRES:
        names = ", ".join(WIRES)
        raise ValueError(f"wire must be one of {names}, or {OFF}, got {kind!r}")
    if kind == "int8" and row == ():
        raise ValueError(
            "wire='int8' needs a table, as it has a scale for each row; for a vector use "
            "'float16' or 'off'"
        )
    return kind


KeyArray = npt.NDArray[np.int64]


def as_keys(given: Any) -> KeyArray:
    """The int64 keys that ``given`` are, in its order; shape ``(n,)``.

    Integers are keys themselves: an array, a list, a pandas or Arrow column, an array on the
    servers, which is read (one message). Strings, and tuples of strings and integers, become 64-bit
    hashes. ``TypeError`` for anything else, ``ValueError`` for what is not one list.
    """
    if isinstance(given, Handle):
        given = np.asarray(given)
    if isinstance(given, str | bytes | int):
        raise TypeError(f"keys must be a list or an array, got {given!r}; write [{given!r}]")
    first = _first(given)
    try:
        if isinstance(first, str):
            return hash_texts(given)
        if isinstance(first, tuple):
            return hash_tuples(given)
        return check_keys(given)
    except TypeError as error:
        raise TypeError(_wrong_kind(given) or str(error)) from None


def length_of_range(keys: Any) -> int:
    """The n of ``range(n)``; ``TypeError`` for anything else, ``ValueError`` for an empty one."""
    if not isinstance(keys, range) or (keys.start, keys.step) != (0, 1):
        raise TypeError(
            f"among must be range(n), for keys 0 to n - 1, or left out for any keys, got {keys!r}"
        )
    if not keys:
        raise ValueError("ps.keys(range(0)) would have no keys; leave the range out for any keys")
    return len(keys)


_KINDS_OF_KEYS = {"an integer": int | np.integer, "a string": str, "a tuple": tuple}


def _wrong_kind(given: Any) -> str:
    """What is said of a list with keys of several kinds, or of none that keys have."""
    if isinstance(given, np.ndarray):
        given = given.tolist() if given.dtype == object and given.ndim == 1 else None
    if not isinstance(given, list | tuple):
        return ""
    kinds = list(map(_kind_of_key, given))
    wrong = next(
        (k for k, kind in enumerate(kinds) if kind != kinds[0] or kind not in _KINDS_OF_KEYS), None
    )
    if wrong is None:
        return ""
    beside = f", and keys[0] is {given[0]!r}, {kinds[0]}" if wrong else ""
    return (
        f"keys[{wrong}] is {given[wrong]!r}, {kinds[wrong]}{beside}; keys are integers, strings, "
        "or tuples of these, all of one kind: write for instance [str(key) for key in keys]"
    )


def _kind_of_key(key: Any) -> str:
    found = (name for name, kinds in _KINDS_OF_KEYS.items() if isinstance(key, kinds))
    return next(found, f"a {type(key).__name__}")


def _first(given: Any) -> Any:
    """The first key of a list of any objects; None of an array of numbers."""
    if isinstance(given, np.ndarray) and given.dtype.kind != "O":
        return given.item(0) if given.dtype.kind == "U" and given.size else None
    return next(iter(given), None) if hasattr(given, "__iter__") else None


_KINDS: Mapping[str, type[Kind]] = {ROWS: RowsOf, EACH: PerKey, NUMBER: Number, KEYS: Keys}


@dataclass(frozen=True)
class PluginCall:
    """One call, ready to be sent."""

    program: RowProgram
    arrays: tuple[str, ...]
    """The arguments whose rows it gets."""
    given: Mapping[str, npt.NDArray[Any]]
    """What comes along with each key, by argument."""
    scalars: tuple[Scalar, ...]

    @property
    def several(self) -> bool:
        """Whether it returns a tuple."""
        return len(self.program.returns) > 1


def bind_arguments(
    signature: Signature, args: tuple[Any, ...], named: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """Arguments by name, but for the keys. ``TypeError`` that says what the function takes."""
    usual = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [one.name for one in signature.arguments if one.kind != KEYS]
    try:
        return dict(
            inspect.Signature([inspect.Parameter(name, usual) for name in names])
            .bind(*args, **named)
            .arguments
        )
    except TypeError as error:
        raise TypeError(f"{what} ({signature}): {error}") from None


def plugin_call(
    plugin: str, signature: Signature, arguments: Mapping[str, Any], kinds: Mapping[str, Kind]
) -> PluginCall:
    """Of ``arguments`` of ``kinds``, by name. ``TypeError`` for what the plug-in does not take."""
    types: dict[str, ValueType] = {}
    given: dict[str, npt.NDArray[Any]] = {}
    scalars: dict[str, Scalar] = {}
    for one in signature.arguments:
        kind = Keys() if one.kind == KEYS else kinds[one.name]
        if not isinstance(kind, _KINDS[one.kind]):
            raise TypeError(f"{plugin} takes {one}, but {one.name} is {kind}")
        dtype = dtype_of(one.type.dtype)
        match kind:
            case RowsOf():
                types[one.name] = ValueType(kind.dtype, kind.row)
            case PerKey():
                given[one.name] = rows = _cast_argument(
                    dtype, arguments[one.name], one.name, plugin
                )
                types[one.name] = ValueType(dtype.name, rows.shape[1:])
            case Number():
                value = _cast_argument(dtype, arguments[one.name], one.name, plugin)
                if value.shape:
                    raise TypeError(
                        f"{plugin}: {one.name} must be a number, got shape {value.shape}"
                    )
                scalars[one.name] = value.item()
                types[one.name] = ValueType(dtype.name)
            case Keys():
                types[one.name] = ValueType("int64")
    program = own_program(plugin, signature, types)
    rows_of, each, numbers = (signature.names(kind) for kind in (ROWS, EACH, NUMBER))
    return PluginCall(
        program,
        tuple(rows_of),
        {name: given[name] for name in each},
        tuple(scalars[name] for name in numbers),
    )


def _cast_argument(dtype: np.dtype[Any], value: Any, name: str, plugin: str) -> npt.NDArray[Any]:
    """``value`` in ``dtype``; ``TypeError`` where that would lose more than digits."""
    found = np.asarray(value)
    plain = np.result_type(value) if isinstance(value, int | float) else found.dtype
    if not np.can_cast(plain, dtype, "same_kind"):
        raise TypeError(f"{plugin}: {name} must be {dtype}, got {found.dtype}")
    return found.astype(dtype)


class Space(Protocol):
    """A keyed space, as its arrays know it."""

    session: Session
    remote: KeySpace
    number: int
    arrays: weakref.WeakValueDictionary[int, Any]

    def __len__(self) -> int: ...

    def array(self, row: Row, fill: Fill, dtype: Any) -> Any:
        """Another array of the space."""

    def frozen(self, *arrays: Any) -> list[DistArray]:
        """Arrays as they are at one moment, as plain ones."""

    def assign(self, array: Any, values: Any) -> None:
        """Let ``array`` have ``values`` for all keys."""


@dataclass(frozen=True)
class ChosenKeys:
    """Keys of a space, on whose rows row programs run; servers may know them by a ``view``."""

    space: Space
    batch: KeyBatch
    view: KeyView | None = None

    @classmethod
    def of(cls, space: Space, keys: Any) -> ChosenKeys:
        """``keys`` as users have them."""
        return cls(space, KeyBatch.of(as_keys(keys)))

    def run(
        self,
        program: RowProgram,
        arrays: Sequence[int] = (),
        given: Sequence[npt.NDArray[Any]] = (),
        scalars: Sequence[Scalar] = (),
        *,
        combine: str = "add",
        find: bool = False,
        wire: str = "",
        spaces: Sequence[int] = (),
    ) -> tuple[list[npt.NDArray[Any]], npt.NDArray[np.bool_] | None]:
        """As ``KeySpace.run``: one message to each holder; all rows are of the different keys.

        ``given``: with a row for each key, of which those of a key that repeats are joined.
        """
        joined = [self.batch.combined(rows, combine) for rows in given]
        if self.space.session.make_room is not None:
            self.space.session.make_room()
        with measured(self.space.session.counters):
            return self.space.remote.run(
                program, arrays, self.batch, joined, scalars,
                find=find, view=self.view, wire=wire, spaces=spaces,
            )  # fmt: skip

    def apply(
        self,
        function: RowFunction | Plugin,
        args: tuple[Any, ...],
        named: Mapping[str, Any],
        *,
        combine: str,
        wire: str | None,
    ) -> Any:
        """As ``KeyedSpace.apply``."""
        if combine not in SCATTERS:
            raise ValueError(f"combine must be one of {', '.join(SCATTERS)}, got {combine!r}")
        kind = chosen_wire(wire)
        call = _call(self.space, function, self.batch, args, named)
        returned, _ = self.run(
            call.program, call.arrays, call.given, call.scalars,
            combine=combine, wire=kind, spaces=call.spaces,
        )  # fmt: skip
        found = tuple(self.batch.expanded(rows) for rows in returned)
        return found if call.several else found[0] if found else None


@dataclass(frozen=True)
class _Call:
    """A row program, the numbers of its arrays, what comes along per key, and its scalars."""

    program: RowProgram
    arrays: list[int]
    spaces: list[int]
    """Of each array, by number; none if all are of the space that is asked."""
    given: list[npt.NDArray[Any]]
    scalars: tuple[Scalar, ...]
    several: bool


def _call(
    space: Space,
    function: RowFunction | Plugin,
    batch: KeyBatch,
    args: tuple[Any, ...],
    named: Mapping[str, Any],
) -> _Call:
    if isinstance(function, RowFunction):
        arguments = function.bound(args, named)
        traced = function.trace(**_kinds(space, arguments, batch))
        program = traced.program
        given = [
            np.asarray(arguments[name], type.dtype)
            for name, type in zip(traced.given, program.given, strict=True)
        ]
        arrays = [arguments[name] for name in traced.arrays]
        numbers, spaces = [one.number for one in arrays], _spaces(space, arrays)
        scalars = traced.scalars(arguments)
        return _Call(program, numbers, spaces, given, scalars, traced.several)
    if not isinstance(function, Plugin):
        raise TypeError(f"{function!r} is not a row function; decorate it with @dv.rows")
    name = function.name
    signature = space.remote.plugin(name)
    arguments = bind_arguments(signature, args, named, name)
    own = plugin_call(name, signature, arguments, _kinds(space, arguments, batch))
    arrays = [arguments[one] for one in own.arrays]
    if _spaces(space, arrays):
        raise ValueError(
            f"{name} gets arrays of several keyed spaces; a plug-in takes arrays of one: pass "
            "arrays of this space, or write a function with @dv.rows"
        )
    numbers = [one.number for one in arrays]
    return _Call(own.program, numbers, [], [*own.given.values()], own.scalars, own.several)


def _spaces(space: Space, arrays: Sequence[Any]) -> list[int]:
    """The numbers of the spaces of arrays; none if all are ``space``."""
    found = [one.space.number for one in arrays]
    return found if any(number != space.number for number in found) else []


def _kinds(space: Space, arguments: Mapping[str, Any], batch: KeyBatch) -> dict[str, Kind]:
    return {name: _kind(space, name, value, batch) for name, value in arguments.items()}


def _kind(space: Space, name: str, value: Any, batch: KeyBatch) -> Kind:
    if hasattr(value, "space") and hasattr(value, "number"):
        others = value.space
        if others.session != space.session or others.remote.partition != space.remote.partition:
            raise ValueError(
                f"{name} belongs to another session, or its keys are shared out otherwise; pass "
                "arrays of this space, or of others that were made like it: ps.keys()"
            )
        return RowsOf(value.type.dtype, value.type.row)
    shape = np.shape(value)
    if not shape or (len(shape) == 2 and shape[0] != batch.count):
        return number_kind(name, value)
    if shape[0] != batch.count:
        raise ValueError(
            f"{name} has {shape[0]} rows for {batch.count} keys; pass one row for each key"
        )
    return PerKey(check_dtype(np.asarray(value).dtype).name, shape[1:])
