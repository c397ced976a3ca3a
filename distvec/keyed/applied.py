"""A row function on the rows of chosen keys: what its arguments are, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from distvec.array.handle import Home as Session
from distvec.diagnostics.profile import measured
from distvec.graph.build import check_dtype
from distvec.keyed.own_call import bound, own_call
from distvec.keyed.wires import chosen_wire
from distvec.rows.function import RowFunction
from distvec.rows.kinds import Kind, PerKey, RowsOf, number_kind
from distvec.rows.plugin import Plugin
from ps_backend.client import KeyBatch, KeySpace, KeyView
from ps_backend.program.row_program import SCATTERS, RowProgram
from ps_backend.program.sweep import Scalar
from ps_backend.program.types import ValueType


class Home(Protocol):
    """A keyed space."""

    session: Session
    remote: KeySpace


class Rows(Protocol):
    """An array of a keyed space."""

    space: Any
    number: int
    type: ValueType


def applied(
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
    arguments = bound(signature, args, named, name)
    own = own_call(name, signature, arguments, _kinds(space, arguments, batch))
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
