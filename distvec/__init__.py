"""Math written like NumPy, over vectors that live on parameter servers.

Open a session with ``local`` or ``connect``, make arrays with its methods, write expressions; what
they cost is known before they run (``x.explain()``) and counted when they do (``ps.counters``).
"""

from collections.abc import Callable
from typing import Any

from distvec.neighbours import check_neighbours

check_neighbours(__file__)  # before anything of ps_backend is imported

from distvec.array import elementwise, error_hints, reductions
from distvec.array.array import DistArray
from distvec.array.collectives.scan import linear_recurrence
from distvec.array.collectives.sort import top_k
from distvec.array.elementwise import (
    allclose,
    array_equal,
    array_equiv,
    astype,
    clip,
    evaluate,
    full_like,
    isclose,
    nan_to_num,
    ones_like,
    where,
    zeros_like,
)
from distvec.array.linalg.decompositions import norm
from distvec.array.linalg.einsum import einsum
from distvec.array.manipulation.grids import outer
from distvec.array.products import dot, matmul, row_dot, tensordot, vdot, vecdot
from distvec.array.random import AliasTable
from distvec.array.reductions import count_nonzero, log_softmax, logsumexp, mean, softmax
from distvec.array.statistics import (
    average,
    corrcoef,
    cov,
    nanargmax,
    nanargmin,
    nanmean,
    nanprod,
    nanstd,
    nansum,
    nanvar,
    ptp,
    std,
    var,
)
from distvec.autodiff.functions import grad, hessian_product, value_and_grad
from distvec.dashboard.dashboard import metrics
from distvec.diagnostics.profile import profile
from distvec.durability.load import load
from distvec.durability.save import save
from distvec.keyed.array import KeyedArray
from distvec.keyed.space import KeyedSpace, normal, uniform
from distvec.opening import attach, connect, local
from distvec.rows.api import rows
from distvec.session import Session
from ps_backend.errors import (
    AuthenticationError,
    BufferLost,
    CheckpointIncomplete,
    Corrupted,
    InvalidProgram,
    LayoutChanged,
    NotDurable,
    OutOfBudget,
    PSError,
    RoundClosed,
    ServerDraining,
    ServerLost,
    SessionExpired,
    SessionFenced,
    SessionUnknown,
    StaleRequest,
    StoreFailed,
)
from ps_backend.program import ops, reducers

__version__ = "0.1.0"

__all__ = [
    "AliasTable",
    "AuthenticationError",
    "BufferLost",
    "CheckpointIncomplete",
    "Corrupted",
    "DistArray",
    "InvalidProgram",
    "KeyedArray",
    "KeyedSpace",
    "LayoutChanged",
    "NotDurable",
    "OutOfBudget",
    "PSError",
    "RoundClosed",
    "ServerDraining",
    "ServerLost",
    "Session",
    "SessionExpired",
    "SessionFenced",
    "SessionUnknown",
    "StaleRequest",
    "StoreFailed",
    "allclose",
    "array_equal",
    "array_equiv",
    "astype",
    "attach",
    "average",
    "clip",
    "connect",
    "corrcoef",
    "count_nonzero",
    "cov",
    "dot",
    "einsum",
    "evaluate",
    "full_like",
    "grad",
    "hessian_product",
    "isclose",
    "linear_recurrence",
    "load",
    "local",
    "log_softmax",
    "logsumexp",
    "matmul",
    "mean",
    "metrics",
    "nan_to_num",
    "nanargmax",
    "nanargmin",
    "nanmean",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
    "norm",
    "normal",
    "ones_like",
    "outer",
    "profile",
    "ptp",
    "row_dot",
    "rows",
    "save",
    "softmax",
    "std",
    "tensordot",
    "top_k",
    "uniform",
    "value_and_grad",
    "var",
    "vdot",
    "vecdot",
    "where",
    "zeros_like",
    *sorted((*ops.PUBLIC, *reducers.PUBLIC)),
]

# Modules of these names are no part of the face: `distvec.array([1.0])` shall say what to type.
for _name in ("array", "random", "session"):
    globals().pop(_name, None)
del _name


def __getattr__(name: str) -> Callable[..., Any]:
    """A function or reduction: a row of its table is all that one takes."""
    if name in ops.PUBLIC:
        return elementwise.op_function(name)
    if name in reducers.PUBLIC:
        return reductions.reduction_function(name)
    raise AttributeError(error_hints.module_hint(name), name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *ops.PUBLIC, *reducers.PUBLIC})
