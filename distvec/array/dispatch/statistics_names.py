"""Which of our functions stand for NumPy's: statistics, comparisons, functions of real arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array import elementwise as closeness
from distvec.array import elementwise as real_functions
from distvec.array import reductions, statistics
from distvec.array import statistics as covariance
from distvec.array import statistics as nan_functions


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    ours: dict[Any, Callable[..., Any]] = {
        getattr(np, name): getattr(module, name)
        for module, names in (
            (statistics, STATISTICS),
            (covariance, COVARIANCES),
            (nan_functions, NAN_FUNCTIONS),
            (closeness, COMPARISONS),
            (real_functions, REAL_FUNCTIONS),
        )
        for name in names
    }
    return ours | {
        np.mean: reductions.mean,
        np.count_nonzero: reductions.count_nonzero,
        np.amin: reductions.min,
        np.amax: reductions.max,
        np.real_if_close: lambda a, **_: real_functions.real(a),
    }


STATISTICS = ("var", "std", "ptp", "average")
COVARIANCES = ("cov", "corrcoef")
NAN_FUNCTIONS = ("nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanargmin", "nanargmax")
COMPARISONS = ("isclose", "allclose", "array_equal", "array_equiv")
REAL_FUNCTIONS = (
    "nan_to_num", "real", "imag", "angle", "isreal", "iscomplex", "isposinf", "isneginf", "fix",
    "sinc", "i0",
)  # fmt: skip
