"""Histograms of one vector, and of pairs: their bins, and the counts.

Edges and counts are few and are stored on the client. Source of the rules for bins:
``numpy.histogram_bin_edges``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.collectives.core import (
    as_vector,
    common_session,
    least_and_greatest,
)
from distvec.array.collectives.counting import counts_below, weights_of
from distvec.array.collectives.search import searchsorted
from distvec.array.core.handle import check_session, host_array, make
from distvec.array.core.operators import Arithmetic, elementwise
from distvec.array.core.shapes import MOST_RANK, reshape
from distvec.array.elementwise import array_among
from distvec.array.indexing.getitem import get_item
from distvec.array.statistics import std
from ps_backend.program.types import client_type


def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, Any]:
    """Count the elements in each bin, or sum their weights; return counts and edges.

    One request per server, lazy. If ``bins`` is a number (or a rule) and ``range`` is not given,
    the least and the greatest element are found first, an implicit evaluation. Weights are summed
    block by block: bitwise identical for any number of servers.
    """
    session = common_session(a, weights, "histogram")
    values = as_vector(session, a)
    if values.dtype == np.bool_:
        values = values.astype(np.uint8)
    weight = None if weights is None else as_vector(session, weights)
    if weight is not None and weight.shape != values.shape:
        raise ValueError("weights should have the same shape as a.")
    edges = _bins(values, bins, range, weighted=weight is not None)
    name, operands = "histogram", [values, edges]
    if weight is not None:
        name, operands = "weighted_histogram", [values, weight.astype(np.float64), edges]
    kind, number = np.dtype(np.int64 if weight is None else np.float64), len(edges) - 1
    if number:
        counts = make(values, name, operands, client_type(kind, (number,)), (None, number))
    else:
        counts = host_array(values, np.zeros(0, kind))
    if weight is not None:
        counts = counts.astype(weight.dtype)
    if density:
        widths = np.diff(edges).astype(np.float64)
        counts = elementwise(counts, "divide", counts, widths) / counts.sum()
    return counts, host_array(counts, edges)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of the bins that ``histogram`` would have; evaluated as there."""
    session = common_session(a, weights, "histogram_bin_edges")
    values = as_vector(session, a)
    if values.dtype == np.bool_:
        values = values.astype(np.uint8)
    edges = _bins(values, bins, range, weighted=weights is not None)
    return host_array(values, edges)


def _bins(x: Arithmetic, bins: Any, range: Any, *, weighted: bool) -> npt.NDArray[Any]:
    """``ValueError`` and ``TypeError`` as NumPy's."""
    if isinstance(bins, str):
        if bins not in _WIDTHS:
            raise ValueError(f"{bins!r} is not a valid estimator for `bins`")
        if weighted:
            raise TypeError(
                "Automated estimation of the number of bins is not supported for weighted data"
            )
        first, last = _outer(x, range)
        return _of_one_width(x, first, last, _number_of_bins(x, bins, range, first, last))
    if np.ndim(bins) > 1:
        raise ValueError("`bins` must be 1d, when an array")
    if np.ndim(bins) == 1:
        edges = np.asarray(_read_edges(x, bins))
        if np.any(edges[:-1] > edges[1:]):
            raise ValueError("`bins` must increase monotonically, when an array")
        return edges
    try:
        count = operator.index(bins)
    except TypeError:
        raise TypeError("`bins` must be an integer, a string, or an array") from None
    if count < 1:
        raise ValueError("`bins` must be positive, when an integer")
    return _of_one_width(x, *_outer(x, range), count)


def _read_edges(x: Arithmetic, bins: Any) -> Any:
    """Edges that are an array of ours, read."""
    if not isinstance(bins, Arithmetic):
        return bins
    check_session(x.session, bins, "bins")
    if not bins.node.on_client:
        raise NotImplementedError("histogram: bins must be on the client; pull them: bins.numpy()")
    return x.session.evaluate_implicitly(bins, "the edges of bins")


def _outer(x: Arithmetic, range: Any) -> tuple[Any, Any]:
    """Return the start of the first bin and the end of the last one."""
    if range is not None:
        first, last = map(_evaluate_end, range)
        if first > last:
            raise ValueError("max must be larger than min in range parameter.")
        if not (np.isfinite(first) and np.isfinite(last)):
            raise ValueError(f"supplied range of [{first}, {last}] is not finite")
    elif x.size == 0:
        first, last = 0, 1
    else:
        first, last = least_and_greatest(x, "histogram() without range=")
        if not (np.isfinite(first) and np.isfinite(last)):
            raise ValueError(f"autodetected range of [{first}, {last}] is not finite")
    return (first - 0.5, last + 0.5) if first == last else (first, last)


def _evaluate_end(end: Any) -> Any:
    """An end of a range: a lazy one is evaluated."""
    is_lazy = isinstance(end, Arithmetic)
    return end.session.evaluate_implicitly(end, "an end of a range") if is_lazy else end


def _of_one_width(x: Arithmetic, first: Any, last: Any, count: int) -> npt.NDArray[Any]:
    kind = np.result_type(first, last, x.dtype)
    if kind.kind in "iu":
        kind = np.result_type(kind, float)
    edges = np.linspace(first, last, count + 1, endpoint=True, dtype=kind)
    if np.any(edges[:-1] >= edges[1:]):
        raise ValueError(f"Too many bins for data range. Cannot create {count} finite-sized bins.")
    return edges


# --- rules for the number of bins ---------------------------------------------------------------


