"""The few things a solver asks of an array library, beyond operators.

Arrays may be lazy: an operator then only builds an expression, and reading a number costs a round
trip to wherever the data lives. So solvers keep scalars as rank-0 arrays and read numbers only
where a decision is taken, together with the vectors needed later, by one call of `fetch`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any  # a rank-1 floating array of any array API library
Scalar: TypeAlias = Any  # a rank-0 array, a NumPy scalar or a Python number
Namespace: TypeAlias = Any  # a module that follows the array API standard


def namespace(x: Array) -> Namespace:
    """The array API namespace of `x`; NumPy for anything that does not say.

    PyTorch's tensors do not say; they need the package array-api-compat.
    """
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    return _namespace_of_torch() if _is_tensor(x) else np


def _is_tensor(x: Any) -> bool:
    return any(cls.__module__.partition(".")[0] == "torch" for cls in type(x).__mro__)


def _namespace_of_torch() -> Namespace:
    try:
        return importlib.import_module("array_api_compat.torch")
    except ImportError as error:
        raise ImportError(
            "PyTorch's tensors need array-api-compat here: pip install array-api-compat"
        ) from error


def _materialise(values: Iterable[Any]) -> None:
    """Evaluate lazy values: one call per array library that has `evaluate`, no cost elsewhere."""
    pending: dict[int, tuple[Namespace, list[Any]]] = {}
    for value in values:
        xp = namespace(value)
        if hasattr(xp, "evaluate"):
            pending.setdefault(id(xp), (xp, []))[1].append(value)
        elif hasattr(value, "persist"):
            value.persist()
    for xp, group in pending.values():
        xp.evaluate(*group)


def persist(*arrays: Array) -> tuple[Array, ...]:
    """Compute lazy arrays now, in one message, so that later expressions start from them."""
    _materialise(arrays)
    return arrays


def fetch(*scalars: Scalar, also: tuple[Array, ...] = ()) -> tuple[float, ...]:
    """Read rank-0 values as floats, and `persist` the arrays in `also`, in one message."""
    _materialise((*also, *scalars))
    return tuple(float(scalar) for scalar in scalars)


def max_norm(x: Array) -> Scalar:
    """The largest absolute value in `x`, as a rank-0 array."""
    xp = namespace(x)
    return xp.max(xp.abs(x))


def machine_epsilon(x: Array) -> float:
    """The spacing of floating-point numbers next to 1 in the dtype of `x`."""
    return float(namespace(x).finfo(x.dtype).eps)


def smallest_normal(x: Array) -> float:
    """The smallest positive number of full precision in the dtype of `x`: no divisor is less."""
    return float(namespace(x).finfo(x.dtype).smallest_normal)


def quiet() -> np.errstate:
    """A context where NumPy does not warn of inf and nan: solvers probe far points and check.

    It covers the objective's calls too: what is not finite there is shortened or reported.
    """
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


def as_start(x0: Any) -> Array:
    """`x0` as a rank-1 floating array that no caller's later write can change.

    Sequences become NumPy arrays; integers become float64; anything else is refused.
    """
    known = hasattr(x0, "__array_namespace__") or _is_tensor(x0)
    x: Any = x0 if known else np.asarray(x0)
    xp = namespace(x)
    if len(x.shape) != 1 or x.shape[0] == 0:
        raise ValueError(
            f"x0 must be a vector with at least one element, but has shape {tuple(x.shape)}; "
            "give x0.reshape(-1), and reshape inside the objective"
        )
    if isinstance(x, np.ndarray) and x.dtype.kind not in "fiub":
        raise _wrong_dtype(x)
    if xp.isdtype(x.dtype, ("integral", "bool")):
        return xp.astype(x, xp.float64)
    if not xp.isdtype(x.dtype, "real floating"):
        raise _wrong_dtype(x)
    if _is_tensor(x):
        return x.detach().clone()
    return np.array(x) if isinstance(x, np.ndarray) else x


def _wrong_dtype(x: Array) -> TypeError:
    return TypeError(
        f"x0 must hold real numbers, but has dtype {x.dtype}; give floats, "
        "and split complex numbers into real and imaginary parts"
    )
