"""K-means over the rows of a data set: first centers, steps of Lloyd's algorithm, last sums.

First centers come from k-means|| (Bahmani, Moseley, Vattani, Kumar, Vassilvitskii: Scalable
K-Means++, 2012), or are rows at random. A row is drawn by a hash of its features, so draws are the
same in any partition. Rows with the same features are drawn as one, with the largest of their
weights: how many there are is known only once all partitions have counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from distvec.losses.clustering import COSINE, Quantization, nearest, norms, sums_of, table_of
from distvec.losses.row_hashes import GOLDEN, Keys, mix, row_hashes, uniform
from distvec.losses.rows import Floats, Ints, Rows
from distvec.spark.context import PSContext
from distvec.spark.data.build import Descriptor
from distvec.spark.data.dataset import PartitionedRows
from distvec.spark.objectives.evaluation_task import LoadedPartitions, LossSpec
from distvec.spark.objectives.evaluator import Evaluator, standing_tasks
from distvec.spark.objectives.partition import Selection
from distvec.spark.task_session import singleton
from optim.core.run import progress_bar

_LOCAL_STEPS = 30
"""Of Lloyd's algorithm on the rows that k-means|| drew, as in MLlib."""

_ROWS = 2048

_FEW = 1 << 22
"""So many numbers come to the driver along with draws; of more only those that are needed."""


@dataclass(frozen=True)
class KMeansProblem:
    """The number of clusters, the distance, and how first centers are chosen."""

    clusters: int
    measure: str
    is_random: bool
    steps: int
    seed: int


class Clusters(NamedTuple):
    """Centers, one per row, and sums over the rows of the data, by center."""

    centers: Floats
    iterations: int
    cost: float
    sizes: list[int]


def fit_clusters(
    ps: PSContext,
    data: PartitionedRows,
    problem: KMeansProblem,
    *,
    start: Floats | None,
    max_iterations: int,
    tolerance: float,
    progress: bool,
) -> Clusters:
    """Run k-means until no center moves by more than ``tolerance``; None starts by draws.

    Clusters are numbered by their first rows, in the order of the data. ``ValueError`` for a row of
    zeros and cosines. Costs some five short Spark jobs, and one request per server and step.
    """
    centers = start
    if centers is None:
        centers = data.retry_missing(partial(_first_centers, data, problem))
    measure, iterations = problem.measure, 0
    work = LossSpec(Quantization(len(centers), measure), intercept=True)
    standing = standing_tasks(ps, data, work)
    evaluator = Evaluator(ps, data, work, standing)
    try:
        is_moving = True
        with progress_bar(max_iterations, is_shown=progress) as show:
            while is_moving and iterations < max_iterations:
                found = evaluator.sums((ps.array(table_of(centers, measure)),), None)
                moved = _moved(centers, found.gradients[0].numpy(), measure)
                is_moving = bool((_distances(centers, moved, measure) > tolerance).any())
                centers, iterations = moved, iterations + 1
                show(iterations, cost=found.value)
    finally:
        standing.close()
    return data.retry_missing(partial(_numbered, data, centers, measure, iterations))


def _moved(centers: Floats, table: Floats, measure: str) -> Floats:
    """The means of the rows of each center; one without rows stays."""
    sums, counts = table[:-1].T, table[-1]
    sizes = np.linalg.norm(sums, axis=1) if measure == COSINE else counts
    moves = (counts > 0.0) & (sizes > 0.0)
    moved = centers.copy()
    moved[moves] = sums[moves] / sizes[moves, None]
    return moved


def _distances(before: Floats, after: Floats, measure: str) -> Floats:
    if measure == COSINE:
        found: Floats = 1.0 - np.einsum("ij,ij->i", before, after)
        return found
    return np.asarray(np.linalg.norm(after - before, axis=1))


