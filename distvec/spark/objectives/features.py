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
from distvec.losses.rows import feature_stddev
from distvec.spark.context import PSContext
from distvec.spark.data.blocks import load
from distvec.spark.data.build import Descriptor
from distvec.spark.data.dataset import Dataset, PartitionedRows, collect
from distvec.spark.objectives.evaluation_task import COLUMN_SQUARES, COLUMN_SUMS
from distvec.spark.objectives.evaluator import Evaluator
from distvec.spark.rounds.contribute import Contributor
from distvec.spark.task_session import SessionTicket, join
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


class Moments(NamedTuple):
    """Of each feature."""

    means: DistArray
    deviations: DistArray
    """0 if the feature is the same in all rows."""


def moments(evaluator: Evaluator, coordinates: DistArray | None) -> Moments:
    """Of each feature, or of those at ``coordinates``.

    Two evaluations; the bits do not depend on where partitions are. Servers hold five vectors
    meanwhile.
    """
    return evaluator.data.retry_missing(partial(_moments_once, evaluator, coordinates))


def _moments_once(evaluator: Evaluator, coordinates: DistArray | None) -> Moments:
    """Raises BlockMissing."""
    count = evaluator.data.size
    if coordinates is not None:
        coordinates.persist()
        count = len(coordinates)
    start = evaluator.ps.zeros(count)
    weights, (sums, covered) = evaluator.columns(COLUMN_SUMS, start, coordinates)
    total = 0.0
    for one in weights:  # as servers add up: what all partitions cover is the same number
        total += one.weight
    means = (sums / total).persist()
    _, (first, second) = evaluator.columns(COLUMN_SQUARES, means, coordinates)
    missed = total - covered  # weights of partitions where a column has zeros alone
    found: DistArray = feature_stddev(
        first - missed * means,
        second + missed * means * means,
        total,
        evaluator.data.label_moments.squares,
    )
    return Moments(means, found.persist())
