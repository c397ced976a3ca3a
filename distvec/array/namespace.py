"""The array API namespace of a session: what ``x.__array_namespace__()`` returns."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from distvec.array import creation as shapes
from distvec.array import functions, products, reductions, statistics, transposed
from distvec.array.handle import Home
from distvec.array.moving import scans, sorting
from distvec.array.numpy_statistics import COMPARISONS, COVARIANCES, NAN_FUNCTIONS, STATISTICS
from distvec.array.operators import Arithmetic
from distvec.array.shaping import grids, joining
from ps_backend.program import ops
from ps_backend.program.reducers import PUBLIC
from ps_backend.program.types import DTYPES

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""Of the array API standard: each holds what the ones before it do."""

_STATISTICS = ("var", "std")
_REDUCTIONS = ("mean", "count_nonzero")
_PRODUCTS = ("matmul", "vecdot", "tensordot")
_SCANS = ("cumulative_sum", "cumulative_prod")
_SORTS = ("sort", "argsort")
_JOINED = ("concat", "stack")
_CREATION = ("zeros", "ones", "full", "empty", "arange", "linspace", "eye")
_LIKE = ("zeros_like", "ones_like", "full_like", "empty_like", "astype")
_COMPOSED = ("where", "clip", "evaluate")
_SHAPES = ("broadcast_arrays", "broadcast_to", "reshape", "squeeze", "expand_dims")
_TRANSPOSED = ("matrix_transpose", "permute_dims")
_DEVICE = "servers"


def shared_names() -> frozenset[str]:
    """Of the functions that have the same names as those of ``distvec``."""
    composed = (
        *STATISTICS,
        *COVARIANCES,
        *NAN_FUNCTIONS,
        *COMPARISONS,
        *_LIKE,
        *_COMPOSED,
        "nan_to_num",
    )
    products = (*_PRODUCTS, "dot", "norm", "outer", "einsum")
    return frozenset((*ops.PUBLIC, *PUBLIC, *_REDUCTIONS, *composed, *products))


class _Linalg:
    """The part of the ``linalg`` extension that vectors and tables have."""

    @staticmethod
    def vector_norm(
        x: Arithmetic, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2
    ) -> Arithmetic:
        """Vector norm; see ``products.vector_norm``."""
        return products.vector_norm(x, ord, axis, keepdims=keepdims)

    vecdot = staticmethod(products.vecdot)
    matmul = staticmethod(products.matmul)
    outer = staticmethod(grids.outer)
    matrix_transpose = staticmethod(transposed.matrix_transpose)


class _Info:
    """What ``__array_namespace_info__()`` returns: devices and dtypes."""

    def capabilities(self) -> dict[str, Any]:
        """What the standard asks: no masks as indices, shapes that are known, rank 2 at most."""
        return {
            "boolean indexing": False,
            "data-dependent shapes": False,
            "max dimensions": shapes.MOST_RANK,
        }

    def default_device(self) -> str:
        """The only device there is."""
        return _DEVICE

    def devices(self) -> list[str]:
        """All devices."""
        return [_DEVICE]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """By kind; there is no complex one."""
        _check_device(device)
        floating, integral = np.dtype(np.float64), np.dtype(np.int64)
        return {"real floating": floating, "integral": integral, "indexing": integral}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype[Any]]:
        """By name; of ``kind`` alone if given."""
        _check_device(device)
        found = {name: np.dtype(name) for name in DTYPES}
        return {name: one for name, one in found.items() if kind is None or np.isdtype(one, kind)}


def check_version(version: str | None) -> None:
    """``ValueError`` for a version of the array API that is not followed here."""
    if version is not None and version not in VERSIONS:
        raise ValueError(
            f"api_version={version!r} is none of {', '.join(VERSIONS)}; leave it out for the last"
        )


def _check_device(device: Any) -> None:
    if device not in (None, _DEVICE):
        raise ValueError(f"device={device!r}: arrays are on the only device, {_DEVICE!r}")


def _dtype_of(one: Any) -> Any:
    """The dtype of an array; all else is what NumPy understands by itself."""
    return one.dtype if isinstance(one, Arithmetic | np.ndarray | np.generic) else one


