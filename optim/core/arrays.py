"""The few functions that a solver needs of an array library, beyond operators.

Arrays may be lazy: an operator then only builds an expression, and reading a number costs a round
trip to the servers. So solvers keep scalars as rank-0 arrays. They read numbers only for a
decision, together with the vectors that are needed later, by one call of `fetch`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any  # a floating array of any array API library, of rank 1 or more
Scalar: TypeAlias = Any  # a rank-0 array, a NumPy scalar or a Python number
Weights: TypeAlias = float | Array  # also a structure of these, if x is a structure
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
            "PyTorch tensors need the package array-api-compat: pip install array-api-compat"
        ) from error


_EAGER = (np.ndarray, np.generic, float)
"""Classes of values that are never lazy; to ask NumPy's module for ``evaluate`` takes 2 us."""


def _materialise(values: Iterable[Any]) -> None:
    """Evaluate lazy values: one call per array library that has `evaluate`, no cost elsewhere."""
    pending: dict[int, tuple[Namespace, list[Any]]] = {}
    _sort_out(values, pending)
    for xp, group in pending.values():
        xp.evaluate(*group)


def _sort_out(values: Iterable[Any], pending: dict[int, tuple[Namespace, list[Any]]]) -> None:
    """Put lazy values into `pending`, by library; trees (`optim.core.trees`) array by array."""
    for value in values:
        if isinstance(value, _EAGER):
            continue
        if hasattr(value, "leaves"):
            _sort_out(value.leaves, pending)
            continue
        xp = namespace(value)
        if hasattr(xp, "evaluate"):
            pending.setdefault(id(xp), (xp, []))[1].append(value)
        elif hasattr(value, "persist"):
            value.persist()


def persist(*arrays: Array) -> tuple[Array, ...]:
    """Compute lazy arrays now, in one request, so that later expressions start from them."""
    _materialise(arrays)
    return arrays


def fetch(*scalars: Scalar, also: tuple[Array, ...] = ()) -> tuple[float, ...]:
    """Read rank-0 values as floats, and `persist` the arrays in `also`, in one request."""
    _materialise((*also, *scalars))
    return tuple(float(scalar) for scalar in scalars)


def max_norm(x: Array) -> Scalar:
    """The largest absolute value in `x`, as a rank-0 array."""
    xp = namespace(x)
    return xp.max(xp.abs(x))


def vdot(x: Array, y: Array) -> Scalar:
    """The sum of the products of all elements of two arrays of one shape, as a rank-0 array."""
    if len(x.shape) == 1:
        return x @ y
    if isinstance(x, np.ndarray):
        return np.vdot(x, y)
    return namespace(x).tensordot(x, y, axes=len(x.shape))


def size(x: Array) -> int:
    """The number of elements of `x`."""
    return math.prod(x.shape)


def machine_epsilon(x: Array) -> float:
    """The spacing of floating-point numbers next to 1 in the dtype of `x`."""
    return float(namespace(x).finfo(x.dtype).eps)


def smallest_normal(x: Array) -> float:
    """The smallest positive number of full precision in the dtype of `x`: no divisor is less."""
    return float(namespace(x).finfo(x.dtype).smallest_normal)


def zeros_like(x: Array) -> Array:
    """Zeros, as an operator's result: evaluated with the first step that uses them."""
    return 0.0 * x


def reshape_like(values: Any, x: Array) -> Array | None:
    """`values` in the library, dtype and shape of `x`; None if the shape does not fit.

    Beside a table a row or a column is repeated; beside a vector there is one value for each
    element.
    """
    given, wanted = tuple(np.shape(values)), tuple(x.shape)
    if given != wanted and (len(wanted) == 1 or not _repeats(given, wanted)):
        return None
    xp = namespace(x)
    array = xp.astype(xp.asarray(values), x.dtype)
    return array if given == wanted else xp.broadcast_to(array, wanted)


def _repeats(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether an array of shape `given` is broadcast to `wanted`."""
    pairs = zip(reversed(given), reversed(wanted), strict=False)
    return len(given) <= len(wanted) and all(a in (1, b) for a, b in pairs)


def quiet() -> np.errstate:
    """A context in which NumPy does not warn of inf and nan: solvers probe far points and check.

    It covers the objective's calls too: steps to points that are not finite are shortened or
    reported.
    """
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


def as_start(x0: Any, name: str = "x0") -> Array:
    """`x0` as a floating array of rank 1 or more that no caller's later write can change.

    Sequences become NumPy arrays; integers become float64; anything else is refused, by `name`.
    """
    known = hasattr(x0, "__array_namespace__") or _is_tensor(x0)
    x: Any = x0 if known else np.asarray(x0)
    xp = namespace(x)
    if len(x.shape) == 0 or size(x) == 0:
        raise ValueError(
            f"{name} must be an array with at least one element, but has shape {tuple(x.shape)}; "
            "give a single number as a list: [number]"
        )
    if isinstance(x, np.ndarray) and x.dtype.kind not in "fiub":
        raise _wrong_dtype(x, name)
    if xp.isdtype(x.dtype, ("integral", "bool")):
        return xp.astype(x, xp.float64)
    if not xp.isdtype(x.dtype, "real floating"):
        raise _wrong_dtype(x, name)
    if _is_tensor(x):
        return x.detach().clone()
    return np.array(x) if isinstance(x, np.ndarray) else x


def own(given: Any, x: Array, name: str, of: str = "x") -> Array:
    """`given`, checked to be an array shaped as `x`; a NumPy array is copied.

    Errors call the two `name` and `of`. An objective may fill the same buffer each time, and a
    history must not change with it.
    """
    if not hasattr(given, "shape") or not hasattr(given, "dtype"):
        raise TypeError(
            f"{name} must be an array like {of}, got {type(given).__name__}; "
            f"return for instance np.asarray(gradient, dtype={of}.dtype)"
        )
    if tuple(given.shape) != tuple(x.shape):
        raise ValueError(
            f"{name} has shape {tuple(given.shape)}, but {of} has {tuple(x.shape)}; return one "
            f"partial derivative per element of {of}, for example gradient.reshape({of}.shape)"
        )
    return np.array(given) if isinstance(given, np.ndarray) else given


def _wrong_dtype(x: Array, name: str) -> TypeError:
    return TypeError(
        f"{name} must hold real numbers, but has dtype {x.dtype}; give floats, "
        "and split complex numbers into real and imaginary parts"
    )