def _numbered(data: PartitionedRows, centers: Floats, measure: str, iterations: int) -> Clusters:
    """With centers in the order of their first rows; those without rows come last."""
    parts = data.run_on_blocks(partial(_describe, table_of(centers, measure), measure))
    firsts = np.array([one.firsts for one in parts])
    partitions = np.isinf(firsts).all(axis=0) * len(parts) + np.isfinite(firsts).argmax(axis=0)
    rows = np.append(firsts, np.full((1, len(centers)), np.inf), axis=0)[
        partitions, np.arange(len(centers))
    ]
    order = np.lexsort([rows, partitions])
    sizes = np.sum([one.sizes for one in parts], axis=0)
    return Clusters(
        centers[order],
        iterations,
        math.fsum(one.cost for one in parts),
        [int(sizes[j]) for j in order],
    )


class _Description(NamedTuple):
    """Of the rows of a partition: by center their number, and the place of the first one."""

    sizes: Ints
    firsts: Floats
    cost: float


def _describe(table: Floats, measure: str, descriptor: Descriptor) -> _Description:
    selection = _selection(descriptor)
    rows = selection.rows
    found = nearest(rows, selection.at_columns(table), measure)
    count = table.shape[1]
    firsts = np.full(count, np.inf)
    np.minimum.at(firsts, found.places, rows.labels)
    cost = found.costs.sum() if rows.weights is None else rows.weights @ found.costs
    return _Description(np.bincount(found.places, minlength=count), firsts, float(cost))


# --- first centers --------------------------------------------------------------------------------


class _Draws(NamedTuple):
    """Rows of a partition: the least times come first, equal rows have equal hashes."""

    partition: int
    times: Floats
    places: Ints
    hashes: Keys
    rows: Floats | None
    """Their features, if these are few."""
    has_zero_row: bool = False


def _first_centers(data: PartitionedRows, problem: KMeansProblem) -> Floats:
    """At most ``clusters`` distinct rows, or means of rows. Raises BlockMissing."""
    if problem.is_random:
        return _drawn(data, problem, None, 0, problem.clusters)
    centers = _drawn(data, problem, None, 0, 1)
    for step in range(1, problem.steps + 1):
        more = _drawn(data, problem, centers, step, 2 * problem.clusters)
        if not len(more):
            break
        centers = np.vstack([centers, more])
    if len(centers) <= problem.clusters:
        return centers
    table = table_of(centers, problem.measure)
    counts = np.sum(data.run_on_blocks(partial(_count, table, problem.measure)), axis=0)
    return _local_centers(centers, counts, problem)


def _drawn(
    data: PartitionedRows, problem: KMeansProblem, centers: Floats | None, step: int, count: int
) -> Floats:
    """So many distinct rows at most, drawn by their costs; without centers by their weights."""
    table = None if centers is None else table_of(centers, problem.measure)
    with_rows = count * data.size * data.filled <= _FEW
    draws = data.run_on_blocks(partial(_draw, problem, table, step, count, with_rows))
    if any(one.has_zero_row for one in draws):
        raise ValueError("Cosine distance is not defined for zero-length vectors.")
    best = sorted(
        (time, hashed, one.partition, place)
        for one in draws
        for time, hashed, place in zip(
            one.times.tolist(), one.hashes.tolist(), one.places.tolist(), strict=True
        )
    )
    chosen: dict[int, tuple[int, int]] = {}
    for _, hashed, partition, place in best:
        if len(chosen) < count:
            chosen.setdefault(hashed, (partition, place))
    taken: dict[tuple[int, int], Floats] = {}
    for one in draws:
        if one.rows is not None:
            places = ((one.partition, place) for place in one.places.tolist())
            taken |= dict(zip(places, one.rows, strict=True))
    if not with_rows:
        for found in data.run_on_blocks(partial(_take, list(chosen.values()))):
            taken |= found
    rows = np.array([taken[place] for place in chosen.values()]).reshape(len(chosen), data.size)
    if problem.measure == COSINE:
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def _draw(
    problem: KMeansProblem,
    table: Floats | None,
    step: int,
    count: int,
    with_rows: bool,
    descriptor: Descriptor,
) -> _Draws:
    """The first rows of a race in which each has an exponential time with the rate of its cost."""
    selection = _selection(descriptor)
    rows = selection.rows
    if problem.measure == COSINE and not norms(rows).all():
        nothing = np.zeros(0)
        parts = nothing, nothing.astype(int), nothing.view("u8"), None
        return _Draws(descriptor.partition, *parts, has_zero_row=True)
    hashes = row_hashes(rows.matrix, selection.features)
    rates = np.ones(len(rows)) if rows.weights is None else rows.weights
    if table is not None:
        rates = rates * nearest(rows, selection.at_columns(table), problem.measure).costs
    elif problem.is_random:
        rates = np.ones(len(rows))
    salt = mix(np.array([problem.seed % 2**64], np.uint64)) + np.uint64(step)
    draws = uniform(mix(hashes + mix(salt * GOLDEN)))
    with np.errstate(divide="ignore"):
        times = -np.log1p(-draws) / rates
    order = np.argsort(times, kind="stable")
    order = order[np.isfinite(times[order])]
    _, firsts = np.unique(hashes[order], return_index=True)
    order = order[np.sort(firsts)[:count]]
    taken = _features(selection, descriptor.features, order) if with_rows else None
    return _Draws(descriptor.partition, times[order], order, hashes[order], taken)


