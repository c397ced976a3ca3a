"""The array API namespace of a session, which ``x.__array_namespace__()`` returns.

The standard's functions have the names of NumPy's, with fewer parameters; a table lists them.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from inspect import Parameter, Signature
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from distvec.array import elementwise, reductions, take_put
from distvec.array.collectives import sort
from distvec.array.core import type_queries
from distvec.array.core.handle import SessionBase
from distvec.array.core.operators import Arithmetic
from distvec.array.core.shapes import MOST_RANK
from distvec.array.dispatch.functions import COMPARISONS, STATISTICS, counterparts
from ps_backend.program import ops
from ps_backend.program.reducers import PUBLIC
from ps_backend.program.types import DTYPES

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""Of the array API standard: each holds what the ones before it do."""

DEVICE = "servers"
"""The only one that there is."""

_FUNCTIONS = """
all(x, /, *, axis=None, keepdims=False)
any(x, /, *, axis=None, keepdims=False)
argmax(x, /, *, axis=None, keepdims=False)
argmin(x, /, *, axis=None, keepdims=False)
argsort(x, /, *, axis=-1, descending=False, stable=True)
broadcast_arrays(*arrays)
broadcast_to(x, /, shape)
clip(x, /, min=None, max=None)
concat(arrays, /, *, axis=0)
count_nonzero(x, /, *, axis=None, keepdims=False)
cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False)
cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False)
diff(x, /, *, axis=-1, n=1, prepend=None, append=None)
empty_like(x, /, *, dtype=None, device=None)
expand_dims(x, /, axis)
flip(x, /, *, axis=None)
full_like(x, /, fill_value, *, dtype=None, device=None)
imag(x, /)
matmul(x1, x2, /)
matrix_transpose(x, /)
max(x, /, *, axis=None, keepdims=False)
mean(x, /, *, axis=None, keepdims=False)
meshgrid(*arrays, indexing="xy")
min(x, /, *, axis=None, keepdims=False)
moveaxis(x, source, destination, /)
nonzero(x, /)
ones_like(x, /, *, dtype=None, device=None)
permute_dims(x, /, axes)
prod(x, /, *, axis=None, dtype=None, keepdims=False)
real(x, /)
repeat(x, repeats, /, *, axis=None)
reshape(x, /, shape, *, copy=None)
roll(x, /, shift, *, axis=None)
round(x, /)
searchsorted(x1, x2, /, *, side="left", sorter=None)
sort(x, /, *, axis=-1, descending=False, stable=True)
squeeze(x, /, axis=None)
stack(arrays, /, *, axis=0)
std(x, /, *, axis=None, correction=0.0, keepdims=False)
sum(x, /, *, axis=None, dtype=None, keepdims=False)
take(x, indices, /, *, axis=None)
take_along_axis(x, indices, /, *, axis=-1)
tensordot(x1, x2, /, *, axes=2)
tile(x, repetitions, /)
tril(x, /, *, k=0)
triu(x, /, *, k=0)
unique_all(x, /)
unique_counts(x, /)
unique_inverse(x, /)
unique_values(x, /)
unstack(x, /, *, axis=0)
var(x, /, *, axis=None, correction=0.0, keepdims=False)
vecdot(x1, x2, /, *, axis=-1)
where(condition, x1, x2, /)
zeros_like(x, /, *, dtype=None, device=None)
"""

_LINALG = """
cholesky(x, /, *, upper=False)
cross(x1, x2, /, *, axis=-1)
det(x, /)
diagonal(x, /, *, offset=0)
eigh(x, /)
eigvalsh(x, /)
inv(x, /)
matmul(x1, x2, /)
matrix_norm(x, /, *, keepdims=False, ord="fro")
matrix_power(x, n, /)
matrix_rank(x, /, *, rtol=None)
matrix_transpose(x, /)
outer(x1, x2, /)
pinv(x, /, *, rtol=None)
qr(x, /, *, mode="reduced")
slogdet(x, /)
solve(x1, x2, /)
svd(x, /, *, full_matrices=True)
svdvals(x, /)
tensordot(x1, x2, /, *, axes=2)
trace(x, /, *, offset=0, dtype=None)
vecdot(x1, x2, /, *, axis=-1)
vector_norm(x, /, *, axis=None, keepdims=False, ord=2)
"""

_OF_SESSION = """
arange(start, /, stop=None, step=1, *, dtype=None, device=None)
asarray(obj, /, *, dtype=None, device=None, copy=None)
empty(shape, *, dtype=None, device=None)
eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)
from_dlpack(x, /, *, device=None, copy=None)
full(shape, fill_value, *, dtype=None, device=None)
linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True)
ones(shape, *, dtype=None, device=None)
zeros(shape, *, dtype=None, device=None)
"""
"""Methods of sessions, but for ``asarray`` and ``from_dlpack``."""


