"""Initial values, computed by compiled loops: the bits of ``ps_backend.program.initial``."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.addresses import address_of
from ps_backend.program import initial
from ps_backend.program.initial import Constant, Fill, Normal, Uniform

__all__ = ["Constant", "Fill", "Normal", "Uniform", "evaluate"]

_SIGNED = 1 << 63


def evaluate(
    rule: Fill, keys: npt.NDArray[np.int64], row: tuple[int, ...], dtype: Any
) -> npt.NDArray[Any]:
    """As ``program.initial.evaluate``: of shape ``(n, *row)``, new."""
    columns = prod(row)
    if isinstance(rule, Constant) or not len(keys) or not columns:
        return initial.evaluate(rule, keys, row, dtype)
    from ps_backend.kernels.keyed import compiled_initial

    seed = (rule.seed + _SIGNED) % (2 * _SIGNED) - _SIGNED
    is_normal = isinstance(rule, Normal)
    offset, scale = (
        (rule.mean, rule.scale) if isinstance(rule, Normal) else (rule.low, rule.high - rule.low)
    )
    numbers = np.empty((len(keys), columns))
    where = address_of(keys), len(keys), columns
    how = is_normal, float(offset), float(scale)
    compiled_initial.fill(*where, seed, *how, address_of(numbers))
    with np.errstate(all="ignore"):  # what is beyond the dtype becomes what NumPy makes of it
        return numbers.astype(dtype, copy=False).reshape(len(keys), *row)
