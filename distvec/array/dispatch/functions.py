"""NumPy's functions and ours: the table of both, and ``__array_function__``, which looks it up."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from types import ModuleType
from typing import Any

import numpy as np

from distvec.array import (
    elementwise,
    error_hints,
    polynomials,
    products,
    reductions,
    sequences,
    statistics,
    take_put,
    transposed,
)
from distvec.array import repr as texts
from distvec.array.collectives import counting, histogram, quantile, scan, search, sets, sort
from distvec.array.core import shapes, type_queries
from distvec.array.core.handle import Handle, kept_value
from distvec.array.core.keywords import NOT_GIVEN, by_position, check_bound, store
from distvec.array.core.on_client import function_of_known
from distvec.array.linalg import decompositions, einsum
from distvec.array.manipulation import (
    diagonals,
    differences,
    grids,
    insert_delete,
    join,
    packing,
    pad,
    rearrange,
    repeat,
)
from distvec.graph import host_eval
from ps_backend.program import reducers

_SAME_NAME: dict[ModuleType, str] = {
    counting: "bincount",
    diagonals: "diag diagflat diagonal fill_diagonal trace tril triu vander",
    differences: "convolve correlate diff ediff1d gradient trapezoid unwrap",
    einsum: "einsum einsum_path",
    elementwise: "allclose angle array_equal array_equiv fix i0 imag isclose iscomplex isneginf "
    "isposinf isreal nan_to_num real round sinc",
    grids: "atleast_1d atleast_2d cross kron meshgrid outer",
    histogram: "histogram histogram2d histogram_bin_edges histogramdd",
    insert_delete: "delete insert trim_zeros",
    join: "append block column_stack concatenate dstack hstack stack vstack",
    packing: "ix_ packbits ravel_multi_index unpackbits unravel_index",
    pad: "pad",
    polynomials: "polyadd polyder polyfit polyint polymul polysub polyval",
    products: "dot tensordot vdot",
    quantile: "median nanmedian nanpercentile nanquantile percentile quantile",
    rearrange: "array_split dsplit flip fliplr flipud hsplit moveaxis ravel reshape roll rollaxis "
    "rot90 split swapaxes unstack vsplit",
    reductions: "count_nonzero mean",
    repeat: "repeat resize tile",
    scan: "cumprod cumsum cumulative_prod cumulative_sum nancumprod nancumsum",
    search: "digitize interp searchsorted",
    sequences: "geomspace linspace logspace",
    sets: "intersect1d isin setdiff1d setxor1d union1d unique unique_all unique_counts "
    "unique_inverse unique_values",
    shapes: "expand_dims squeeze",
    sort: "argpartition lexsort partition",
    statistics: "var std ptp average cov corrcoef nansum nanprod nanmean nanvar nanstd nanargmin "
    "nanargmax",
    take_put: "apply_over_axes argwhere choose compress copyto extract flatnonzero nonzero "
    "piecewise place put put_along_axis putmask select take take_along_axis",
    texts: "array2string",
    transposed: "matrix_transpose permute_dims transpose",
    type_queries: "can_cast common_type min_scalar_type shares_memory size",
}
"""By module its functions that are called as NumPy's, and have its parameters."""

_SAME_NAME_IN_LINALG: dict[ModuleType, str] = {
    diagonals: "diagonal trace",
    einsum: "multi_dot tensorinv tensorsolve",
    grids: "cross outer",
    products: "matmul tensordot vecdot",
    decompositions: "cond lstsq matrix_norm matrix_rank norm pinv qr solve svd svdvals vector_norm",
    transposed: "matrix_transpose",
}

STATISTICS = tuple(_SAME_NAME[statistics].split())
COMPARISONS = ("isclose", "allclose", "array_equal", "array_equiv")
"""Those that are functions of ``distvec`` by the same name, too."""


