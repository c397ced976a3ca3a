"""What to type instead, where somebody who knows NumPy (or Spark) types what is not there."""

from __future__ import annotations

from collections.abc import Set

import numpy as np

_CREATION = frozenset("array asarray zeros ones empty full arange linspace".split())
_IN_SESSION = "arrays are made in a session: ps = distvec.local(), then ps"
_OF_CONTEXT = frozenset("round run share".split())
_OF_ARRAY = {"collect": "numpy", "to_numpy": "numpy", "toPandas": "numpy", "values": "numpy"}

_INSTEAD = {
    "view": "elements are not seen in another dtype; convert them: x.astype(dtype); or take the "
    "array itself: x.copy()",
    "setflags": "an array is changed by who holds it; give others a copy: x.copy()",
    "resize": "an array keeps its length; put another one together, or pull the values: "
    "numpy.resize(x.numpy(), shape)",
    "__dlpack__": "the elements are on the servers; pull them: x.numpy()",
    "__dlpack_device__": "the elements are on the servers; pull them: x.numpy()",
}


def of_module(name: str) -> str:
    """For ``distvec.NAME``."""
    missing = f"module 'distvec' has no attribute {name!r}"
    if name in _CREATION:
        return f"{missing}: {_IN_SESSION}.{name}(...)"
    if name in ("random", "rand", "randn"):
        return f"{missing}: {_IN_SESSION}.random.normal(n) or ps.random.uniform(n)"
    if name in ("session", "Server", "client"):
        return f"{missing}: open a session by distvec.local() or distvec.connect('host:port')"
    if name == "kernel":
        return (
            f"{missing}: write the function with NumPy's operations as @distvec.rows, or let the "
            f"servers' operator load it: distvec.rows.api('package.module.function')"
        )
    if name == "linalg":
        return f"{missing}: write distvec.norm(x), or numpy.linalg.norm(x)"
    if not name.startswith("_") and hasattr(np, name):
        return f"{missing}: {_of_numpy(name)}"
    return missing


def of_session(name: str, functions: Set[str]) -> str:
    """For ``ps.NAME``; ``functions`` are distvec's."""
    missing = f"'Session' object has no attribute {name!r}"
    if name.startswith("_"):
        return missing
    if name in functions:
        return f"{missing}: write distvec.{name}(...)"
    if name in _OF_CONTEXT:
        return (
            f"{missing}: it is for Spark's tasks; "
            f"ps = distvec.spark.PSContext.get_or_create(spark) has it"
        )
    return f"{missing}: {_of_numpy(name)}" if hasattr(np, name) else missing


def of_array(name: str) -> str:
    """For ``x.NAME``."""
    missing = f"'DistArray' object has no attribute {name!r}"
    if name in _INSTEAD:
        return f"{missing}: {_INSTEAD[name]}"
    if name in _OF_ARRAY:
        return f"{missing}: pull the values with x.{_OF_ARRAY[name]}()"
    if not name.startswith("_") and hasattr(np.ndarray, name):
        return f"{missing}: the servers do not have it; pull the values: x.numpy().{name}"
    return missing


def _of_numpy(name: str) -> str:
    value = getattr(np, name)
    if isinstance(value, type) and issubclass(value, np.generic):
        return f"dtypes are NumPy's: numpy.{name}"
    if callable(value):
        return f"write numpy.{name}(x), which works, or says what to write"
    return f"write numpy.{name}"
