"""NumPy's functions that ask what an array is, not what is in it: the client knows; no message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.shape: lambda x: x.shape,
        np.ndim: lambda x: x.ndim,
        np.size: lambda x, axis=None: x.size,
        np.isrealobj: lambda x: True,
        np.iscomplexobj: lambda x: False,
        np.result_type: lambda *given: np.result_type(*(getattr(x, "dtype", x) for x in given)),
    }
