"""What a solver's steps depend on, as text: that two runs may be compared by it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

_LONG = 200


def parameters(solver: Any) -> dict[str, str]:
    """The parameters of `solver` by name, without those that only say when to stop.

    Functions are "a function", whatever they do; arrays on servers are known by shape and dtype.
    """
    names = (own.name for own in fields(solver) if own.name not in solver.stops)
    return {name: _text(getattr(solver, name)) for name in names}


def _text(value: Any) -> str:
    text = _described(value)
    if len(text) <= _LONG:
        return text
    return f"{text[: _LONG // 2]}... (CRC-32 {zlib.crc32(text.encode()):08x})"


def _described(value: Any) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        own = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
        return f"{type(value).__name__}({_listed(own)})"
    if isinstance(value, (np.ndarray, np.generic)):
        crc = zlib.crc32(value.tobytes())
        return f"array(shape={value.shape}, dtype={value.dtype}, CRC-32 {crc:08x})"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"array(shape={tuple(value.shape)}, dtype={value.dtype})"
    if isinstance(value, Mapping):
        return f"{{{_listed({repr(key): one for key, one in value.items()})}}}"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_described, value))}]"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if callable(value):
        return "a function"
    if hasattr(value, "lb") and hasattr(value, "ub"):  # scipy.optimize.Bounds
        return _described({"lb": value.lb, "ub": value.ub})
    return f"a {type(value).__name__}"


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_described(value)}" for name, value in values.items())