@cache
def counterparts() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    reduced = [name for name in reducers.PUBLIC if hasattr(np, name)]
    return {
        **{theirs: decompositions.on_host(theirs) for theirs in host_eval.LINEAR_ALGEBRA.values()},
        **_by_name(np, _SAME_NAME),
        **_by_name(np.linalg, _SAME_NAME_IN_LINALG),
        **{getattr(np, name): reductions.reduction_function(name) for name in reduced},
        np.amax: reductions.max,
        np.amin: reductions.min,
        np.argsort: sort.argsort_method,
        np.around: elementwise.round,
        np.array_repr: lambda arr, *_, **__: repr(arr),
        np.array_str: lambda a, max_line_width=None, precision=None, suppress_small=None: (
            texts.array2string(a, max_line_width, precision, suppress_small)
        ),
        np.astype: lambda x, dtype, /, **_: x.astype(dtype),
        np.broadcast_arrays: shapes.numpy_broadcast_arrays,
        np.broadcast_to: lambda x, shape, subok=False: shapes.broadcast_to(x, shape),
        np.clip: elementwise.numpy_clip,
        np.copy: lambda a, order="K", subok=False: a.copy(order),
        np.diag_indices_from: packing.diagonal_indices,
        np.empty_like: partial(shapes.numpy_full_like, 0),
        np.full_like: lambda x, value, *args, **kw: shapes.numpy_full_like(value, x, *args, **kw),
        np.inner: products.inner_product,
        np.iscomplexobj: lambda x: False,
        np.isrealobj: lambda x: True,
        np.may_share_memory: type_queries.shares_memory,
        np.ndim: lambda a: a.ndim,
        np.ones_like: partial(shapes.numpy_full_like, 1),
        np.real_if_close: lambda a, **_: elementwise.real(a),
        np.result_type: type_queries.result_type,
        np.shape: lambda a: a.shape,
        np.sort: sort.numpy_sort,
        np.tril_indices_from: packing.triangle_indices(np.tril_indices),
        np.triu_indices_from: packing.triangle_indices(np.triu_indices),
        np.where: take_put.numpy_where,
        np.zeros_like: partial(shapes.numpy_full_like, 0),
    }


def _by_name(theirs: ModuleType, ours: dict[ModuleType, str]) -> dict[Any, Callable[..., Any]]:
    return {
        getattr(theirs, name): getattr(module, name)
        for module, names in ours.items()
        for name in names.split()
    }


_NOT_OF_VALUES = frozenset(
    (
        *(np.copyto, np.fill_diagonal, np.place, np.put, np.put_along_axis, np.putmask),
        *(np.array_repr, np.atleast_1d, np.atleast_2d, np.bincount, np.broadcast_arrays),
        *(np.broadcast_to, np.diag, np.diagflat, np.empty_like, np.full_like, np.geomspace),
        *(np.kron, np.linspace, np.logspace, np.may_share_memory, np.meshgrid, np.ones_like),
        *(np.outer, np.pad, np.repeat, np.resize, np.shares_memory, np.tile, np.vander),
        *(np.zeros_like, np.linalg.outer),
    )
)
"""Those that change an argument, whose results of values are not NumPy's, or may be large."""
_RUNNING = (np.cumulative_sum, np.cumulative_prod)
"""Those that write into ``out=`` of just their shape, whatever its dtype loses."""


def function(
    like: Handle, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return the result of ``__array_function__``; ``TypeError`` without a counterpart."""
    ours = counterparts().get(func)
    if ours is not None and (func not in _NOT_OF_VALUES or _counts_few(func, args, kwargs)):
        known = function_of_known(like, func, args, kwargs)
        if known is not None:
            return known
    ours = ours or _creation_function(func, like)
    if ours is None:
        raise TypeError(error_hints.missing_function(func))
    out = kwargs.pop("out", None)
    given = {key: value for key, value in kwargs.items() if value is not NOT_GIVEN}
    if given:
        args = by_position(func, ours, args, given)
    if out is not None and "out" in inspect.signature(ours).parameters:
        given["out"], out = out, None
    check_bound(func.__name__, ours, args, given)
    result = ours(*args, **given)
    if func in _RUNNING:
        return store(out, result, func.__name__, "unsafe")
    return store(out, result, func.__name__)


def _counts_few(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether this counts numbers that the client has, and that are small."""
    if func is not np.bincount or not args or len(args) > 2:
        return False
    numbers, length = kept_value(args[0]), kwargs.get("minlength", 0)
    if numbers is None or not isinstance(length, int) or not numbers.size:
        return False
    return bool(max(length, numbers.max()) < counting.MOST_KEPT)


def _creation_function(func: Callable[..., Any], like: Handle) -> Callable[..., Any] | None:
    """Return our function for NumPy's ``func`` if that creates arrays without taking any."""
    ours = sequences.making_functions().get(getattr(func, "_implementation", func))
    return None if ours is None else lambda *args, **given: ours(like, *args, **given)