def _on_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with the keyword ``device``, which can name but one."""

    @functools.wraps(function)
    def checked(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        _check_device(device)
        return function(*args, **kwargs)

    signature = inspect.signature(function)
    device = inspect.Parameter("device", inspect.Parameter.KEYWORD_ONLY, default=None)
    checked.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), device]
    )
    return checked


class Namespace:
    """Functions of the array API standard over ranks 0 to 2; creation goes to one session.

    Two namespaces of one session are equal. ``evaluate`` is an addition: it computes several lazy
    arrays in one go, which code that runs on eager arrays too may look for.
    """

    __name__ = "distvec"  # array-api-compat, and so SciPy, tells libraries apart by it
    __array_api_version__ = VERSIONS[-1]
    pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None
    linalg = _Linalg()

    def __init__(self, session: Home) -> None:
        self._session = session
        for name in DTYPES:
            setattr(self, name, np.dtype(name))
        for name in ops.PUBLIC:
            self._take(name, functions.of_op(name))
        for name in PUBLIC:
            self._take(name, reductions.of_table(name))
        for name in _REDUCTIONS:
            self._take(name, getattr(reductions, name))
        for name in _STATISTICS:
            self._take(name, getattr(statistics, name))
        for name in _PRODUCTS:
            self._take(name, getattr(products, name))
        for name in _SCANS:
            self._take(name, getattr(scans, name))
        for name in _SORTS:
            self._take(name, getattr(sorting, name))
        for name in _JOINED:
            self._take(name, getattr(joining, name))
        for name in _TRANSPOSED:
            setattr(self, name, getattr(transposed, name))
        for name in _COMPOSED:
            self._take(name, getattr(functions, name))
        for name in _SHAPES:
            self._take(name, getattr(shapes, name))
        for name in _LIKE:
            self._take(name, _on_device(getattr(functions, name)))
        for name in _CREATION:
            setattr(self, name, _on_device(getattr(session, name)))

    def _take(self, name: str, function: Callable[..., Any]) -> None:
        """Have a function by that name, of transposes of tables too."""
        setattr(self, name, transposed.of_either(name, function))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __array_namespace_info__(self) -> _Info:
        return _Info()

    def asarray(
        self, obj: Any, /, dtype: Any = None, *, device: Any = None, copy: Any = None
    ) -> Any:
        """``obj`` as an array of this session: itself if it is one, in that dtype.

        ``ValueError`` with ``copy=False`` where it would have to be copied.
        """
        _check_device(device)
        here = isinstance(obj, Arithmetic | transposed.Transposed) and obj.session is self._session
        if here and copy is not True and (dtype is None or np.dtype(dtype) == obj.dtype):
            return obj
        if copy is False:
            why = f"from {obj.dtype} to {dtype}" if here else f"of a {type(obj).__name__}"
            raise ValueError(f"asarray: {why} needs a copy; leave out copy=False")
        return self._session.array(obj, dtype)

    def isdtype(self, dtype: Any, kind: Any) -> Any:
        """Whether ``dtype`` is of ``kind``, as in NumPy."""
        return np.isdtype(dtype, kind)

    def can_cast(self, from_: Any, to: Any, /) -> Any:
        """Whether values of a dtype (or array) can be of another without loss, as in NumPy."""
        return np.can_cast(_dtype_of(from_), to)

    def result_type(self, *arrays_and_dtypes: Any) -> np.dtype[Any]:
        """The dtype of an operation on these, by NumPy's promotion."""
        return np.result_type(*map(_dtype_of, arrays_and_dtypes))

    def finfo(self, type: Any, /) -> np.finfo[Any]:
        """Limits of a floating dtype."""
        return np.finfo(_dtype_of(type))

    def iinfo(self, type: Any, /) -> np.iinfo[Any]:
        """Limits of an integer dtype."""
        return np.iinfo(_dtype_of(type))

    def __repr__(self) -> str:
        return f"<array API namespace of {self._session!r}>"

    def __eq__(self, other: object) -> Any:
        return isinstance(other, Namespace) and other._session is self._session

    def __hash__(self) -> int:
        return hash(id(self._session))
