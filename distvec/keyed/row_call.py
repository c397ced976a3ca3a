"""A row function, or a plug-in, on the rows of chosen keys: its arguments, how they travel, and the
result.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from distvec.array.core.handle import SessionBase as Session
from distvec.diagnostics.profile import measured
from distvec.graph.build import check_dtype
from distvec.rows.api import Plugin, RowFunction
from distvec.rows.tracer import Keys, Kind, Number, PerKey, RowsOf, number_kind
from ps_backend.client import WIRES, KeyBatch, KeySpace, KeyView
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
        raise ValueError("wire='int8' has a scale for each row, so it is of tables only")
    return kind


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
            raise TypeError(f"{plugin}: {one} is what it takes; {one.name} is {kind}")
        dtype = dtype_of(one.type.dtype)
        match kind:
            case RowsOf():
                types[one.name] = ValueType(kind.dtype, kind.row)
            case PerKey():
                given[one.name] = rows = _as(dtype, arguments[one.name], one.name, plugin)
                types[one.name] = ValueType(dtype.name, rows.shape[1:])
            case Number():
                value = _as(dtype, arguments[one.name], one.name, plugin)
                if value.shape:
                    raise TypeError(
                        f"{plugin}: {one.name} is to be a number, and has shape {value.shape}"
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


def _as(dtype: np.dtype[Any], value: Any, name: str, plugin: str) -> npt.NDArray[Any]:
    """``value`` in ``dtype``; ``TypeError`` where that would lose more than digits."""
    found = np.asarray(value)
    plain = np.result_type(value) if isinstance(value, int | float) else found.dtype
    if not np.can_cast(plain, dtype, "same_kind"):
        raise TypeError(f"{plugin}: {name} is to be {dtype}, and is {found.dtype}")
    return found.astype(dtype)


class Home(Protocol):
    """A keyed space."""

    session: Session
    remote: KeySpace


class Rows(Protocol):
    """An array of a keyed space."""

    space: Any
    number: int
    type: ValueType


def call_on_rows(
    space: Home,
    function: RowFunction | Plugin,
    batch: KeyBatch,
    view: KeyView | None,
    combine: str,
    wire: str | None,
    args: tuple[Any, ...],
    named: Mapping[str, Any],
) -> Any:
    """As ``KeyedSpace.apply``, of keys that may have a ``view``."""
    if combine not in SCATTERS:
        raise ValueError(f"combine must be one of {', '.join(SCATTERS)}, got {combine!r}")
    kind = chosen_wire(wire)
    call = _call(space, function, batch, args, named)
    given = [batch.combined(rows, combine) for rows in call.given]
    with measured(space.session.counters):
        returned, _ = space.remote.run(
            call.program, call.arrays, batch, given, call.scalars, view=view, wire=kind
        )
    found = tuple(batch.expanded(rows) for rows in returned)
    return found if call.several else found[0] if found else None


@dataclass(frozen=True)
class _Call:
    """A row program, the numbers of its arrays, what comes along per key, and its scalars."""

    program: RowProgram
    arrays: list[int]
    given: list[npt.NDArray[Any]]
    scalars: tuple[Scalar, ...]
    several: bool


def _call(
    space: Home,
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
        numbers = [arguments[name].number for name in traced.arrays]
        return _Call(program, numbers, given, traced.scalars(arguments), traced.several)
    if not isinstance(function, Plugin):
        raise TypeError(f"{function!r} is no row function; decorate it: @dv.rows")
    name = function.name
    signature = space.remote.plugin(name)
    arguments = bind_arguments(signature, args, named, name)
    own = plugin_call(name, signature, arguments, _kinds(space, arguments, batch))
    numbers = [arguments[one].number for one in own.arrays]
    return _Call(own.program, numbers, [*own.given.values()], own.scalars, own.several)


def _kinds(space: Home, arguments: Mapping[str, Any], batch: KeyBatch) -> dict[str, Kind]:
    return {name: _kind(space, name, value, batch) for name, value in arguments.items()}


def _kind(space: Home, name: str, value: Any, batch: KeyBatch) -> Kind:
    if hasattr(value, "space") and hasattr(value, "number"):
        rows: Rows = value
        if rows.space != space:
            raise ValueError(f"{name} is an array of another keyed space: keys have no slots there")
        return RowsOf(rows.type.dtype, rows.type.row)
    shape = np.shape(value)
    if not shape or (len(shape) == 2 and shape[0] != batch.count):
        return number_kind(name, value)
    if shape[0] != batch.count:
        raise ValueError(f"{name} has {shape[0]} rows for {batch.count} keys; give one for each")
    return PerKey(check_dtype(np.asarray(value).dtype).name, shape[1:])
