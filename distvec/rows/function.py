"""``@dv.rows``: a function of rows, traced once for each signature."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any, cast

from distvec.rows.kinds import Keys, Kind
from distvec.rows.traced import Traced, trace

KEYS = "keys"
"""The argument of this name gets the keys."""


class RowFunction:
    """A function of rows: ``trace`` makes a row program of it. It is pickled as functions are.

    ``f.__wrapped__(w, g)`` runs the function itself, on rows as NumPy arrays.
    """

    __wrapped__: Callable[..., Any]

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(cast(Any, self), function)
        self.parameters = _parameters(function)
        """The names of its arguments, but for ``keys``."""
        self._function = function
        self._takes_keys = KEYS in inspect.signature(function).parameters
        self._traced: dict[Any, Traced] = {}
        self._lock = threading.RLock()

    def __reduce__(self) -> Any:
        name = self._function.__qualname__
        found: Any = sys.modules.get(self._function.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        is_importable = found is self and self._function.__module__ != "__main__"
        return name if is_importable else (RowFunction, (self._function,))

    def __repr__(self) -> str:
        return f"<row function {self._function.__name__}({', '.join(self.parameters)})>"

    def trace(self, *kinds: Kind, **named: Kind) -> Traced:
        """The row program for arguments of these kinds; traced once.

        ``NotTraceable`` for what cannot be done with the rows of each key by themselves.
        """
        given = self.bound(kinds, named)
        key = tuple(given.items())
        with self._lock:
            if key not in self._traced:
                self._traced[key] = self._trace(given)
            return self._traced[key]

    def explain(self, *kinds: Kind, **named: Kind) -> str:
        """What servers would run: what they gather, the steps, what they scatter and return."""
        return str(self.trace(*kinds, **named))

    def bound(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, in the order of the function's. ``TypeError`` as Python's."""
        signature = inspect.signature(self._function)
        parameters = [signature.parameters[name] for name in self.parameters]
        bound = signature.replace(parameters=parameters).bind(*positional, **named)
        bound.apply_defaults()
        return dict(bound.arguments)

    def _trace(self, kinds: dict[str, Kind]) -> Traced:
        also: dict[str, Kind] = {KEYS: Keys()} if self._takes_keys else {}
        return trace(self._function.__name__, lambda given: self._function(**given), kinds | also)


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the arguments, but for that of the keys; ``TypeError`` for ``*args``."""
    found = inspect.signature(function).parameters.values()
    for one in found:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise TypeError(
                f"{function.__name__}: a row function has a fixed number of arguments, as its "
                f"program has; name those of {one}"
            )
    return tuple(one.name for one in found if one.name != KEYS)
