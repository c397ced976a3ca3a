"""What servers do with a row program, by NumPy and the kernels, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from distvec.rows.lowering import Traced
from ps_backend import kernels

_JOINED = {"add": np.add, "min": np.minimum, "max": np.maximum}


def run(
    traced: Traced, slots: Any, arguments: Mapping[str, Any], keys: Any = None
) -> tuple[Any, ...]:
    """Run it for the keys that have those ``slots`` (each once), on whole NumPy arrays by name.

    Changes the arrays in place; returns what comes back per key.
    """
    program, n = traced.program, len(slots)
    named = [np.asarray(arguments[name]) for name in traced.arrays]
    inputs = [named[array][slots] for array in program.gathers]
    inputs += [np.ascontiguousarray(arguments[name]) for name in traced.given]
    if program.with_keys:
        inputs.append(np.asarray(keys, np.int64))
    made = [np.empty((n, *value.row), value.dtype) for value in program.sweep.stored]
    kernel = kernels.compile_sweep(program.sweep, n)
    with np.errstate(all="ignore"):
        kernel(inputs, traced.scalars(arguments), made, 0, n, 1024)
        for scatter in program.scatters:
            array, new = named[scatter.array], made[scatter.output]
            if scatter.op != "replace":
                new = _JOINED[scatter.op](array[slots], new)
            array[slots] = new
    return tuple(made[output] for output in program.returns)