def shared_names() -> frozenset[str]:
    """Return the names of functions that ``distvec`` has, too."""
    composed = (*STATISTICS, *COMPARISONS, "nan_to_num", "evaluate")
    alike = "zeros_like ones_like full_like empty_like astype where clip mean count_nonzero".split()
    products = "matmul vecdot tensordot dot norm outer einsum".split()
    return frozenset((*ops.PUBLIC, *PUBLIC, *composed, *alike, *products))


class Namespace:
    """Provide the functions of the array API standard for ranks 0 to 2, in one session.

    Two namespaces of one session are equal. Further reductions and elementwise functions are the
    functions of ``distvec``. ``evaluate`` is an addition: it computes several lazy arrays together;
    code that also runs on eager arrays can test for it.
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
            setattr(self, name, elementwise.op_function(name))
        for name in PUBLIC:
            setattr(self, name, reductions.reduction_function(name))
        for function in _standard_functions(np, _FUNCTIONS):
            setattr(self, function.__name__, function)
        for function in (
            elementwise.evaluate,
            astype,
            can_cast,
            finfo,
            iinfo,
            isdtype,
            result_type,
        ):
            setattr(self, function.__name__, function)
        linalg = _standard_functions(np.linalg, _LINALG)
        self.linalg = SimpleNamespace(**{function.__name__: function for function in linalg})
        for text in _OF_SESSION.split("\n")[1:-1]:
            name = text.partition("(")[0]
            own = _CREATION.get(name)
            made = getattr(session, name, None) if own is None else partial(own, session)
            if made is not None:  # of tracers a session makes no arrays
                setattr(self, name, _with_signature(text, made))

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


# --- functions with the parameters of the standard ------------------------------------------------


@cache
def _standard_functions(numpy: Any, texts: str) -> tuple[Callable[..., Any], ...]:
    """The functions of a table; those of ``numpy``, which is NumPy or its ``linalg``."""
    return tuple(_standard_function(numpy, text) for text in texts.split("\n")[1:-1])


def _standard_function(numpy: Any, text: str) -> Callable[..., Any]:
    name = text.partition("(")[0]
    own = _OWN.get(name) or counterparts().get(getattr(numpy, name))
    ours: Callable[..., Any] = own or counterparts()[getattr(np.linalg, name)]

    def called(*args: Any, **kwargs: Any) -> Any:
        among = args[0] if args and isinstance(args[0], list | tuple) else args
        if not any(isinstance(one, Arithmetic) for one in among):
            kinds = ", ".join(type(one).__name__ for one in among)
            raise TypeError(
                f"{name}: needs an array on the servers, got ({kinds}); create one with "
                "asarray(...)"
            )
        return ours(*args, **kwargs)

    called.__doc__ = ours.__doc__
    return _with_signature(text, called, _RESULTS.get(name))


def _with_signature(
    text: str, function: Callable[..., Any], result_as: Callable[[Any], Any] | None = None
) -> Callable[..., Any]:
    """``function``, called as ``text`` says. It gets no keywords that are what they are by default,
    and no device: there is one.
    """
    name, _, rest = text.partition("(")
    signature = Signature(_parameters(rest.removesuffix(")")))
    parameters = signature.parameters.values()
    defaults = {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}
    is_variadic = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    others = [one for one in parameters if one.name not in defaults]
    least, most = sum(one.default is one.empty for one in others), len(others)

    def called(*args: Any, **kwargs: Any) -> Any:
        if not (kwargs.keys() <= defaults.keys() and (least <= len(args) <= most or is_variadic)):
            bound = signature.bind(*args, **kwargs)  # a parameter by its name, or a TypeError
            args, kwargs = bound.args, bound.kwargs
        if is_variadic and not args:
            return []
        check_device(kwargs.pop("device", None))
        given = {key: one for key, one in kwargs.items() if one is not defaults[key]}
        result = function(*args, **given)
        return result if result_as is None else result_as(result)

    called.__name__ = called.__qualname__ = name
    called.__doc__ = function.__doc__
    called.__signature__ = signature  # type: ignore[attr-defined]
    return called


def _parameters(text: str) -> list[Parameter]:
    kind: Any = Parameter.POSITIONAL_OR_KEYWORD
    found: list[Parameter] = []
    for part in text.split(", "):
        name, has_default, default = part.partition("=")
        if part == "/":
            found = [one.replace(kind=Parameter.POSITIONAL_ONLY) for one in found]
        elif part == "*":
            kind = Parameter.KEYWORD_ONLY
        elif part.startswith("*"):
            found.append(Parameter(part[1:], Parameter.VAR_POSITIONAL))
            kind = Parameter.KEYWORD_ONLY
        else:
            value = ast.literal_eval(default) if has_default else Parameter.empty
            found.append(Parameter(name, kind, default=value))
    return found


def _take(x: Any, indices: Any, *, axis: int | None = None) -> Any:
    """Take elements, rows or columns at ``indices``, a vector; only a vector needs no axis."""
    if axis is None and x.ndim != 1:
        raise ValueError(f"take: axis is required for an array of rank {x.ndim}")
    return take_put.take(x, indices, axis)


def _vector_norm(x: Any, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """The norm of all elements as one vector, or of each vector along ``axis``."""
    if x.ndim == 0 or axis == ():  # each element is a vector
        kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
        return np.abs(x.astype(kind)) if ord != 0 else (x != 0).astype(kind)
    return np.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=ord)


_OWN: dict[str, Callable[..., Any]] = {
    "argsort": sort.argsort,
    "clip": elementwise.clip,
    "sort": sort.sort,
    "take": _take,
    "vector_norm": _vector_norm,
    "where": elementwise.where,
}
"""Those with parameters that NumPy's have not, or not so."""

