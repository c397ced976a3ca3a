"""Machine code of checked trees, by numba, with bounds checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core.errors import NumbaError

from ps_backend.errors import InvalidProgram
from ps_backend.kernels.user import helpers
from ps_backend.kernels.user.source import source
from ps_backend.program.kernel_language.check import Checked, Value


def compiled(tree: Checked) -> Callable[..., int]:
    """The kernel of a checked tree. ``InvalidProgram`` where numba does not take it."""
    names: dict[str, Any] = {
        "__builtins__": {"bool": bool},
        "math": math,
        "np": np,
        "int64": numba.int64,
        "float64": numba.float64,
    }
    for name in (
        "floor_divided", "remainder", "smaller", "larger", "magnitude", "truncated", "rounds",
        "is_late",
    ):  # fmt: skip
        names[name] = getattr(helpers, name)
    text = source(tree)
    exec(compile(text, "<kernel of a user>", "exec"), names)
    types = [_type(value) for value in tree.values]
    clock = numba.types.Array(numba.int64, 1, "C")
    try:
        made: Callable[..., int] = numba.njit(
            (*types, clock), boundscheck=True, error_model="numpy", nogil=True
        )(names["kernel"])
    except NumbaError as error:
        raise InvalidProgram(f"the kernel cannot be compiled: {str(error)[:300]}") from None
    return made


def _type(value: Value) -> Any:
    if not value.rank:
        return {"f": numba.float64, "b": numba.boolean}.get(np.dtype(value.dtype).kind, numba.int64)
    return numba.types.Array(numba.from_dtype(np.dtype(value.dtype)), value.rank, "C")
