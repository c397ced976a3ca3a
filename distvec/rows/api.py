"""``dv.rows``: a decorator, which traces a function once for each signature; plug-ins by name; and
beside them what row functions and tables of rows take.
"""

from __future__ import annotations

import inspect
import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, cast

from distvec.array.random import uniform_at
from distvec.rows.lowering import Traced, add_rows, max_rows, min_rows, replace_rows, trace
from distvec.rows.tracer import Keys, Kind, Number, PerKey, RowsOf

if TYPE_CHECKING:
    from distvec.rows.optimizers import RowOptimizer

_NAME = re.compile(r"\w+(\.\w+)+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Plugin:
    """What ``KeyedSpace.apply`` asks servers for; they say what it takes and gives."""

    name: str


def plugin(name: str) -> Plugin:
    """Return a function of a plug-in module, for ``KeyedSpace.apply``.

    The servers must have loaded the module: ``distvec serve --plugin package.module``. Otherwise
    ``apply`` raises ``PSError`` with the necessary option.

    Parameters
    ----------
    name : str
        ``"package.module.function"``.

    Returns
    -------
    Plugin
        The function; its arguments are the arguments of the plug-in.

    Raises
    ------
    ValueError
        If ``name`` does not have this form.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"the name of a plug-in must be 'package.module.function', got {name!r}")
    return Plugin(name)


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
        """Return the program of the servers as text: rows read, operations, rows written."""
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
                f"{function.__name__}: a row function must have a fixed number of arguments; "
                f"replace {one} by named ones"
            )
    return tuple(one.name for one in found if one.name != KEYS)


class Rows:
    """Compile a Python function of NumPy operations into a program that servers run on rows.

    Use ``dv.rows`` as a decorator. The function receives the rows of ``n`` keys as arrays of shape
    ``(n,)`` or ``(n, k)``. It runs on the client, once for each signature, on placeholders for the
    rows; the servers receive the recorded operations, not Python code.

    Parameters
    ----------
    function : callable
        A function with a fixed number of arguments. An argument called ``keys`` receives the keys.
        It returns a dict of new rows by argument name, or values per key, or the tuple
        ``(updates, values)``. ``dv.rows.add(x)``, ``dv.rows.min(x)`` and ``dv.rows.max(x)`` combine
        rows with the stored ones.

    Returns
    -------
    RowFunction
        A function for ``KeyedSpace.apply``.

    Raises
    ------
    TypeError
        If the number of arguments is not fixed.

    Examples
    --------
    >>> @dv.rows
    ... def scale(w, factor):
    ...     return {"w": w * factor}
    >>> space = ps.keys()
    >>> w = space.zeros("float64")
    >>> w.push([3, 7], [1.0, 2.0])
    >>> space.apply(scale, [3, 7], w, 10.0)
    >>> w.pull([3, 7])
    array([10., 20.])
    """

    RowsOf, PerKey, Number = RowsOf, PerKey, Number
    replace, add = staticmethod(replace_rows), staticmethod(add_rows)
    min, max = staticmethod(min_rows), staticmethod(max_rows)
    random = staticmethod(uniform_at)

    plugin = staticmethod(plugin)

    def __getattr__(self, name: str) -> Callable[..., RowOptimizer]:
        """An optimizer: imported when it is asked for, as ``optim`` imports SciPy's."""
        if not name.startswith("_"):
            from distvec.rows import optimizers

            if name in optimizers.NAMES:
                return optimizers.of if name == "of" else optimizers.named(name)
        raise AttributeError(f"dv.rows has no {name!r}; it has {', '.join(dir(self))}")

    def __dir__(self) -> list[str]:
        from distvec.rows import optimizers

        own = [name for name in vars(type(self)) if not name.startswith("_")]
        return sorted({*own, *optimizers.NAMES})

    def __call__(self, function: Callable[..., Any]) -> RowFunction:
        """Return ``function`` as a function of rows."""
        return RowFunction(function)

    def __repr__(self) -> str:
        return "<dv.rows: @dv.rows makes a function one of rows>"


rows = Rows()
