"""Dtype rules: NumPy's own, asked of the ufunc that an op stands for."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ps_backend.program import ops
from ps_backend.program.types import DTYPES

_BOOL = np.dtype(np.bool_)
SUPPORTED = tuple(np.dtype(name) for name in DTYPES)
Operand = np.dtype[Any] | type
"""A dtype, or ``int`` or ``float`` for a Python scalar, whose dtype is weak."""


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """``dtype`` as one of those that servers have, or ``TypeError`` saying which those are."""
    try:
        resolved: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"{dtype!r} is no dtype; use one of {', '.join(DTYPES)}") from None
    if resolved not in SUPPORTED:
        raise TypeError(
            f"dtype {resolved} is not supported on the servers; "
            f"use one of {', '.join(DTYPES)}, for instance .astype('float64') before"
        )
    return resolved


@lru_cache(maxsize=4096)
def resolve(name: str, operands: tuple[Operand, ...]) -> tuple[str, tuple[np.dtype[Any], ...]]:
    """The op that runs, and the dtypes its arguments are cast to followed by that of the result.

    NumPy's promotion, NEP 50 included. ``TypeError`` as NumPy's where it has no loop, and where the
    loop works in a dtype that the servers do not have (such as complex128).
    """
    if not any(isinstance(operand, np.dtype) for operand in operands):
        operands = tuple(np.dtype(operand) for operand in operands)
    dtypes = _of_where(operands) if name == "where" else _of_ufunc(name, operands)
    for dtype in dtypes:
        if dtype not in SUPPORTED:
            given = ", ".join(getattr(o, "name", None) or str(o) for o in operands)
            raise TypeError(
                f"{name} on ({given}) works in {dtype} in NumPy, which the servers do not have; "
                f"cast first, for instance x.astype('float64')"
            )
    return ops.specialise(name, dtypes[0].name), dtypes


def _of_where(operands: tuple[Operand, ...]) -> tuple[np.dtype[Any], ...]:
    choices = [o if isinstance(o, np.dtype) else o(0) for o in operands[1:]]
    common = np.result_type(*choices)
    return (np.dtype(np.bool_), common, common, common)


def _of_floats(operands: tuple[Operand, ...]) -> tuple[np.dtype[Any], ...]:
    """Of a function of our own, which works in the common dtype if that is one of floats."""
    common = np.result_type(*(o if isinstance(o, np.dtype) else o(0) for o in operands))
    common = common if common.kind == "f" else np.dtype(np.float64)
    return (common,) * (len(operands) + 1)


def _of_ufunc(name: str, operands: tuple[Operand, ...]) -> tuple[np.dtype[Any], ...]:
    op = ops.TABLE[name]
    if not op.has_loops:
        return _of_floats(operands)
    resolved = op.loop_for(operands)
    if op.on_bool and all(operand == _BOOL for operand in operands):
        return (*(_BOOL for _ in operands), resolved[-1])
    if not op.separate:
        return resolved
    arguments = zip(operands, resolved, strict=False)
    return (*(o if isinstance(o, np.dtype) else r for o, r in arguments), resolved[-1])
