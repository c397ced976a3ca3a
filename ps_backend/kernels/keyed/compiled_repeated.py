"""Sums of the rows of each key, compiled. All arguments are integers, among them addresses."""

from __future__ import annotations

from typing import Any

from numba import njit

from ps_backend.kernels.keyed.memory import (
    load_double,
    load_integer,
    load_single,
    store_double,
    store_single,
)

_WORD, _SINGLE = 8, 4

_compiled = njit(nogil=True, cache=True)


@_compiled
def sum_doubles(which: Any, count: Any, columns: Any, rows: Any, sums: Any) -> None:
    """``sums[which[k]] += rows[k]``, of float64, one after the other."""
    for k in range(count):
        target = sums + load_integer(which + k * _WORD) * columns * _WORD
        source = rows + k * columns * _WORD
        for at in range(0, columns * _WORD, _WORD):
            store_double(target + at, load_double(target + at) + load_double(source + at))


@_compiled
def sum_singles(which: Any, count: Any, columns: Any, rows: Any, sums: Any) -> None:
    """The same of float32."""
    for k in range(count):
        target = sums + load_integer(which + k * _WORD) * columns * _SINGLE
        source = rows + k * columns * _SINGLE
        for at in range(0, columns * _SINGLE, _SINGLE):
            store_single(target + at, load_single(target + at) + load_single(source + at))