def _take(
    chosen: Sequence[tuple[int, int]], descriptor: Descriptor
) -> dict[tuple[int, int], Floats]:
    """The features of the rows of this partition among those chosen."""
    here = [one for one in chosen if one[0] == descriptor.partition]
    places = np.array([place for _, place in here], np.int64)
    return dict(
        zip(here, _features(_selection(descriptor), descriptor.features, places), strict=True)
    )


def _features(selection: Selection, size: int, places: Ints) -> Floats:
    """Rows over all features."""
    rows = selection.rows.matrix[places]
    found = np.zeros((len(places), size))
    found[:, selection.features] = rows if isinstance(rows, np.ndarray) else rows.toarray()
    return found


def _count(table: Floats, measure: str, descriptor: Descriptor) -> Ints:
    """The number of rows with a weight of each center, as in MLlib."""
    selection = _selection(descriptor)
    places = nearest(selection.rows, selection.at_columns(table), measure).places
    weights = selection.rows.weights
    return np.bincount(places if weights is None else places[weights > 0.0], None, table.shape[1])


def _selection(descriptor: Descriptor) -> Selection:
    loaded = singleton(LoadedPartitions).get(descriptor.path)
    return loaded.selection(None, descriptor.partition)


def _local_centers(points: Floats, counts: Ints, problem: KMeansProblem) -> Floats:
    """Centers of weighted points in memory: greedy k-means++, then Lloyd's algorithm."""
    weights = counts.astype(np.float64)
    rows = Rows(points, np.zeros(len(points)), weights)
    centers = points[_spread(points, weights, problem)]
    for _ in range(_LOCAL_STEPS):
        table = table_of(centers, problem.measure)
        moved = _moved(centers, sums_of(rows, table, problem.measure).gradients[0], problem.measure)
        if (moved == centers).all():
            break
        centers = moved
    return centers


def _spread(points: Floats, weights: Floats, problem: KMeansProblem) -> list[int]:
    """Numbers of points, far from one another: each is the best of some draws by cost."""
    random = np.random.default_rng(problem.seed)
    trials = 2 + int(math.log(problem.clusters))
    far = points - points.mean(axis=0)
    squares = np.square(far).sum(axis=1)
    chosen = [_draw_one(random, weights)]

    def costs_of(places: Sequence[int]) -> Floats:
        distances = squares - 2.0 * far[places] @ far.T + squares[places, None]
        distances[np.arange(len(places)), places] = 0.0
        found: Floats = np.maximum(distances, 0.0)
        return found

    costs = costs_of(chosen)[0]
    while len(chosen) < problem.clusters:
        rates = weights * costs
        if not rates.sum() > 0.0:  # points without weight are left
            rates = np.where(costs > 0.0, 1.0, 0.0)
        places = [_draw_one(random, rates) for _ in range(trials)]
        reduced = np.minimum(costs, costs_of(places))
        best = int(np.argmin(reduced @ weights))
        chosen.append(places[best])
        costs = reduced[best]
    return chosen


def _draw_one(random: np.random.Generator, rates: Floats) -> int:
    sums = np.cumsum(rates)
    place = int(np.searchsorted(sums, random.random() * sums[-1], side="right"))
    return min(place, int(np.flatnonzero(rates)[-1]))
