"""Dtype rules: NumPy's own, asked of the ufunc that an op stands for."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ps_backend import ops
from ps_backend.program import DTYPES

SUPPORTED = tuple(np.dtype(name) for name in DTYPES)
Operand = np.dtype[Any] | type
"""A dtype, or ``int`` or ``float`` for a Python scalar, whose dtype is weak."""


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """``dtype`` as one of the five supported ones, or ``TypeError`` saying which those are."""
    resolved = np.dtype(dtype)
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
    loop works in a dtype that the servers do not have (such as float16).
    """
    if name == "where":
        common = np.result_type(*(np.zeros((), d) if _strong(d) else d(0) for d in operands[1:]))
        dtypes: tuple[np.dtype[Any], ...] = (np.dtype(bool), common, common, common)
    elif all(_strong(operand) is False for operand in operands):
        dtypes = _loop(name, tuple(np.result_type(operand(0)) for operand in operands))
    else:
        dtypes = _loop(name, operands)
    for dtype in dtypes:
        if dtype not in SUPPORTED:
            given = ", ".join(getattr(o, "name", None) or o.__name__ for o in operands)
            raise TypeError(
                f"{name} on ({given}) works in {dtype} in NumPy, which the servers do not have; "
                f"cast first, for instance x.astype('float64')"
            )
    return ops.specialise(name, dtypes[0].name), dtypes


def _loop(name: str, operands: tuple[Any, ...]) -> tuple[np.dtype[Any], ...]:
    ufunc = ops.TABLE[name].numpy
    resolved: tuple[np.dtype[Any], ...] = ufunc.resolve_dtypes((*operands, None))  # type: ignore[attr-defined]
    if name.startswith("logical") or ufunc is np.isnan or ufunc is np.isfinite or ufunc is np.isinf:
        # Tests of one operand each: nothing is gained by casting to a common dtype.
        return (*(d if _strong(d) else r for d, r in zip(operands, resolved, strict=False)), resolved[-1])
    return resolved


def _strong(operand: Operand) -> bool:
    return isinstance(operand, np.dtype)
