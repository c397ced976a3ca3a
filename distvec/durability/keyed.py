"""Arrays of a keyed space in files: as plain arrays in the order of its keys, which come along."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from distvec.array.handle import Home
from distvec.keyed.array import KeyedArray
from distvec.keyed.space import KeyedSpace
from ps_backend.errors import Corrupted
from ps_backend.program.initial import Constant, Fill, Normal, Uniform

KEYS = "keys"
"""The name of the array of keys."""
_MARK = "distvec.keyed"
"""The name of the text that says what the arrays are: how a space, and its arrays, were made."""
_FILLS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Constant, Uniform, Normal)}


def with_keys(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """``given`` with keyed arrays as plain ones, and their keys; and texts that go along.

    Two messages a server. ``ValueError`` for arrays of several spaces, or beside plain ones.
    """
    arrays = {name: one for name, one in given.items() if isinstance(one, KeyedArray)}
    if not arrays:
        return dict(given), {}
    if len(arrays) < len(given) or len({id(one.space) for one in arrays.values()}) > 1:
        raise ValueError(
            "arrays of one keyed space are saved together, and without others: give each space, "
            "and what is in none, a path of its own"
        )
    if KEYS in arrays:
        raise ValueError(f"{KEYS!r} is the name of the keys themselves; save the array as another")
    space: Any = next(iter(arrays.values())).space
    keys, *rows = space.frozen(None, *arrays.values())
    fills = {
        name: {"kind": type(one.init).__name__, **asdict(one.init)} for name, one in arrays.items()
    }
    mark = json.dumps({"space": space.options, "fills": fills})
    return {KEYS: keys, **dict(zip(arrays, rows, strict=True))}, {_MARK: mark}


def adopt_keys(loaded: dict[str, Any], session: Home) -> None:
    """Let arrays that were saved with their keys be those of a new keyed space of ``session``.

    Does nothing to others. ``Corrupted`` where the text that describes them is none.
    """
    metadata: dict[str, str] = loaded.metadata  # type: ignore[attr-defined]
    mark = metadata.pop(_MARK, None)
    keys = loaded.pop(KEYS, None) if mark is not None else None
    if mark is None or keys is None:
        return
    try:
        described = json.loads(mark)
        fills = {name: _fill(described["fills"][name]) for name in loaded}
        space = KeyedSpace(session, **described["space"])
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupted(f"what describes the keyed space is damaged: {error}") from error
    made = {
        name: space.array(one.shape[1:], fills[name], one.dtype) for name, one in loaded.items()
    }
    space.adopt(keys, [(made[name], rows) for name, rows in loaded.items()])
    loaded.update(made)


def _fill(described: Mapping[str, Any]) -> Fill:
    fill: Fill = _FILLS[described["kind"]](
        **{name: value for name, value in described.items() if name != "kind"}
    )
    return fill
