"""Keys as users have them: integers, strings, tuples, arrays on the servers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.handle import Handle
from ps_backend.program.keys import check_keys, hash_texts, hash_tuples

Keys = npt.NDArray[np.int64]


def as_keys(given: Any) -> Keys:
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
        raise TypeError(f"ps.keys takes range(n), for keys 0 to n - 1, or nothing, got {keys!r}")
    if not keys:
        raise ValueError("ps.keys(range(0)) would have no keys; leave the range out for any keys")
    return len(keys)


_KINDS = {"an integer": int | np.integer, "a string": str, "a tuple": tuple}


def _wrong_kind(given: Any) -> str:
    """What is said of a list with keys of several kinds, or of none that keys have."""
    if isinstance(given, np.ndarray):
        given = given.tolist() if given.dtype == object and given.ndim == 1 else None
    if not isinstance(given, list | tuple):
        return ""
    kinds = list(map(_kind, given))
    wrong = next(
        (k for k, kind in enumerate(kinds) if kind != kinds[0] or kind not in _KINDS), None
    )
    if wrong is None:
        return ""
    beside = f", and keys[0] is {given[0]!r}, {kinds[0]}" if wrong else ""
    return (
        f"keys[{wrong}] is {given[wrong]!r}, {kinds[wrong]}{beside}; keys are integers, strings, "
        "or tuples of these, all of one kind: write for instance [str(key) for key in keys]"
    )


def _kind(key: Any) -> str:
    found = (name for name, kinds in _KINDS.items() if isinstance(key, kinds))
    return next(found, f"a {type(key).__name__}")


def _first(given: Any) -> Any:
    """The first key of a list of any objects; None of an array of numbers."""
    if isinstance(given, np.ndarray) and given.dtype.kind != "O":
        return given.item(0) if given.dtype.kind == "U" and given.size else None
    return next(iter(given), None) if hasattr(given, "__iter__") else None