_RESULTS: dict[str, Callable[[Any], Any]] = {
    "broadcast_arrays": list,
    "flip": lambda x: x.copy(),  # an array of its own, that may be assigned to
    "meshgrid": list,
}


# --- creation -------------------------------------------------------------------------------------


def _as_array(session: Any, obj: Any, *, dtype: Any = None, copy: bool | None = None) -> Any:
    """Return ``obj`` as an array of this session: itself if it is one, in that dtype.

    ``ValueError`` with ``copy=False`` if a copy is needed.
    """
    here = isinstance(obj, Arithmetic) and obj.session is session
    if here and copy is not True and (dtype is None or np.dtype(dtype) == obj.dtype):
        return obj
    if copy is False:
        why = f"from {obj.dtype} to {dtype}" if here else f"of a {type(obj).__name__}"
        raise ValueError(f"asarray: {why} needs a copy; leave out copy=False")
    if here and obj.is_split_by_columns:
        return obj.copy() if dtype is None else obj.astype(dtype)
    return session.array(obj, dtype)


def _from_dlpack(session: Any, x: Any, *, copy: bool | None = None) -> Any:
    """Copy an array of another library to this session.

    ``BufferError`` with ``copy=False``, unless it is an array of the session.
    """
    if isinstance(x, Arithmetic) and x.session is session:
        return x.copy() if copy else x
    if copy is False:
        raise BufferError("from_dlpack: the servers take a copy; leave out copy=False")
    return session.array(np.from_dlpack(x))


_CREATION: dict[str, Callable[..., Any]] = {"asarray": _as_array, "from_dlpack": _from_dlpack}


# --- dtypes, devices, capabilities ----------------------------------------------------------------


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """``x`` in another dtype; itself with ``copy=False`` if it has it. Lazy."""
    check_device(device)
    return x if not copy and x.dtype == dtype else x.astype(dtype)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether values of a dtype (or array) can be of another without loss, as in NumPy."""
    return type_queries.can_cast(from_, to)


@dataclass(frozen=True)
class FloatLimits:
    """The result of ``finfo``; all numbers are Python's, as the standard requires."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


def finfo(type: Any, /) -> FloatLimits:
    """Limits of a floating dtype."""
    found = np.finfo(type_queries.dtype_of(type))
    return FloatLimits(
        bits=int(found.bits),
        eps=float(found.eps),
        max=float(found.max),
        min=float(found.min),
        smallest_normal=float(found.smallest_normal),
        dtype=np.dtype(found.dtype),
    )


def iinfo(type: Any, /) -> Any:
    """Limits of an integer dtype."""
    return np.iinfo(type_queries.dtype_of(type))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether ``dtype`` is of ``kind``, as in NumPy; a tuple of no kinds has no dtypes."""
    return kind != () and bool(np.isdtype(dtype, kind))


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype of an operation on these, by NumPy's promotion."""
    return type_queries.result_type(*arrays_and_dtypes)


class Info:
    """The result of ``__array_namespace_info__()``."""

    def capabilities(self) -> dict[str, Any]:
        """Return the capabilities: masks as indices, data-dependent shapes; at most two axes."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": MOST_RANK,
        }

    def default_device(self) -> str:
        """The only device there is."""
        return DEVICE

    def devices(self) -> list[str]:
        """All devices."""
        return [DEVICE]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """By kind; there is no complex one."""
        check_device(device)
        kinds = {"real floating": "float64", "integral": "int64", "indexing": "int64"}
        return {kind: np.dtype(name) for kind, name in kinds.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype[Any]]:
        """Return the standard's dtypes by name, or those of ``kind``."""
        check_device(device)
        found = {name: np.dtype(name) for name in DTYPES if name != "float16"}
        return {name: one for name, one in found.items() if kind is None or isdtype(one, kind)}


def check_version(version: str | None) -> None:
    """``ValueError`` for a version of the array API that is not followed here."""
    if version is not None and version not in VERSIONS:
        raise ValueError(
            f"api_version must be one of {', '.join(VERSIONS)}, got {version!r}; leave it out for "
            "the newest"
        )


def check_device(device: Any) -> None:
    """``ValueError`` for a device that there is not."""
    if device not in (None, DEVICE):
        raise ValueError(f"device must be {DEVICE!r}, the only one; got {device!r}")
