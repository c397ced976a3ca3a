"""NumPy's linear algebra of the small arrays that the client keeps: it is done there, at once.

``np.linalg.solve(X.T @ X, X.T @ y)`` asks for both products in one message, and solves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array.functions import evaluate
from distvec.array.operators import Arithmetic
from distvec.graph import shapes
from distvec.graph.dtypes import check_dtype

_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    *(np.linalg.solve, np.linalg.lstsq, np.linalg.inv, np.linalg.pinv, np.linalg.cholesky),
    *(np.linalg.eigh, np.linalg.eigvalsh, np.linalg.svd, np.linalg.svdvals, np.linalg.qr),
    *(np.linalg.det, np.linalg.slogdet, np.linalg.matrix_rank, np.linalg.matrix_power),
    *(np.linalg.cond, np.trace, np.diag, np.diagonal),
)
"""Those that take small arrays, and have real results."""


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function, ours."""
    return {function: on_client(function) for function in _FUNCTIONS}


def on_client(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of arrays of which the client keeps one at least.

    What the others hold comes to it. One message, none where all is known. Errors are NumPy's, and
    ``TypeError`` where all are on the servers: nothing says that these are small.
    """

    def computed(*args: Any, **kwargs: Any) -> Any:
        arrays = [arg for arg in args if isinstance(arg, Arithmetic)]
        if not any(array.node.on_client for array in arrays):
            raise TypeError(
                f"numpy.{function.__name__} of what servers have is not available; it is for small "
                f"arrays, as x.T @ x; pull the values with x.numpy() and call it on those"
            )
        like = arrays[0]
        with like.session.holders.lock:
            kept = [like.like(shapes.collected(like.session.graph, one.node)) for one in arrays]
        evaluate(*kept)
        values = iter([np.asarray(array) for array in kept])
        given = [next(values) if isinstance(arg, Arithmetic) else arg for arg in args]
        return _kept(like, function(*given, **kwargs))

    return computed


def _kept(like: Arithmetic, result: Any) -> Any:
    """What NumPy returned, as arrays that the client keeps; of several, in NumPy's own tuple."""
    if isinstance(result, tuple):
        parts = [_kept(like, part) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    values = np.asarray(result)
    return like.like(like.session.graph.client_value(values, check_dtype(values.dtype)))
