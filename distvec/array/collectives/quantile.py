"""``median``, ``quantile``, ``percentile``, and their variants that ignore NaN; lazy.

Along axis 0, and over all elements, two requests per server. Each server sorts its part and sends
only the neighbourhood of the wanted elements. The variants that ignore NaN count the elements
first, in one more request. Along axis 1 each row is sorted on its server.

NumPy warns if all elements are NaN; here the result is NaN without a warning, as it is lazy.

Source of the methods: R. J. Hyndman and Y. Fan, "Sample Quantiles in Statistical Packages", The
American Statistician 50 (1996). Counts and quantiles are arrays of NumPy or lazy ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from distvec.array.collectives.core import collective
from distvec.array.collectives.sort import sort
from distvec.array.core.handle import host_array, make
from distvec.array.core.keywords import NOT_GIVEN, is_given, store
from distvec.array.core.operators import as_array, raise_if_any
from distvec.array.core.shapes import broadcast_to, reshape
from distvec.array.elementwise import where
from distvec.array.indexing.getitem import encode_key, get_item
from distvec.array.reductions import as_axis_tuple, axis_of, keep_axes, sum
from distvec.array.statistics import align_weights
from distvec.array.take_put import take_along_axis
from distvec.array.transposed import supports_column_split, transpose
from distvec.graph.host_eval import statistic
from ps_backend.program.collectives import ORDER_STATISTICS
from ps_backend.program.types import client_type

_CONTINUOUS: dict[str, tuple[float, float]] = {
    "interpolated_inverted_cdf": (0, 1),
    "hazen": (0.5, 0.5),
    "weibull": (0, 0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
"""By method alpha and beta."""

_WHOLE: dict[str, Callable[[Any, Any], Any]] = {
    "inverted_cdf": lambda n, q: _to_boundary(n * q - 1, lambda index, part: part == 0),
    "closest_observation": lambda n, q: _to_boundary(
        n * q - 1 - 0.5, lambda index, part: (part == 0) & (np.floor(index) % 2 == 1)
    ),
    "lower": lambda n, q: np.floor((n - 1) * q),
    "higher": lambda n, q: np.ceil((n - 1) * q),
    "nearest": lambda n, q: np.round((n - 1) * q),
}
"""By method the rank, where the quantile is always an element."""

METHODS = (*_WHOLE, "averaged_inverted_cdf", *_CONTINUOUS, "linear", "midpoint")


class Place(NamedTuple):
    """A quantile lies between the elements of two ranks; ``weight``: how much it has of the second.

    Without a weight it is the element of the first.
    """

    first: Any
    second: Any
    weight: Any


def check_method(method: str) -> None:
    """``ValueError`` for a method that there is not."""
    if method not in METHODS:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {', '.join(METHODS)}")


def place(count: Any, q: Any, method: str) -> Place:
    """Return the places of the quantiles ``q`` among a number of elements, 1 or more."""
    if method in _WHOLE:
        rank = _whole(_WHOLE[method](count, q), count)
        return Place(rank, rank, None)
    index = _virtual_index(count, q, method)
    if method == "linear" and index.dtype.kind in "iu":
        return Place(index, index, None)
    first = np.floor(index)
    part = index - first
    if method == "averaged_inverted_cdf":
        part = np.where(part == 0, 0.5, 1.0).astype(index.dtype)
    elif method == "midpoint":
        part = np.where(part == 0, 0.0, 0.5).astype(index.dtype)
    return Place(_whole(first, count), _whole(first + 1, count), part)


def _virtual_index(count: Any, q: Any, method: str) -> Any:
    """Return the fractional index of a quantile."""
    if method == "linear":
        return (count - 1) * q
    if method == "midpoint":
        return 0.5 * (np.floor((count - 1) * q) + np.ceil((count - 1) * q))
    if method == "averaged_inverted_cdf":
        return count * q - 1
    alpha, beta = _CONTINUOUS[method]
    return count * q + (alpha + q * (1 - alpha - beta)) - 1


def _to_boundary(index: Any, stays: Callable[[Any, Any], Any]) -> Any:
    """Return the rank before ``index`` if that ``stays``, otherwise the one after it."""
    before = np.floor(index)
    return np.where(stays(index, index - before), before, before + 1)


def _whole(rank: Any, count: Any) -> Any:
    """``rank`` as int64, within the elements that there are."""
    last = np.maximum(count - 1, 0)
    return np.minimum(np.maximum(rank, 0), last).astype(np.int64)


def order_statistics(x: Any, ranks: Any, axis: int) -> Any:
    """The elements of a vector or a table at ``ranks`` along ``axis``; NaN is the largest; lazy.

    ``ranks``: int64. Along axis 0 ``(count, 1)`` or ``(count, columns)``, NumPy's or lazy ones of
    the client; the client keeps the result, ``(count, *row)``; two messages to each server. Along
    axis 1 a vector of NumPy, or a table with a row of them for each row of ``x``.
    """
    if axis == 0:
        type = client_type(x.dtype, (ranks.shape[0], *x.shape[1:]))
        (found,) = collective(ORDER_STATISTICS, [x], [ranks], [type])
        return found
    rows = sort(x, axis=1)
    if isinstance(ranks, np.ndarray):
        return get_item(rows, (slice(None), ranks))
    return take_along_axis(rows, ranks, 1)


_FLOAT, _HALF, _SINGLE = np.dtype(np.float64), np.dtype(np.float16), np.dtype(np.float32)


def median(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False
) -> Any:
    """The element in the middle, or the mean of both: ``numpy.median``; NaN if one is NaN."""
    return _median("median", a, axis, out, keepdims)


def nanmedian(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
    keepdims: Any = NOT_GIVEN,
) -> Any:  # fmt: skip
    """Return the median without NaN elements: ``numpy.nanmedian``; NaN for all-NaN slices."""
    return _median("nanmedian", a, axis, out, keepdims)


def _of_fractions(name: str) -> Callable[..., Any]:
    def function(
        a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
        method: str = "linear", keepdims: Any = False, *, weights: Any = None,
    ) -> Any:  # fmt: skip
        return _quantiles(name, a, q, axis, out, method, keepdims, weights)

    function.__name__ = function.__qualname__ = name
    places = "percentiles" if name.endswith("percentile") else "quantiles"
    elements = "elements that are not NaN" if name.startswith("nan") else "all elements"
    function.__doc__ = (
        f"Return the {places} ``q`` of {elements}, or along an axis: ``numpy.{name}``.\n\n"
        f'All of its methods are supported. ``weights`` need ``method="inverted_cdf"``, and are '
        f"checked with an implicit evaluation."
    )
    return function


quantile, percentile = _of_fractions("quantile"), _of_fractions("percentile")
nanquantile, nanpercentile = _of_fractions("nanquantile"), _of_fractions("nanpercentile")

NAMES = ("median", "nanmedian", "quantile", "percentile", "nanquantile", "nanpercentile")


# --- medians --------------------------------------------------------------------------------------


@supports_column_split(1)
def _median(name: str, x: Any, axis: Any, out: Any, keepdims: Any) -> Any:
    x = as_array(name, x).materialized()
    axis = as_axis_tuple(axis)
    over: Any = axis_of(x, name, axis)
    keeps = is_given(keepdims) and bool(keepdims)
    if x.node.on_client or not x.size:
        return store(out, _by_numpy(x, name, {"axis": axis, "keepdims": keeps}), name, "unsafe")
    table, along = _along_one(x, over)
    omits = name.startswith("nan") and x.dtype.kind == "f"
    count = _valid(table, along) if omits else table.shape[along]
    low, high = np.maximum((count - 1) // 2, 0), count // 2
    first, second, last = _elements(table, along, [low, high], omits)
    middle = _mean_of_two(first, second, _align_shape(low == high, along, first))
    result = _first(_or_nan(middle, last), along)
    return store(out, keep_axes(x, result, over, keeps), name, "unsafe")


def _mean_of_two(a: Any, b: Any, equal: Any) -> Any:
    """As ``numpy.mean`` of both: of one that is both, itself."""
    wide = {"f": _SINGLE if a.dtype == _HALF else a.dtype}.get(a.dtype.kind, _FLOAT)
    mean = (a.astype(wide) + b.astype(wide)) / 2
    return where(equal, a.astype(wide), mean).astype(a.dtype if a.dtype.kind == "f" else _FLOAT)


# --- quantiles ------------------------------------------------------------------------------------


@supports_column_split(1)
def _quantiles(
    name: str, x: Any, q: Any, axis: Any, out: Any, method: str, keepdims: Any, weights: Any
) -> Any:
    x = as_array(name, x).materialized()
    check_method(method)
    casting = "unsafe" if name.startswith("nan") else "same_kind"  # into out=, as NumPy's
    fractions, axis = _check_fractions(q, name), as_axis_tuple(axis)
    over: Any = axis_of(x, name, axis)
    keeps = is_given(keepdims) and bool(keepdims)
    if keeps and fractions.ndim and x.ndim > 1:
        raise NotImplementedError(
            f"{name}: keepdims=True with several q would give 3 axes; leave out keepdims"
        )
    if weights is not None:
        result = _weighted_quantile(name, x, fractions, over, method, weights)
        if not fractions.ndim:
            return store(out, keep_axes(x, result, over, keeps), name, casting)
        return store(out, reshape(result, (-1, 1)) if keeps else result, name, casting)
    if x.node.on_client or not x.size:
        given = q if type(q) in (int, float) else encode_key(np.asarray(q))
        known = {"q": given, "axis": axis, "method": method, "keepdims": keeps}
        return store(out, _by_numpy(x, name, known), name, casting)
    table, along = _along_one(x, over)
    omits = name.startswith("nan") and x.dtype.kind == "f"
    count = _valid(table, along) if omits else table.shape[along]
    wanted = np.ravel(fractions)[:, None] if along == 0 else np.ravel(fractions)
    if omits:  # as NumPy, which counts in the dtype of q
        is_whole = wanted.dtype.kind in "iu"
        wanted = wanted.astype(_FLOAT) if is_whole and method != "linear" else wanted
        count = count.astype(wanted.dtype)
    found = place(count, wanted, method)
    ranks = [found.first] if found.weight is None else [found.first, found.second]
    first, *second, last = _elements(table, along, ranks, omits)
    is_weak = type(q) in (int, float)  # then q does not decide on the dtype of the result
    result = _interpolate(first, second[0], found, along, is_weak) if second else first
    result = _or_nan(result, last)
    if not fractions.ndim:
        return store(out, keep_axes(x, _first(result, along), over, keeps), name, casting)
    if along:
        result = transpose(result)
    return store(out, reshape(result, (-1, 1)) if keeps else result, name, casting)


def _weighted_quantile(
    name: str, x: Any, fractions: Any, over: Any, method: str, weights: Any
) -> Any:
    """The first elements in order with which the sum of the weights reaches a fraction of it all.

    Source: ``numpy.quantile``, method ``inverted_cdf``.
    """
    if method != "inverted_cdf":
        raise ValueError(f"Only method 'inverted_cdf' supports weights. Got: {method}.")
    if name.startswith("nan") and x.dtype.kind == "f":
        raise NotImplementedError(
            f"{name}: weights= is not supported; select the values that are not NaN first, as in "
            f"numpy.{name[3:]}(x[valid], q, weights=w[valid], method={method!r})"
        )
    there = weights if hasattr(weights, "node") else x.session.array(weights)
    beside_all = broadcast_to(align_weights(x, over, there, name), x.shape).astype(_FLOAT)
    table, along = _along_one(x, over)
    heavy = _along_one(beside_all, over)[0]
    order = np.argsort(table, axis=along)
    values, heavy = (np.take_along_axis(one, order, along) for one in (table, heavy))
    sums = np.cumsum(heavy, axis=along)
    total = np.sum(heavy, axis=along, keepdims=True)
    raise_if_any(heavy < 0, ValueError, "Weights must be non-negative.")
    whole = (total > 0) & (total < np.inf)
    raise_if_any(~whole, ValueError, "Weights included NaN, inf or were all zero.")
    part = sums / total
    part = where(part == 0, -1.0, part)  # of no weight, and so not the first one of fraction 0

    def reached(fraction: float) -> Any:
        before = np.sum(part < fraction, axis=along, keepdims=True)
        place = np.minimum(before, table.shape[along] - 1)
        found = _first(np.take_along_axis(values, place, along), along)
        if x.dtype.kind != "f":
            return found
        last = _first(_last(values, along), along)
        return where(last == last, found, last)

    results = [reached(float(one)) for one in np.ravel(fractions)]
    return np.stack(results) if fractions.ndim else results[0]


def _last(x: Any, along: int) -> Any:
    """The last elements along an axis, which stays."""
    return get_item(x, (slice(None),) * along + (slice(-1, None),))


def _check_fractions(q: Any, name: str) -> Any:
    """``q`` as fractions; errors as NumPy's."""
    is_percent = name.endswith("percentile")
    fractions = np.true_divide(q, 100, out=...) if is_percent else np.asanyarray(q)
    if fractions.ndim > 1:
        raise ValueError(f"{name}: q must be a scalar or 1d")
    if not np.all((fractions >= 0) & (fractions <= 1)):
        what = "Percentiles must be in the range [0, 100]"
        raise ValueError(what if is_percent else "Quantiles must be in the range [0, 1]")
    return fractions


