"""Hypothesis strategies for what distributed code is given: lengths, dtypes, vectors, servers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt

from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import DTYPES

SERVER_COUNTS = (1, 2, 3, 7)
"""One, an even and an odd split, and more servers than a short vector has blocks."""

LENGTHS = (0, 1, 2, 1023, 1024, 1025, 3000)
"""Nothing, the shortest, around a block of 1024 elements, and three blocks of unequal length."""

SPECIAL = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 5e-324, 1e308, 0.5)
"""Values at which functions of floats change their ways."""

_ORDINARY = 1e6

_WIDTHS: dict[int, Literal[16, 32, 64]] = {2: 16, 4: 32, 8: 64}
"""By bytes of a float its bits."""


@cache
def server_counts() -> st.SearchStrategy[int]:
    """How many servers hold the data."""
    return st.sampled_from(SERVER_COUNTS)


@cache
def lengths(min_length: int = 0) -> st.SearchStrategy[int]:
    """Lengths of vectors, of at least ``min_length`` (at most 3000), around where splits change."""
    return st.sampled_from([length for length in LENGTHS if length >= min_length])


def spaces(min_length: int = 0) -> st.SearchStrategy[DenseSpace]:
    """Dense index sets of such lengths."""
    return lengths(min_length).map(DenseSpace)


@cache
def dtypes(kinds: str = "fiub") -> st.SearchStrategy[str]:
    """Names of dtypes that servers have: floats, integers and booleans, or of some kinds."""
    return st.sampled_from([name for name in DTYPES if np.dtype(name).kind in kinds])


@cache  # Hypothesis looks through each new strategy before it draws from it
def vectors(
    length: int, dtype: str = "float64", *, special: bool = True, scale: float = _ORDINARY
) -> st.SearchStrategy[npt.NDArray[Any]]:
    """Vectors of shape ``(length,)``: a few drawn elements, repeated.

    Floats lie in ``[-scale, scale]``, integers in ``[-20, 20]``, unsigned ones from 0 on; with
    ``special`` there are also infinities, NaN, zeros of both signs, the least and the greatest, and
    the limits of integers.
    """
    kind = np.dtype(dtype)
    few = st.lists(_elements(kind, special, scale), min_size=1, max_size=17)
    # Hypothesis prints this call, which can be pasted.
    return st.builds(vector, few, st.just(length), st.just(kind.name))


def vector(values: Sequence[Any], length: int, dtype: str = "float64") -> npt.NDArray[Any]:
    """A vector of shape ``(length,)`` that repeats ``values``; what ``vectors`` draws is one."""
    return np.resize(np.array(values, dtype), length)


@cache
def scalars(dtype: str | None = None) -> st.SearchStrategy[Any]:
    """Python's numbers, or with a ``dtype`` NumPy's scalars of it."""
    if dtype is None:
        return st.integers(-5, 5) | st.floats(-100, 100) | st.booleans()
    return vectors(1, dtype).map(lambda values: values[0])


def _elements(kind: np.dtype[Any], special: bool, scale: float) -> st.SearchStrategy[Any]:
    if kind.kind == "b":
        return st.booleans()
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        ordinary = st.integers(max(-20, int(limits.min)), 20)
        return ordinary | st.sampled_from((limits.min, limits.max)) if special else ordinary
    limit = float(kind.type(min(scale, float(np.finfo(kind).max))))
    numbers = st.floats(-limit, limit, width=_WIDTHS[kind.itemsize])
    return _special_floats(kind) | numbers if special else numbers


def _special_floats(kind: np.dtype[Any]) -> st.SearchStrategy[float]:
    greatest = math.inf if kind.itemsize == 8 else float(np.finfo(kind).max) / 4

    def fitting(value: float) -> float:
        return value if math.isinf(value) else float(kind.type(np.clip(value, -greatest, greatest)))

    return st.sampled_from(SPECIAL).map(fitting)
