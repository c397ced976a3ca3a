"""The array API namespace of a session: what ``x.__array_namespace__()`` returns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from distvec import functions, reductions

if TYPE_CHECKING:
    from distvec.array import DistArray
    from distvec.session import Session

_REDUCTIONS = (
    "sum", "prod", "min", "max", "mean", "any", "all", "argmin", "argmax", "count_nonzero",
    "vecdot",
)  # fmt: skip
_CREATION = ("zeros", "ones", "full", "empty", "arange", "linspace")
_COMPOSED = ("where", "clip", "astype", "zeros_like", "ones_like", "full_like", "evaluate")


class _Linalg:
    """The part of the ``linalg`` extension that vectors have."""

    @staticmethod
    def vector_norm(x: DistArray, *, axis: Any = None, ord: Any = 2) -> DistArray:
        """Vector norm; see ``reductions.norm``."""
        return reductions.norm(x, ord)

    vecdot = staticmethod(reductions.vecdot)


class Namespace:
    """Functions of the array API standard over ranks 0 and 1; creation goes to one session.

    Two namespaces of one session are equal. ``evaluate`` is an addition: it computes several lazy
    arrays in one go, which code that runs on eager arrays too may look for.
    """

    __array_api_version__ = "2024.12"
    float64, float32 = np.dtype(np.float64), np.dtype(np.float32)
    int64, int32, bool = np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.bool_)
    pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None
    linalg = _Linalg()

    def __init__(self, session: Session) -> None:
        self._session = session
        for name, function in functions.TABLE.items():
            setattr(self, name, function)
        for name in _REDUCTIONS:
            setattr(self, name, getattr(reductions, name))
        for name in _COMPOSED:
            setattr(self, name, getattr(functions, name))
        for name in _CREATION:
            setattr(self, name, getattr(session, name))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def asarray(
        self, obj: Any, dtype: Any = None, *, device: Any = None, copy: Any = None
    ) -> DistArray:
        """``obj`` as an array of this session."""
        return self._session.array(obj, dtype)

    def matmul(self, x1: DistArray, x2: DistArray) -> DistArray:
        """Inner product of two vectors."""
        return x1 @ x2

    def isdtype(self, dtype: Any, kind: Any) -> Any:
        """Whether ``dtype`` is of ``kind``, as in NumPy."""
        return np.isdtype(dtype, kind)

    def result_type(self, *arrays_and_dtypes: Any) -> np.dtype[Any]:
        """The dtype of an operation on these, by NumPy's promotion."""
        return np.result_type(*(getattr(one, "dtype", one) for one in arrays_and_dtypes))

    def finfo(self, kind: Any) -> np.finfo[Any]:
        """Limits of a floating dtype."""
        return np.finfo(getattr(kind, "dtype", kind))

    def iinfo(self, kind: Any) -> np.iinfo[Any]:
        """Limits of an integer dtype."""
        return np.iinfo(getattr(kind, "dtype", kind))

    def __eq__(self, other: object) -> Any:
        return isinstance(other, Namespace) and other._session is self._session

    def __hash__(self) -> int:
        return hash(id(self._session))