def _interpolate(a: Any, b: Any, found: Place, along: int, is_weak: bool) -> Any:
    """Between two elements; as NumPy, from the nearer one. Source: ``numpy.quantile``."""
    weight = found.weight
    rest, nearer_second = 1 - weight, weight >= 0.5
    if is_weak:
        dtype = a.dtype if a.dtype.kind == "f" else _FLOAT
        weight, rest = weight.astype(dtype), rest.astype(dtype)
    weight, rest, nearer_second = (
        _align_shape(one, along, a) for one in (weight, rest, nearer_second)
    )
    difference = b - a
    return where(nearer_second, b - difference * rest, a + difference * weight)


# --- of both --------------------------------------------------------------------------------------


def _along_one(x: Any, over: Any) -> tuple[Any, int]:
    """``x``, or all its elements in one vector, and the axis."""
    return (x if x.ndim == 1 else reshape(x, (x.size,)), 0) if over is None else (x, over)


def _valid(x: Any, along: int) -> Any:
    """How many elements along an axis are not NaN, with both axes."""
    count = sum(x == x, axis=along, keepdims=True)
    return reshape(count, (1, 1)) if x.ndim == 1 else count


def _elements(x: Any, along: int, ranks: list[Any], omits: bool) -> list[Any]:
    """The elements at ``ranks``, all at once, and the last one, None if it can be no NaN."""
    see_last = x.dtype.kind == "f" and not omits
    if omits:
        joined = np.concatenate(ranks, axis=along)
    else:
        last = [x.shape[along] - 1] if see_last else []
        joined = np.array([*np.concatenate([np.ravel(one) for one in ranks]), *last], np.int64)
        joined = joined[:, None] if along == 0 else joined
    found = order_statistics(x, joined, along)
    size = (joined.shape[along] if omits else len(joined)) - see_last
    each = size // len(ranks)
    cuts = [slice(k * each, (k + 1) * each) for k in range(len(ranks))]
    before = (slice(None),) * along
    parts = [get_item(found, (*before, cut)) for cut in cuts]
    return [*parts, get_item(found, (*before, slice(size, None))) if see_last else None]


def _align_shape(given: Any, along: int, beside: Any) -> Any:
    """Return results for ranks in a shape that can stand ``beside`` the elements there."""
    if along == 0 and np.ndim(given) == 2 and beside.ndim == 1:
        return reshape(given, (-1,)) if not isinstance(given, np.ndarray) else given[:, 0]
    return given


def _or_nan(result: Any, last: Any) -> Any:
    """Return ``result``, or NaN if the last of the elements is NaN."""
    if last is None:
        return result
    return where(last == last, result, last.astype(result.dtype))


def _first(result: Any, along: int) -> Any:
    """The only one along an axis."""
    return get_item(result, 0 if along == 0 else (slice(None), 0))


def _by_numpy(x: Any, name: str, keywords: dict[str, Any]) -> Any:
    """Compute the same for a small array on the client, or an empty one."""
    given = tuple(keywords.items())
    with np.errstate(all="ignore"):
        shown = statistic(np.ones(x.shape, x.dtype), name, *given)
    if not x.size:
        return host_array(x, shown)
    type = client_type(shown.dtype, shown.shape)
    return make(x, "client.statistic", (x,), type, (name, *given))
