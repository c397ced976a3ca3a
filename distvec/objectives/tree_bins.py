"""Bins of features, from a sample of distinct rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp

from distvec.losses.boosting import (
    EDGES,
    FEATURE_NUMBER,
    FIRST,
    FIRST_EDGE,
    IS_CATEGORICAL,
    ZERO_BIN,
    RowSample,
    bins_of,
)
from distvec.losses.rows import Floats, Ints
from distvec.losses.trees import (
    Nodes,
)

_SAMPLE = 10_000
"""Rows that bins come from, at least."""


def gather_sample(
    draw: Callable[[float], Sequence[RowSample]], rows: int, max_bins: int
) -> RowSample:
    """Distinct rows, some 10,000 or the square of ``max_bins`` if there are so many.

    ``draw`` draws them of each partition with a probability. It is raised until there are enough,
    which takes several turns where many rows are equal.
    """
    wanted = max(_SAMPLE, max_bins * max_bins)
    share = 1.5 * wanted / rows
    while True:
        found = _merge_samples(draw(share))
        if share >= 1.0 or len(found.hashes) >= wanted // 2:
            return found
        share *= 8.0


def _merge_samples(samples: Sequence[RowSample]) -> RowSample:
    """The same of all rows; ``columns`` are those of any. ValueError for bad categories."""
    for one in samples:
        if one.bad:
            raise ValueError(one.bad)
    columns = np.unique(np.concatenate([one.columns for one in samples]))
    parts = []
    for one in samples:
        found = sp.coo_array(one.rows)
        places = np.searchsorted(columns, one.columns)[found.col]
        shape = (one.rows.shape[0], columns.size)
        parts.append(sp.csr_array((found.data, (found.row, places)), shape=shape))
    hashes = np.concatenate([one.hashes for one in samples])
    counts = np.concatenate([one.counts for one in samples])
    distinct, firsts, groups = np.unique(hashes, return_index=True, return_inverse=True)
    return RowSample(
        distinct,
        np.bincount(groups, counts, distinct.size).astype(np.int64),
        columns,
        sp.csr_array(sp.vstack(parts))[firsts],
        max(one.greatest_weight for one in samples),
        min(one.least_label for one in samples),
        max(one.greatest_label for one in samples),
        np.max([one.categories for one in samples], axis=0),
    )


def bins_for(sample: RowSample, features: int, max_bins: int, categorical: Sequence[int]) -> Nodes:
    """The table of bins, with a last row that has the number of all bins."""
    known = dict(zip(categorical, sample.categories.tolist(), strict=True))
    by_column = sp.csc_array(sample.rows)
    total, edges = int(sample.counts.sum()), [np.zeros(0)] * features
    for column, feature in enumerate(sample.columns.tolist()):
        part = slice(by_column.indptr[column], by_column.indptr[column + 1])
        values, counts = by_column.data[part], sample.counts[by_column.indices[part]]
        values = np.append(values, 0.0)
        counts = np.append(counts, total - counts.sum())
        chosen = (counts > 0) & ~np.isnan(values)
        edges[feature] = _edges(values[chosen], counts[chosen], max_bins)
    for feature, most in known.items():
        edges[feature] = np.arange(most) + 0.5
    width = max((one.size for one in edges), default=0)
    table = np.full((features + 1, FIRST_EDGE + width), np.inf)
    for feature, one in enumerate(edges):
        row = table[feature]
        row[[FEATURE_NUMBER, EDGES, IS_CATEGORICAL]] = feature, one.size, feature in known
        row[FIRST_EDGE : FIRST_EDGE + one.size] = one
        row[ZERO_BIN] = bins_of(np.zeros(1), row)[0]
    sizes = table[:features, EDGES] + 2  # one more than edges, and one for missing values
    table[features, [FEATURE_NUMBER, EDGES, IS_CATEGORICAL, ZERO_BIN]] = 0.0
    table[:, FIRST] = np.append(0.0, np.cumsum(sizes))
    return table


def _edges(values: Floats, counts: Ints, max_bins: int) -> Floats:
    """Numbers between distinct values, such that about as many rows are between any two."""
    distinct, groups = np.unique(values, return_inverse=True)
    if distinct.size < 2:
        return np.zeros(0)
    before = np.arange(distinct.size - 1)
    if distinct.size > max_bins:
        sums = np.cumsum(np.bincount(groups, counts))
        wanted = sums[-1] * np.arange(1, max_bins) / max_bins
        before = np.unique(np.searchsorted(sums, wanted, side="left"))
        before = before[before < distinct.size - 1]
    low, high = distinct[before], distinct[before + 1]
    middle = 0.5 * low + 0.5 * high
    return np.where(middle < high, middle, low)
