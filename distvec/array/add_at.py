"""``numpy.ufunc.at``: repeated indices count each time, which ``x[indices] += values`` does not."""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.array.indexing import push
from distvec.array.operators import Arithmetic


def at(function: Any, x: Any, indices: Any, values: Any) -> None:
    """``function.at(x, indices, values)`` of ``numpy.add`` and ``numpy.subtract``.

    Evaluation of ``x`` if need be, then one message to each server that holds some of the indices.
    """
    name = f"numpy.{function.__name__}.at"
    if function not in (np.add, np.subtract):
        raise TypeError(
            f"{name} is not available on the servers: they add and subtract at indices; "
            f"pull the values with x.numpy() for others"
        )
    if not isinstance(x, Arithmetic):
        raise TypeError(f"{name}: changes a {type(x).__name__} on the client; pull the operands")
    where, given = np.asarray(indices), np.asarray(values)
    if where.size and where.dtype.kind not in "iu":
        raise TypeError(f"{name}: indices must be integers, got {where.dtype}")
    row = x.shape[1:]
    if given.dtype.kind in "iub" and x.dtype.kind in "iu":  # modulo what they can hold, as in NumPy
        given = given.astype(x.dtype)
    spread = np.broadcast_to(given, where.shape + row).reshape(-1, *row)
    if x.dtype == np.bool_ and function is np.subtract:
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported")
    push(x, where.ravel(), np.negative(spread) if function is np.subtract else spread)
