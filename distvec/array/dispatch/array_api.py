"""The array API namespace of a session: what ``x.__array_namespace__()`` returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from distvec.array import reductions
from distvec.array.core.handle import SessionBase
from distvec.array.dispatch.column_split import of_either_split
from distvec.array.elementwise import COMPARISONS, evaluate, of_op
from distvec.array.standard import (
    creation,
    data_types,
    elementwise,
    linalg,
    manipulation,
    searching,
    statistics,
)
from distvec.array.standard.info import VERSIONS, Info
from distvec.array.statistics import COVARIANCES, NAN_FUNCTIONS, STATISTICS
from ps_backend.program import ops
from ps_backend.program.reducers import PUBLIC
from ps_backend.program.types import DTYPES

_MODULES = {
    elementwise: "clip imag real round",
    manipulation: " ".join(manipulation.__all__),
    searching: "argsort nonzero searchsorted sort take take_along_axis unique_all unique_counts "
    "unique_inverse unique_values where",
    statistics: "all any argmax argmin count_nonzero cumulative_prod cumulative_sum diff max mean "
    "min prod std sum var",
    linalg: "matmul tensordot vecdot",
    creation: "empty_like full_like ones_like tril triu zeros_like",
}
"""What each module of the standard's functions gives to the namespace."""

_DATA_TYPES = "astype can_cast finfo iinfo isdtype result_type"
_OF_SESSION = "arange asarray empty eye from_dlpack full linspace ones zeros"


def shared_names() -> frozenset[str]:
    """Of the functions that have the same names as those of ``distvec``."""
    composed = (*STATISTICS, *COVARIANCES, *NAN_FUNCTIONS, *COMPARISONS, "nan_to_num", "evaluate")
    alike = "zeros_like ones_like full_like empty_like astype where clip mean count_nonzero".split()
    products = "matmul vecdot tensordot dot norm outer einsum".split()
    return frozenset((*ops.PUBLIC, *PUBLIC, *composed, *alike, *products))


class Namespace:
    """Functions of the array API standard over ranks 0 to 2; creation goes to one session.

    Two namespaces of one session are equal. Reductions and elementwise functions beyond the
    standard are those of ``distvec``. ``evaluate`` is an addition: it computes several lazy arrays
    in one go, which code that runs on eager arrays too may look for.
    """

    __name__ = "distvec"  # array-api-compat, and so SciPy, tells libraries apart by it
    __array_api_version__ = VERSIONS[-1]
    pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None
    value_and_grad: Callable[..., Any]
    hessian_product: Callable[..., Any]
    keeper: Callable[..., Any]
    """Those of ``distvec``, and of the session, which gives them to it: so ``optim`` finds them."""

    def __init__(self, session: SessionBase) -> None:
        self._session = session
        for name in DTYPES:
            setattr(self, name, np.dtype(name))
        for name in ops.PUBLIC:
            self._take(name, of_op(name))
        for name in PUBLIC:
            self._take(name, reductions.of_table(name))
        for module, names in _MODULES.items():
            for name in names.split():
                self._take(name, getattr(module, name))
        self._take("evaluate", evaluate)
        for name in _DATA_TYPES.split():
            setattr(self, name, getattr(data_types, name))
        self.linalg = SimpleNamespace(
            **{name: of_either_split(name, getattr(linalg, name)) for name in linalg.__all__}
        )
        made = creation.Creation(session)
        for name in _OF_SESSION.split():
            setattr(self, name, getattr(made, name))

    def _take(self, name: str, function: Callable[..., Any]) -> None:
        """Have a function by that name, of transposes of tables too."""
        setattr(self, name, of_either_split(name, function))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __array_namespace_info__(self) -> Info:
        return Info()

    def __repr__(self) -> str:
        return f"<array API namespace of {self._session!r}>"

    def __eq__(self, other: object) -> Any:
        return isinstance(other, Namespace) and other._session is self._session

    def __hash__(self) -> int:
        return hash(id(self._session))
