"""Histograms of pairs: how many elements of two vectors are in each pair of bins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from distvec.array.creation import MOST_RANK, reshape
from distvec.array.functions import array_among
from distvec.array.items import get_item
from distvec.array.moving.counting import bincount
from distvec.array.moving.histograms import histogram_bin_edges
from distvec.array.moving.search import searchsorted
from distvec.array.operators import Arithmetic, elementwise


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, list[Any]]:
    """``numpy.histogramdd`` of one or two columns: a count for each pair of bins, as floats, and
    the edges of the bins. The client keeps them.

    A ``bincount`` of the numbers of the pairs. Before that, where ``bins`` is a number and
    ``range`` is not given, the least and the greatest element of each column: an implicit
    evaluation.
    """
    columns = _columns(sample)
    if len(columns) > MOST_RANK:
        raise NotImplementedError(
            f"histogramdd of {len(columns)} columns has as many axes, at most {MOST_RANK} are "
            f"there; take two at a time: sample[:, :2]"
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
    counts = bincount(number, weights, minlength=total + 1)[:total].astype(np.float64)
    found = reshape(counts, tuple(lengths))
    if density:
        for axis, limits in enumerate(edges):
            widths = np.diff(limits).reshape(-1, *(1,) * (len(edges) - 1 - axis))
            found = found / widths
        found = found / counts.sum()
    return found, [_kept(columns[0], one) for one in edges]


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
        given = [one if isinstance(one, Arithmetic) else like.session.array(one) for one in sample]
        kind = np.result_type(*(one.dtype for one in given))
        return [one.astype(kind) for one in given]
    if sample.ndim == 1:
        return [sample]
    return [get_item(sample, (slice(None), k)) for k in np.arange(sample.shape[1]).tolist()]


def _edges(columns: Sequence[Any], bins: Any, limits: Any) -> list[Any]:
    """Those of each column; errors as NumPy's."""
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
    """Those of one column. Between given limits their dtype is not that of the elements."""
    if limits is not None and np.ndim(bins) == 0:
        _, (edges,) = np.histogramdd(np.empty((0, 1)), [bins], [limits])
        return edges
    return histogram_bin_edges(column, bins, limits).numpy()


def _kept(like: Any, edges: Any) -> Any:
    return like.like(like.session.graph.client_value(edges, edges.dtype))


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {np.histogramdd: histogramdd, np.histogram2d: histogram2d}
