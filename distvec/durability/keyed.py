"""Arrays of a keyed space in files: as plain arrays in the order of its keys, which come along."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from distvec.array.array import DistArray
from distvec.array.core.handle import SessionBase
from distvec.keyed.array import KeyedArray, SavedTraining
from distvec.keyed.space import KeyedSpace
from ps_backend.errors import Corrupted
from ps_backend.program.initializers import Constant, Fill, Normal, Uniform

Name = TypeVar("Name", str, int)
KEYS = "keys"
"""The name of the array of keys."""
_MARK = "distvec.keyed"
"""The name of the text that says what the arrays are: how a space, and its arrays, were made."""
_FILLS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Constant, Uniform, Normal)}


def with_keys(
    given: Mapping[str, Any], *, optimizers: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    """``given`` with keyed arrays as plain ones, and their keys; and texts that go along.

    ``optimizers``: with those of the arrays, and their states as ``"name.state"`` beside them. Two
    messages a server. ``ValueError`` for arrays of several spaces, or beside plain ones.
    """
    arrays = {name: one for name, one in given.items() if isinstance(one, KeyedArray)}
    if not arrays:
        return dict(given), {}
    if len(arrays) < len(given) or len({id(one.space) for one in arrays.values()}) > 1:
        raise ValueError(
            "one path holds the arrays of one keyed space and no others; save other spaces and "
            "plain arrays to paths of their own"
        )
    if KEYS in arrays:
        raise ValueError(f"{KEYS!r} is the name of the saved keys; give the array another name")
    space: Any = next(iter(arrays.values())).space
    trained = _with_states(arrays) if optimizers else {}
    keys, *rows = space.frozen(None, *arrays.values())
    fills = {name: describe_fill(one.init) for name, one in arrays.items()}
    mark = json.dumps({"space": space.options, "fills": fills, "trained": trained})
    return {KEYS: keys, **dict(zip(arrays, rows, strict=True))}, {_MARK: mark}


def _with_states(arrays: dict[str, KeyedArray]) -> dict[str, Any]:
    """Add the states of optimizers to ``arrays``; what the file says of the optimizers, by array.

    ``ValueError`` where an array has the name of a state.
    """
    names = {one.number: name for name, one in arrays.items()}
    trained = {}
    for name, kept in [(name, one.trained) for name, one in arrays.items()]:
        if kept is None:
            continue
        for state, one in kept.states.items():
            called = names.setdefault(one.number, f"{name}.{state}")
            if arrays.setdefault(called, one).number != one.number:
                raise ValueError(
                    f"{called!r} is the name of a state of the optimizer of {name!r}; give the "
                    "array another name, or call save(..., optimizers=False)"
                )
        trained[name] = kept_document(kept, names)
    return trained


def kept_document(kept: SavedTraining, names: Mapping[int, Name]) -> dict[str, Any]:
    """``kept`` as JSON, with arrays by their ``names``."""
    states = {state: names[one.number] for state, one in kept.states.items()}
    return {"optimizer": kept.document, "states": states, "steps": kept.calls}


def kept_training(given: Mapping[str, Any], arrays: Mapping[Name, Any]) -> SavedTraining | None:
    """The inverse; None where not all states are among ``arrays``. ``Corrupted``."""
    try:
        names, calls = given["states"], given["steps"]
        if not set(names.values()) <= set(arrays):
            return None
        states = {state: arrays[name] for state, name in names.items()}
        if type(calls) is not int or not isinstance(given["optimizer"]["kind"], str):
            raise TypeError(f"{given!r} does not describe an optimizer")
    except (AttributeError, KeyError, TypeError) as error:
        raise _damage_error(error) from error
    return SavedTraining(given["optimizer"], states, calls)


def adopt_keys(loaded: dict[str, Any], session: SessionBase) -> None:
    """Let arrays that were saved with their keys be those of a new keyed space of ``session``.

    Does nothing to others. ``Corrupted`` where the text that describes them is none.
    """
    metadata: dict[str, str] = loaded.metadata  # type: ignore[attr-defined]
    mark = metadata.pop(_MARK, None)
    keys = loaded.pop(KEYS, None) if mark is not None else None
    if mark is None or keys is None:
        return
    try:
        found = json.loads(mark)
        options, fills = found["space"], found["fills"]
        trained = dict(found.get("trained", {}))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damage_error(error) from error
    arrays = filled_space(session, options, fills, keys, loaded)
    for name, document in trained.items():
        if name in arrays:
            arrays[name].trained = kept_training(document, arrays)
    loaded.update(arrays)


def filled_space(
    session: SessionBase,
    options: Mapping[str, Any],
    fills: Mapping[Name, Mapping[str, Any]],
    keys: DistArray,
    rows: Mapping[Name, DistArray],
) -> dict[Name, KeyedArray]:
    """Arrays of a new space, with these ``keys`` and ``rows``; ``Corrupted`` for no such space.

    ``options``: how the space was made; ``fills``: how its arrays begin, as ``described``.
    """
    try:
        begins = {name: fill_of(fills[name]) for name in rows}
        space = KeyedSpace(session, **options)
    except (KeyError, TypeError, ValueError) as error:
        raise _damage_error(error) from error
    made = {name: space.array(one.shape[1:], begins[name], one.dtype) for name, one in rows.items()}
    space.adopt(keys, [(made[name], one) for name, one in rows.items()])
    return made


def _damage_error(error: Exception) -> Corrupted:
    return Corrupted(f"what describes the keyed space is damaged: {error}")


def describe_fill(fill: Fill) -> dict[str, Any]:
    """How an array begins, as JSON."""
    return {"kind": type(fill).__name__, **asdict(fill)}


def fill_of(described: Mapping[str, Any]) -> Fill:
    """The inverse."""
    fill: Fill = _FILLS[described["kind"]](
        **{name: value for name, value in described.items() if name != "kind"}
    )
    return fill
