"""What is said of NumPy's functions that arrays of the servers do not have: why, and what to type.

Not many need a reason of their own: of the others the values are pulled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_DATES = "there are no dates on the servers; call it on dates of the client"
_FILES = "writes what the client has; pull the values, all or block by block: x.numpy(), x.blocks()"
_COMPLEX = "has complex results, which the servers do not have"


def of_function(func: Callable[..., Any]) -> str:
    """Why ``func``, one of NumPy's functions, is refused."""
    name = f"{func.__module__}.{func.__name__}"
    reason = _reasons().get(func)
    if reason is not None:
        return f"{name}: {reason}"
    return (
        f"{name} is not available on the servers; "
        f"pull the values with x.numpy() and call it on those"
    )


def _reasons() -> dict[Any, str]:
    return {
        np.datetime_as_string: _DATES,
        np.is_busday: _DATES,
        np.busday_count: _DATES,
        np.busday_offset: _DATES,
        np.save: _FILES,
        np.savez: _FILES,
        np.savez_compressed: _FILES,
        np.savetxt: _FILES,
        np.atleast_3d: "arrays have rank 2 at most; write numpy.atleast_2d(x)",
        np.linalg.eig: f"{_COMPLEX}; of a symmetric matrix write numpy.linalg.eigh(A), of others "
        "pull the values: A.numpy()",
        np.linalg.eigvals: f"{_COMPLEX}; of a symmetric matrix write numpy.linalg.eigvalsh(A), of "
        "others pull the values: A.numpy()",
        np.apply_along_axis: "calls a function of the client for each row; write it for the whole "
        "table, as in numpy.sum(T, axis=1), or pull the values: T.numpy()",
        np.polydiv: "divides one coefficient after the other; pull them: u.numpy(), v.numpy()",
    }