def _number_of_bins(x: Arithmetic, rule: str, range: Any, first: Any, last: Any) -> int:
    if range is not None:
        raise NotImplementedError(
            f"histogram: bins={rule!r} with range= is not supported; select the elements first: "
            f"x[(x >= {first}) & (x <= {last})]"
        )
    if x.size == 0:
        return 1
    least, greatest = least_and_greatest(x, f"bins={rule!r}")
    width = _WIDTHS[rule](x, float(greatest) - float(least))
    if not width:
        return 1
    if x.dtype.kind in "iu":
        width = max(width, 1)
    return int(np.ceil((float(last) - float(first)) / width))


def _deviation(x: Arithmetic) -> float:
    return float(x.session.evaluate_implicitly(std(x), "bins of the width of std"))


def _scott(x: Arithmetic, spread: float) -> float:
    return float((24.0 * np.pi**0.5 / x.size) ** (1.0 / 3.0) * _deviation(x))


def _sqrt(x: Arithmetic, spread: float) -> float:
    return float(spread / np.sqrt(x.size))


def _sturges(x: Arithmetic, spread: float) -> float:
    return float(spread / (np.log2(x.size) + 1.0))


def _rice(x: Arithmetic, spread: float) -> float:
    return float(spread / (2.0 * x.size ** (1.0 / 3)))


def _freedman_diaconis(x: Arithmetic, spread: float) -> float:
    quartiles: Any = np.percentile(x, [75, 25])  # type: ignore[call-overload]
    upper, lower = x.session.evaluate_implicitly(quartiles, "bins of the width of quartiles")
    return float(2.0 * (upper - lower) * x.size ** (-1.0 / 3.0))


def _auto(x: Arithmetic, spread: float) -> float:
    wide = max(_freedman_diaconis(x, spread), _sqrt(x, spread) / 2)
    return min(wide, _sturges(x, spread))


_WIDTHS: dict[str, Callable[[Any, float], float]] = {
    "auto": _auto,
    "fd": _freedman_diaconis,
    "rice": _rice,
    "scott": _scott,
    "sqrt": _sqrt,
    "sturges": _sturges,
}
"""By name of a rule the width of a bin, from the vector and how far its elements reach."""


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, list[Any]]:
    """Count pairs of one or two columns in bins, as ``numpy.histogramdd``; return counts and edges.

    The counts are floats on the client, counted as by ``bincount``. If ``bins`` is a number and
    ``range`` is not given, the least and the greatest element of each column are found first, an
    implicit evaluation.
    """
    columns = _columns(sample)
    if len(columns) > MOST_RANK:
        raise NotImplementedError(
            f"histogramdd: the sample has {len(columns)} columns, at most {MOST_RANK} are "
            f"supported; take two at a time: sample[:, :2]"
        )
    edges = _edges(columns, bins, range)
    lengths = [len(one) - 1 for one in edges]
    number: Any = 0
    inside: Any = True
    for column, limits, length in zip(columns, edges, lengths, strict=True):
        place = searchsorted(limits, column, side="right") - 1
        place = elementwise(column, "where", column == limits[-1], length - 1, place)
        inside = (place >= 0) & (place < length) & inside
        number = number * length + place
    total = prod(lengths)
    number = elementwise(columns[0], "where", inside, number, total)  # those outside go last
    weight = None if weights is None else weights_of(number, weights)
    counts = counts_below(total + 1, number, weight)[:total].astype(np.float64)
    found = reshape(counts, tuple(lengths))
    if density:
        for axis, limits in enumerate(edges):
            widths = np.diff(limits).reshape(-1, *(1,) * (len(edges) - 1 - axis))
            found = found / widths
        found = found / counts.sum()
    return found, [host_array(columns[0], one) for one in edges]


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, Any, Any]:
    """``numpy.histogram2d``, as ``histogramdd``."""
    if len(x) != len(y):
        raise ValueError("x and y must have the same length.")
    if hasattr(bins, "__len__") and len(bins) not in (1, MOST_RANK):  # the same edges for both
        bins = [bins, bins]
    found, (first, second) = histogramdd([x, y], bins, range, density, weights)
    return found, first, second


def _columns(sample: Any) -> list[Any]:
    if isinstance(sample, list | tuple):
        like = array_among("histogramdd", tuple(sample))
        given = [one if isinstance(one, Arithmetic) else like.session._put(one) for one in sample]
        kind = np.result_type(*(one.dtype for one in given))
        return [one.astype(kind) for one in given]
    if sample.ndim == 1:
        return [sample]
    return [get_item(sample, (slice(None), k)) for k in np.arange(sample.shape[1]).tolist()]


def _edges(columns: Sequence[Any], bins: Any, limits: Any) -> list[Any]:
    """Return the edges of each column; errors as NumPy's."""
    count = len(columns)
    each = bins if hasattr(bins, "__len__") else [bins] * count
    if len(each) != count:
        raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
    ranges = [None] * count if limits is None else limits
    if len(ranges) != count:
        raise ValueError("range argument must have one entry per dimension")
    triples = zip(columns, each, ranges, strict=True)
    return [_edges_of(*one) for one in triples]


def _edges_of(column: Any, bins: Any, limits: Any) -> Any:
    """Return the edges of one column. With given limits they have another dtype."""
    if limits is not None and np.ndim(bins) == 0:
        _, (edges,) = np.histogramdd(np.empty((0, 1)), [bins], [limits])
        return edges
    return histogram_bin_edges(column, bins, limits).numpy()
