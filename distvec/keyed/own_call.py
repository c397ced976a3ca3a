"""What a call of a plug-in is, from its signature and the arguments that came."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.rows.kinds import Keys, Kind, Number, PerKey, RowsOf
from ps_backend.program.row_program import RowProgram, own_program
from ps_backend.program.signatures import EACH, KEYS, NUMBER, ROWS, Signature
from ps_backend.program.sweep import Scalar
from ps_backend.program.types import ValueType, dtype_of

_KINDS: Mapping[str, type[Kind]] = {ROWS: RowsOf, EACH: PerKey, NUMBER: Number, KEYS: Keys}


@dataclass(frozen=True)
class OwnCall:
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


def bound(
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


def own_call(
    plugin: str, signature: Signature, arguments: Mapping[str, Any], kinds: Mapping[str, Kind]
) -> OwnCall:
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
    return OwnCall(
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
