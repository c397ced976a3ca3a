"""What is known of the features of a data set: which occur in a row, and their deviations.

Of a large sparse space those that occur are a small part. The others have no say in an objective
over the rows, so an optimizer need not carry them.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from distvec import DistArray, where
from distvec.array.manipulation.join import concatenate
from distvec.losses.rows import column_squares, column_sums, feature_stddev
from distvec.spark.context import PSContext
from distvec.spark.data.blocks import load
from distvec.spark.data.build import Descriptor
from distvec.spark.data.dataset import Dataset, PartitionedRows, collect
from distvec.spark.objectives.evaluation_task import LoadedPartitions
from distvec.spark.rounds.contribute import Contributor
from distvec.spark.task_session import SessionTicket, join, singleton
from ps_backend.client import StoredArray
from ps_backend.program.spaces import Space
from ps_backend.program.types import ArrayType

_PIECE = 1 << 20
"""So many coordinates go in one message, at most."""


def active_features(ps: PSContext, data: PartitionedRows) -> DistArray:
    """The features that occur in rows of ``data``, sorted: int64 on the servers.

    Two Spark jobs. The servers need a byte for each of ``data.size`` features meanwhile, and so
    does one task.
    """
    if not isinstance(data, Dataset):
        raise NotImplementedError("compact=True needs a classic SparkSession, not Spark Connect")
    touched = _marks(ps, data)
    coordinates = ps.zeros(int(touched.sum()), np.int64)
    with ps.round(coordinates) as r:
        one = data.spark.sparkContext.parallelize([touched.buffer_id], 1)
        collect(one.map(partial(_list, ps.access, touched.type, r)))
    return coordinates


def rows_at_features(
    model: DistArray, coordinates: DistArray, known: int, start: DistArray, *, intercept: bool
) -> DistArray:
    """The rows of ``model`` at those of ``coordinates`` that are below ``known``; lazy.

    Those of ``start`` elsewhere. With ``intercept`` the last row of ``model`` comes behind them.
    """
    count = len(coordinates)
    found: DistArray = start[:count].astype(np.result_type(model.dtype, np.float32))
    if known and count:
        is_known = coordinates < known
        values = model[where(is_known, coordinates, 0)]
        found = where(is_known[:, None] if model.ndim == 2 else is_known, values, found)
    if intercept:
        found = concatenate([found, model[-1:]])
    return found


def _marks(ps: PSContext, data: Dataset) -> DistArray:
    """True where a feature occurs."""
    touched = ps.zeros(data.size, bool)

    def attempt() -> DistArray:
        with ps.round(touched, op="max") as r:
            data.run_on_blocks(partial(_mark, r))
        return touched

    return data.retry_missing(attempt)


def _mark(r: Contributor, descriptor: Descriptor) -> None:
    r.push(load(descriptor.path).columns, True)


def _list(access: SessionTicket, type: ArrayType, r: Contributor, buffer: int) -> None:
    coordinates = np.flatnonzero(join(access).read(buffer, type))
    for low in range(0, coordinates.size, _PIECE):
        piece = coordinates[low : low + _PIECE]
        r.push(np.arange(low, low + piece.size), piece)


class PartitionWeights(NamedTuple):
    """Of a partition's rows."""

    partition: int
    total: float
    squares: float


class FeaturePlaces(NamedTuple):
    """Where columns are: a space, and the coordinates that it consists of if it has not all."""

    access: SessionTicket
    space: Space
    kept: StoredArray | None


class Moments(NamedTuple):
    """Of each feature."""

    means: DistArray
    deviations: DistArray
    """0 if the feature is the same in all rows."""


def moments(ps: PSContext, data: PartitionedRows, coordinates: DistArray | None) -> Moments:
    """Of each feature, or of those at ``coordinates``.

    Two Spark jobs; the bits do not depend on where partitions are. Servers hold five vectors
    meanwhile.
    """
    return data.retry_missing(partial(_moments_once, ps, data, coordinates))


def _moments_once(ps: PSContext, data: PartitionedRows, coordinates: DistArray | None) -> Moments:
    sums, covered, first, second = (
        ps.zeros(data.size if coordinates is None else len(coordinates)) for _ in range(4)
    )
    known = None
    if coordinates is not None:
        coordinates.persist()
        known = StoredArray(coordinates.buffer_id, coordinates.type)
    places = FeaturePlaces(ps.access, sums.space, known)
    with ps.round(sums, covered) as contributors:
        weights = data.run_on_blocks(partial(_sum, places, contributors))
    total = squares = 0.0
    for one in sorted(weights):  # as servers add up: what all partitions cover is the same number
        total, squares = total + one.total, squares + one.squares
    means = (sums / total).persist()
    with ps.round(first, second) as contributors:
        held = StoredArray(means.buffer_id, means.type)
        data.run_on_blocks(partial(_square, places, held, contributors))
    missed = total - covered  # weights of partitions where a column has zeros alone
    found: DistArray = feature_stddev(
        first - missed * means, second + missed * means * means, total, squares
    )
    return Moments(means, found.persist())


def _sum(
    places: FeaturePlaces, contributors: tuple[Contributor, ...], descriptor: Descriptor
) -> PartitionWeights:
    """Contribute the sums of the columns, and the weight of the rows, to each that is there."""
    selection = (
        singleton(LoadedPartitions).get(descriptor.path).selection(None, descriptor.partition)
    )
    rows = selection.rows
    where = selection.coordinates(
        join(places.access), places.space, intercept=False, kept=places.kept
    )
    sums, covered = contributors
    sums.push(where, column_sums(rows))
    covered.push(where, rows.weight_sum)
    squares = float(len(rows)) if rows.weights is None else float(rows.weights @ rows.weights)
    return PartitionWeights(descriptor.partition, rows.weight_sum, squares)


def _square(
    places: FeaturePlaces,
    means: StoredArray,
    contributors: tuple[Contributor, ...],
    descriptor: Descriptor,
) -> None:
    """The same of what ``column_squares`` gives."""
    selection = (
        singleton(LoadedPartitions).get(descriptor.path).selection(None, descriptor.partition)
    )
    client = join(places.access)
    where = selection.coordinates(client, places.space, intercept=False, kept=places.kept)
    found = column_squares(selection.rows, client.gather(*means, where))
    for contributor, values in zip(contributors, found, strict=True):
        contributor.push(where, values)
