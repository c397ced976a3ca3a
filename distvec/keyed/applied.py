"""A row function on the rows of chosen keys: what its arguments are, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from distvec.array.handle import Home as Session
from distvec.diagnostics.profile import measured
from distvec.graph.dtypes import check_dtype
from distvec.rows.function import RowFunction
from distvec.rows.kinds import Kind, PerKey, RowsOf, number_kind
from ps_backend.client import KeyBatch, KeySpace, KeyView
from ps_backend.program.row_program import SCATTERS
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
    function: RowFunction,
    batch: KeyBatch,
    view: KeyView | None,
    combine: str,
    args: tuple[Any, ...],
    named: Mapping[str, Any],
) -> Any:
    """As ``KeyedSpace.apply``, of keys that may have a ``view``."""
    if not isinstance(function, RowFunction):
        raise TypeError(f"{function!r} is no row function; decorate it: @dv.rows")
    if combine not in SCATTERS:
        raise ValueError(f"combine must be one of {', '.join(SCATTERS)}, got {combine!r}")
    arguments = function.bound(args, named)
    kinds = {name: _kind(space, name, value, batch) for name, value in arguments.items()}
    traced = function.trace(**kinds)
    given = []
    for name, type in zip(traced.given, traced.program.given, strict=True):
        rows = np.asarray(arguments[name], type.dtype)
        given.append(batch.combined(rows, combine))
    numbers = [arguments[name].number for name in traced.arrays]
    with measured(space.session.counters):
        returned, _ = space.remote.run(
            traced.program, numbers, batch, given, traced.scalars(arguments), view=view
        )
    found = tuple(batch.expanded(rows) for rows in returned)
    return found if traced.several else found[0] if found else None


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
