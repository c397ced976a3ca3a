"""``@dv.rows``: a function of rows, traced once for each signature."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any, cast

from distvec.graph.expr import Node
from distvec.rows.kinds import Keys, Kind, PerKey, RowsOf
from distvec.rows.lowering import as_node, fitted, lowered, per_key
from distvec.rows.numbers import Numbers
from distvec.rows.traced import Traced
from distvec.rows.tracing import BATCH, NotTraceable, Trace
from distvec.rows.updates import Returned, sorted_out
from ps_backend.program.types import array_type

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
        self._lock = threading.Lock()

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

    def _trace(self, kinds: Mapping[str, Kind]) -> Traced:
        trace = Trace()
        tracers = {name: trace.tracer(kind) for name, kind in kinds.items()}
        keys = trace.tracer(Keys()) if self._takes_keys else None
        nodes = {name: tracer.node for name, tracer in tracers.items()}
        along = {} if keys is None else {KEYS: keys}
        found = lowered(
            [nodes[name] for name, kind in kinds.items() if isinstance(kind, RowsOf)],
            [nodes[name] for name, kind in kinds.items() if isinstance(kind, PerKey)],
            None if keys is None else keys.node,
            *self._made(returned := self._returned(tracers | along), trace, kinds, nodes),
        )
        names = {id(node): name for name, node in nodes.items()}
        return Traced(
            self._function.__name__,
            kinds,
            found.program,
            tuple(names[id(node)] for node in found.arrays),
            tuple(names[id(node)] for node in found.given),
            Numbers(found.scalars, {node: name for name, node in nodes.items()}),
            returned.several,
        )

    def _returned(self, arguments: Mapping[str, Any]) -> Returned:
        return sorted_out(self._function(**arguments), self._function.__name__)

    def _made(
        self, returned: Returned, trace: Trace, kinds: Mapping[str, Kind], nodes: Mapping[str, Node]
    ) -> tuple[list[tuple[Node, Node, str]], list[Node]]:
        """The nodes of new rows, each with those they go to and how; and of what is returned."""
        scatters = []
        for name, update in returned.updates.items():
            kind = kinds.get(name)
            if not isinstance(kind, RowsOf):
                arrays = [name for name, kind in kinds.items() if isinstance(kind, RowsOf)]
                raise NotTraceable(
                    f"{self._function.__name__} returns new rows for {name!r}, which is none of "
                    f"the arrays that it is called with: {', '.join(arrays) or 'there are none'}"
                )
            new = as_node(trace.graph, update.rows)
            type = array_type(BATCH, kind.dtype, kind.row)
            scatters.append((fitted(trace.graph, new, type, name), nodes[name], update.op))
        return scatters, [per_key(trace.graph, one) for one in returned.values]


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
