"""What a module that servers load marks: ``distvec serve --plugin package.module``.

    from ps_backend.plugins import row_plugin

    @row_plugin("w: rows float32[k], most: number float64 -> w, norms: float64")
    def clip(w, most):
        norms = np.linalg.norm(w, axis=1)
        return {"w": w * np.minimum(1, most / norms)[:, None], "norms": norms}

A client then runs ``space.apply(dv.rows.plugin("package.module.clip"), keys, t, 1.0)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ps_backend.program.user_signatures import KEYS, Signature

Function = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True)
class RowPlugin:
    """A function that servers run on the rows of chosen keys."""

    name: str
    """By which clients ask for it: that of its module, and its own."""
    signature: Signature
    function: Function


def row_plugin(signature: str) -> Callable[[Function], RowPlugin]:
    """Mark a function as one that clients may have run on rows. It says what it gets and makes.

    ``"w: rows float32[k], g: each float32[k], keys, step: number float64 -> w, norms: float64"``:
    the function is called with an array ``(n, k)`` or ``(n,)`` for ``rows`` of an array of the
    keyed space and for what comes along with ``each`` of the ``n`` keys, with int64 ``keys``, and
    with numbers. It returns a mapping by name: new rows of arrays, and what goes back to the
    caller, of the declared dtypes and shapes. The ``n`` keys are the different ones of a call that
    one server holds, in ascending order. Meanwhile nobody else reads or writes the keyed space. If
    it raises, nothing is changed. Raises ``ValueError`` for a signature that is none.
    """
    parsed = Signature.parsed(signature)

    def marked(function: Function) -> RowPlugin:
        wanted = list(inspect.signature(function).parameters)
        named = [KEYS if one.kind == KEYS else one.name for one in parsed.arguments]
        if wanted != named:
            raise ValueError(
                f"{function.__qualname__} takes ({', '.join(wanted)}), and its signature names "
                f"({', '.join(named)}); use the same names, in the same order"
            )
        return RowPlugin(f"{function.__module__}.{function.__qualname__}", parsed, function)

    return marked
