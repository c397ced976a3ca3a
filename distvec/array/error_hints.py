"""Hints for names of NumPy (or Spark) that distvec does not have: the code to write instead.

Few of NumPy's functions need a reason of their own; for the others the hint is to pull the values.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Set
from typing import Any

import numpy as np

from distvec.array.core.handle import Handle

_CREATION = frozenset("array asarray zeros ones empty full arange linspace".split())
_IN_SESSION = "arrays are made in a session: ps = distvec.local(), then ps"
_OF_CONTEXT = frozenset("round run share".split())
_OF_ARRAY = {"collect": "numpy", "to_numpy": "numpy", "toPandas": "numpy", "values": "numpy"}

_INSTEAD = {
    "view": "memory cannot be viewed in another dtype; convert the elements: x.astype(dtype); for "
    "the same dtype write x.copy()",
    "setflags": "arrays are always writable; to protect the values, give others a copy: x.copy()",
    "resize": "the length of an array cannot change; write y = numpy.resize(x, shape)",
    "__dlpack__": "the elements are on the servers; pull them: x.numpy()",
    "__dlpack_device__": "the elements are on the servers; pull them: x.numpy()",
}


def module_hint(name: str) -> str:
    """For ``distvec.NAME``."""
    missing = f"module 'distvec' has no attribute {name!r}"
    if name in _CREATION:
        return f"{missing}: {_IN_SESSION}.{name}(...)"
    if name in ("random", "rand", "randn"):
        return f"{missing}: {_IN_SESSION}.random.normal(n) or ps.random.uniform(n)"
    if name in ("session", "Server", "client"):
        return f"{missing}: open a session with distvec.local() or distvec.connect('host:port')"
    if name == "kernel":
        return (
            f"{missing}: write the function with NumPy operations and @distvec.rows, or ask the "
            f"operator of the servers to load it: distvec.rows.api('package.module.function')"
        )
    if name == "linalg":
        return f"{missing}: write distvec.norm(x), or numpy.linalg.norm(x)"
    if not name.startswith("_") and hasattr(np, name):
        return f"{missing}: {_of_numpy(name)}"
    return missing


def session_hint(name: str, functions: Set[str]) -> str:
    """For ``ps.NAME``; ``functions`` are distvec's."""
    missing = f"'Session' object has no attribute {name!r}"
    if name.startswith("_"):
        return missing
    if name in functions:
        return f"{missing}: write distvec.{name}(...)"
    if name in _OF_CONTEXT:
        return (
            f"{missing}: it belongs to Spark sessions; "
            f"use ps = distvec.spark.PSContext.get_or_create(spark)"
        )
    return f"{missing}: {_of_numpy(name)}" if hasattr(np, name) else missing


def array_hint(name: str) -> str:
    """For ``x.NAME``."""
    missing = f"'DistArray' object has no attribute {name!r}"
    if name in _INSTEAD:
        return f"{missing}: {_INSTEAD[name]}"
    if name in _OF_ARRAY:
        return f"{missing}: pull the values with x.{_OF_ARRAY[name]}()"
    if not name.startswith("_") and hasattr(np.ndarray, name):
        return f"{missing}: it is not available on the servers; pull the values: x.numpy().{name}"
    return missing


def _of_numpy(name: str) -> str:
    value = getattr(np, name)
    if isinstance(value, type) and issubclass(value, np.generic):
        return f"use the dtype of NumPy: numpy.{name}"
    if callable(value):
        return f"write numpy.{name}(x)"
    return f"write numpy.{name}"


_STORES = frozenset(number for name, number in dis.opmap.items() if name.startswith("STORE_SUBSCR"))
"""What Python runs for ``x[i] = value``."""

_DATES = "dates are not available on the servers; call it on dates on the client"
_FILES = "writes values on the client; pull them, all or block by block: x.numpy(), x.blocks()"
_COMPLEX = "has complex results, which are not available on the servers"


def missing_function(func: Callable[..., Any]) -> str:
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
        np.atleast_3d: "arrays have at most 2 axes; write numpy.atleast_2d(x)",
        np.linalg.eig: f"{_COMPLEX}; for a symmetric matrix write numpy.linalg.eigh(A), otherwise "
        "pull the values: A.numpy()",
        np.linalg.eigvals: f"{_COMPLEX}; for a symmetric matrix write numpy.linalg.eigvalsh(A), "
        "otherwise pull the values: A.numpy()",
        np.apply_along_axis: "calls a Python function for each row; write it for the whole "
        "table, as in numpy.sum(T, axis=1), or pull the values: T.numpy()",
        np.sort_complex: "gives complex numbers, which are not available on the servers; for real "
        "numbers write numpy.sort(x)",
        np.polydiv: "divides coefficients one by one; pull them: u.numpy(), v.numpy()",
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
            "shuffle of NumPy and of Python swaps elements one by one, with thousands of requests; "
            "write ps.random.shuffle(x), or ps.random.shuffle(x, axis, seed=seed)"
        )
