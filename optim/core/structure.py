"""How arrays are arranged in dicts, tuples and lists: the arrangement, without the arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any


def is_structure(value: Any) -> bool:
    """Whether `value` is arrays in a structure: a dict, or a tuple or list that holds an array.

    What holds such a structure is one as well. Numbers in lists, nested or not, are one array.
    """
    if isinstance(value, Mapping):
        return True
    return isinstance(value, (tuple, list)) and any(
        is_structure(part) or len(getattr(part, "shape", ())) > 0 for part in value
    )


@dataclass(frozen=True)
class Structure:
    """A dict, tuple or list of parts, each a structure again; or an array, which is of no kind.

    kind    dict, tuple, list, or the class of a named tuple; None for an array
    keys    by which the parts are found
    """

    kind: type | None = None
    keys: tuple[Any, ...] = ()
    parts: tuple[Structure, ...] = ()

    @classmethod
    def of(cls, value: Any) -> Structure:
        """That of `value`."""
        if not is_structure(value):
            return cls()
        items = dict(value) if isinstance(value, Mapping) else dict(enumerate(value))
        kind = dict if isinstance(value, Mapping) else type(value)
        return cls(kind, tuple(items), tuple(cls.of(part) for part in items.values()))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What the arrays are called behind the name of the whole: "['w']", "[0][1]", ".bias"."""
        if self.kind is None:
            return ("",)
        pairs = zip(self.keys, self.parts, strict=True)
        return tuple(self.place(key) + name for key, part in pairs for name in part.names)

    def place(self, key: Any) -> str:
        """How the part of that key is written in Python."""
        fields = getattr(self.kind, "_fields", None)
        return f".{fields[key]}" if fields else f"[{key!r}]"

    def arranged(self, arrays: Iterator[Any]) -> Any:
        """The next of `arrays`, in this structure."""
        if self.kind is None:
            return next(arrays)
        parts = [part.arranged(arrays) for part in self.parts]
        if self.kind is dict:
            return dict(zip(self.keys, parts, strict=True))
        return self.kind(*parts) if hasattr(self.kind, "_fields") else self.kind(parts)

    def arrays(self, value: Any, name: str, *, numbers: bool = False) -> Iterator[Any]:
        """The arrays of `value`, which must be arranged in the same way; errors call it `name`.

        numbers     one number, or None, may stand for all arrays of a part
        """
        if self.kind is None:
            if is_structure(value):
                raise TypeError(f"{name} must be one array, but is a {type(value).__name__}")
            yield value
        elif numbers and _is_number(value):
            yield from repeat(value, len(self.names))
        else:
            own = zip(self.keys, self.parts, self.values(value, name), strict=True)
            for key, part, inner in own:
                yield from part.arrays(inner, name + self.place(key), numbers=numbers)

    def values(self, value: Any, name: str) -> list[Any]:
        """What `value`, arranged as this at least at the top, holds by each key."""
        self._check(value, name)
        return [value[key] for key in self.keys]

    def _check(self, value: Any, name: str) -> None:
        if self.kind is dict:
            if not isinstance(value, Mapping):
                raise TypeError(f"{name} must be {self}, but is {_kind_of(value)}")
            if set(value) != set(self.keys):
                raise ValueError(f"{name} must be {self}, but has {_listed(value)}")
        elif not isinstance(value, (tuple, list)):
            raise TypeError(f"{name} must be {self}, but is {_kind_of(value)}")
        elif len(value) != len(self.keys):
            raise ValueError(f"{name} must be {self}, but has {len(value)} parts")

    def __str__(self) -> str:
        if self.kind is None:
            return "one array"
        if self.kind is dict:
            return f"a dict with the keys {_listed(self.keys)}"
        return f"a {self.kind.__name__} of {len(self.keys)} parts"


def _listed(keys: Any) -> str:
    return ", ".join(map(repr, keys)) or "no keys"


def _kind_of(value: Any) -> str:
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    return f"a {kind}" if shape is None else f"a {kind} of shape {tuple(shape)}"


def _is_number(value: Any) -> bool:
    return value is None or (hasattr(value, "__float__") and getattr(value, "shape", ()) == ())
