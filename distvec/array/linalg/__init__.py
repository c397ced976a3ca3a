"""Linear algebra: of tall tables on the servers, and of small arrays that the client keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distvec.array.linalg import host as small
from distvec.array.linalg import tall
from distvec.array.linalg import tall as least_squares
from distvec.array.linalg import tall as norms
from distvec.array.linalg import tall as systems


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function, ours."""
    return {
        **small.functions(),
        **tall.numpy_functions(),
        **least_squares.numpy_functions(),
        **systems.numpy_functions(),
        **norms.numpy_functions(),
    }
