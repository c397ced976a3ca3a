"""What is said of NumPy's functions that arrays of the servers do not have: why, and what to type.

Not many need a reason of their own: of the others the values are pulled.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array.handle import Handle

_STORES = frozenset(number for name, number in dis.opmap.items() if name.startswith("STORE_SUBSCR"))
"""What Python runs for ``x[i] = value``."""

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


def refuse_shuffle(value: Any) -> None:
    """``TypeError`` within ``shuffle`` of NumPy or Python, to which ``x[i] = value`` belongs.

    They swap elements one by one, ``x[i], x[j] = x[j], x[i]``: thousands of assignments. NumPy's is
    compiled, so it has no frame of its own: that of its caller stands at the call.
    """
    if not isinstance(value, Handle):
        return
    caller = sys._getframe(2)
    code = caller.f_code
    of_numpy = "shuffle" in code.co_names and code.co_code[caller.f_lasti] not in _STORES
    if of_numpy or (code.co_name == "shuffle" and caller.f_globals.get("__name__") == "random"):
        raise TypeError(
            "shuffle: NumPy's and Python's swap elements one by one, in thousands of messages; "
            "write ps.random.shuffle(x), or ps.random.shuffle(x, axis, seed=seed)"
        )
