"""Standard deviations of the features of rows in Spark: the sums of all partitions, on servers."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from distvec import DistArray
from distvec.losses.deviations import column_squares, column_sums, deviations
from distvec.spark.access import Access, join
from distvec.spark.context import PSContext
from distvec.spark.data.build import Descriptor
from distvec.spark.data.dataset import Dataset
from distvec.spark.kept import kept
from distvec.spark.objectives.evaluate import LoadedPartitions
from distvec.spark.rounds.contribute import Contributor
from ps_backend.client import StoredArray
from ps_backend.program.spaces import Space


class Weights(NamedTuple):
    """Of a partition's rows."""

    partition: int
    total: float
    squares: float


class Places(NamedTuple):
    """Where columns are: a space, and the coordinates that it consists of if it has not all."""

    access: Access
    space: Space
    kept: StoredArray | None


def standard_deviations(ps: PSContext, data: Dataset, coordinates: DistArray | None) -> DistArray:
    """Of each feature, or of those at ``coordinates``; 0 if it is the same in all rows.

    Two Spark jobs; the bits do not depend on where partitions are. Servers hold five vectors
    meanwhile.
    """
    return data.until_found(partial(_attempt, ps, data, coordinates))


def _attempt(ps: PSContext, data: Dataset, coordinates: DistArray | None) -> DistArray:
    sums, covered, first, second = (
        ps.zeros(data.size if coordinates is None else len(coordinates)) for _ in range(4)
    )
    known = None
    if coordinates is not None:
        coordinates.persist()
        known = StoredArray(coordinates.buffer_id, coordinates.type)
    places = Places(ps.access, sums.space, known)
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
    found: DistArray = deviations(
        first - missed * means, second + missed * means * means, total, squares
    )
    return found.persist()


def _sum(places: Places, contributors: tuple[Contributor, ...], descriptor: Descriptor) -> Weights:
    """Contribute the sums of the columns, and the weight of the rows, to each that is there."""
    selection = kept(LoadedPartitions).get(descriptor.path).selection(None, descriptor.partition)
    rows = selection.rows
    where = selection.coordinates(
        join(places.access), places.space, intercept=False, kept=places.kept
    )
    sums, covered = contributors
    sums.push(where, column_sums(rows))
    covered.push(where, rows.weight_sum)
    squares = float(len(rows)) if rows.weights is None else float(rows.weights @ rows.weights)
    return Weights(descriptor.partition, rows.weight_sum, squares)


def _square(
    places: Places,
    means: StoredArray,
    contributors: tuple[Contributor, ...],
    descriptor: Descriptor,
) -> None:
    """The same of what ``column_squares`` gives."""
    selection = kept(LoadedPartitions).get(descriptor.path).selection(None, descriptor.partition)
    client = join(places.access)
    where = selection.coordinates(client, places.space, intercept=False, kept=places.kept)
    found = column_squares(selection.rows, client.gather(*means, where))
    for contributor, values in zip(contributors, found, strict=True):
        contributor.push(where, values)
