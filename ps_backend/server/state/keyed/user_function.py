"""A plug-in on one server: gather rows, call it, look at what it made, scatter that.

All rows of the call are computed before the first one is written, and before a key is inserted: a
function that fails has changed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.errors import FunctionFailed
from ps_backend.plugins import RowPlugin
from ps_backend.program.row_program import RowProgram
from ps_backend.program.sweep import Scalar
from ps_backend.program.user_signatures import EACH, KEYS, NUMBER, ROWS
from ps_backend.server.state.keyed.row_run import verify_arrays
from ps_backend.server.state.keyed.space import KeyedRows, KeyedSpace, KeyList, refuse_freed
from ps_backend.server.state.memory import Memory

Array = npt.NDArray[Any]


@dataclass(slots=True)
class UserFunctionRun:
    """One call of a plug-in, ready to run on arrays of a space."""

    program: RowProgram
    arrays: Sequence[KeyedRows]
    scalars: Sequence[Scalar]
    plugin: RowPlugin
    memory: Memory

    @classmethod
    def prepare(
        cls,
        program: RowProgram,
        arrays: Sequence[KeyedRows],
        scalars: Sequence[Scalar],
        plugin: RowPlugin,
        memory: Memory,
    ) -> UserFunctionRun:
        """Verified. Raises ``InvalidProgram`` where types do not fit the arrays."""
        program.verify()
        verify_arrays(program, arrays)
        return cls(program, arrays, scalars, plugin, memory)

    def run(
        self, space: KeyedSpace, keys: KeyList, given: Sequence[Array], out: Sequence[Array]
    ) -> None:
        """As ``RowRun.run``, but for all keys at once: the space is held meanwhile."""
        program, count = self.program, len(keys.keys)
        types = (*program.sweep.inputs, *program.results)
        kept = self.memory.reserve(
            count * sum(type.row_bytes for type in types), "rows for a function on keys"
        )
        with space.lock:
            refuse_freed(self.arrays)
            locations = space.locate(keys)
            gathered = (self.arrays[place] for place in program.gathers)
            inputs = [*(array.gather(locations, keys.keys) for array in gathered), *given]
            if program.with_keys:
                inputs.append(_read_only(keys.keys))
            results = self._call(inputs, count)
            if program.changes:
                space.insert(keys.keys, locations)
                keys.version = space.version
            for scatter in program.scatters:
                store = self.arrays[scatter.array].store
                store.scatter(locations, results[scatter.output], scatter.op)
        for target, output in zip(out, program.returns, strict=True):
            np.copyto(target, results[output])
        del kept

    def _call(self, inputs: Sequence[Array], count: int) -> Sequence[Array]:
        """What the plug-in makes; refused unless of the shapes and dtypes that it declares."""
        plugin, signature = self.plugin, self.plugin.signature
        names = [name for kind in (ROWS, EACH, KEYS) for name in signature.names(kind)]
        arguments: dict[str, Any] = dict(zip(names, inputs, strict=True))
        arguments |= dict(zip(signature.names(NUMBER), self.scalars, strict=True))
        try:
            made = plugin.function(**{one.name: arguments[one.name] for one in signature.arguments})
        except Exception as error:
            raise FunctionFailed(
                f"the plug-in {plugin.name} raised {type(error).__name__}: {error}; no data were "
                "changed on this server"
            ) from error
        if not isinstance(made, dict) or made.keys() != set(signature.results):
            got = sorted(map(str, made)) if isinstance(made, dict) else type(made).__name__
            raise FunctionFailed(
                f"the plug-in {plugin.name} must return a dict with "
                f"{', '.join(signature.results)}, but returned {got}"
            )
        for name, kind in zip(signature.results, self.program.results, strict=True):
            value, shape = made[name], (count, *kind.row)
            is_array = isinstance(value, np.ndarray)
            if not is_array or (value.shape, value.dtype) != (shape, np.dtype(kind.dtype)):
                raise FunctionFailed(
                    f"the plug-in {plugin.name} must return {name} as {kind.dtype} of shape "
                    f"{shape}, but returned {_describe(value)}; no data were changed on this "
                    "server"
                )
        return [np.ascontiguousarray(made[name]) for name in signature.results]


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return f"a {type(value).__name__}"


def _read_only(keys: Array) -> Array:
    view = keys.view()
    view.flags.writeable = False
    return view
