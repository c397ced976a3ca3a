"""Alternating least squares over ratings: the factors of users and items on the servers.

Tasks keep the ratings twice, by user and by item. In each half of an iteration they pull the
factors of one side that their ratings name, solve the rows of the other side, and push those. A
row is solved by one task, from its ratings in a fixed order, so the factors are the same for any
number of partitions and servers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from distvec import DistArray
from distvec.losses.labels import Numbers
from distvec.losses.ratings import Factorization, solve_rows
from distvec.losses.rows import Floats, Ints
from distvec.spark.context import PSContext
from distvec.spark.data.columns import Columns, in_few_partitions
from distvec.spark.data.dataset import Dataset
from distvec.spark.data.rows import entry_rows
from distvec.spark.jobs.interpreter import use_driver_python
from distvec.spark.objectives.block_rounds import restart_if_lost, run_in_round
from distvec.spark.objectives.evaluation_task import LoadedPartitions
from distvec.spark.objectives.partition import Selection
from distvec.spark.rounds.contribute import Contributor
from distvec.spark.task_session import singleton
from optim.core.run import progress_bar
from ps_backend.client import Client, StoredArray

Ids = npt.NDArray[np.int32]


class Side(NamedTuple):
    """Users or items: their ids, ascending, and the ratings by them."""

    ids: Ids
    rows: Dataset
    """The label of a row is the place of its id; columns are places of the other side's ids."""


class Ratings:
    """Ratings in blocks on the executors, by user and by item.

    ``data`` has the columns ``user``, ``item`` and ``rating``. Reading takes four Spark jobs, three
    of them with a shuffle. ``ValueError`` for ids that are no integers of 32 bits, and for ratings
    that are not finite.
    """

    def __init__(self, data: DataFrame, partitions: tuple[int, int]) -> None:
        use_driver_python(data)
        data = in_few_partitions(data)
        numbers = data.select(*(F.col(name).cast("double") for name in ("user", "item", "rating")))
        users, items = _ids(numbers)
        _check_ratings(numbers)
        self.users = _side(numbers, ("user", "item"), (users, items), partitions[0])
        try:
            self.items = _side(numbers, ("item", "user"), (items, users), partitions[1])
        except BaseException:
            self.users.rows.close()
            raise

    def close(self) -> None:
        """Remove the blocks."""
        self.users.rows.close()
        self.items.rows.close()


def _ids(numbers: DataFrame) -> tuple[Ids, Ids]:
    """The distinct ids of users and of items. ``ValueError`` if one is no integer of 32 bits."""
    sides = [
        F.struct(F.lit(k).alias("side"), F.col(name).alias("id"))
        for k, name in enumerate(("user", "item"))
    ]
    found = numbers.select(F.inline(F.array(*sides))).distinct().toArrow()
    side = found.column("side").to_numpy()
    users, items = (found.column("id").filter(pa.array(side == k)) for k in (0, 1))
    return _checked(users, "user"), _checked(items, "item")


def _checked(found: pa.ChunkedArray, name: str) -> Ids:
    """Distinct ids of one side, ascending."""
    if found.null_count:
        raise ValueError(f"the column of {name}s has nulls; drop such rows: data.dropna()")
    ids = np.sort(found.to_numpy())
    bounds = np.iinfo(np.int32)
    bad = ids[~((ids == np.floor(ids)) & (ids >= bounds.min) & (ids <= bounds.max))]
    if bad.size:
        raise ValueError(
            f"the column of {name}s has the id {bad[0]:.17g}; ids must be integers between "
            f"{bounds.min} and {bounds.max}: number them by pyspark.ml.feature.StringIndexer"
        )
    if not ids.size:
        raise ValueError("the data has no rows; a factorization needs at least one rating")
    return ids.astype(np.int32)


def _check_ratings(numbers: DataFrame) -> None:
    """``ValueError`` if a rating is null or not finite."""
    rating = F.col("rating")
    is_bad = rating.isNull() | F.isnan(rating) | (F.abs(rating) == math.inf)
    bad = numbers.where(is_bad).first()
    if bad is not None:
        raise ValueError(
            f"the rating of user {bad.user:.0f} and item {bad.item:.0f} is {bad.rating}; ratings "
            "must be finite: drop such rows"
        )


def _side(
    numbers: DataFrame, names: tuple[str, str], ids: tuple[Ids, Ids], partitions: int
) -> Side:
    """The ratings with a row for each id of the first column."""
    context = numbers.sparkSession.sparkContext
    known = context.broadcast(ids)
    columns = [F.col(name) for name in (*names, "rating")]
    # More partitions than ids would be empty, and each a task of each job.
    ordered = numbers.select(*columns).repartition(min(partitions, len(ids[0])), names[0])
    prepare = partial(_rows_of, known, names)
    return Side(ids[0], Dataset(ordered, Columns(), Numbers(), prepare=prepare))


def _rows_of(
    known: Broadcast[tuple[Ids, Ids]], names: tuple[str, str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The ratings by each id together, in the order of columns and ratings."""
    table = pa.Table.from_batches([*batches])
    rows, columns = (
        pc.index_in(table.column(name).cast(pa.int32()), value_set=pa.array(ids)).to_numpy()
        for name, ids in zip(names, known.value, strict=True)
    )
    ratings, count = table.column("rating").to_numpy(), len(known.value[1])
    order = np.lexsort((ratings, rows.astype(np.int64) * count + columns))
    labels, starts = np.unique(rows[order], return_index=True)
    yield entry_rows(labels, np.append(starts, order.size), count, columns[order], ratings[order])


class Factors(NamedTuple):
    """The factors of users and items, and the objective after each iteration."""

    users: DistArray
    items: DistArray
    history: list[float]


def factorize(
    ps: PSContext,
    ratings: Ratings,
    problem: Factorization,
    start: Callable[[], DistArray],
    iterations: int,
    *,
    progress: bool = False,
) -> Factors:
    """Solve items and users in turns.

    ``start`` makes the first factors of the users. If a server is lost, all iterations run again,
    with a warning, and give the same factors. Each half of an iteration is a Spark job without a
    shuffle.
    """

    def attempt() -> Factors:
        return _factorize(ps, ratings, problem, start(), iterations, progress)

    return restart_if_lost(ps, attempt, "the factorization")


def _factorize(
    ps: PSContext,
    ratings: Ratings,
    problem: Factorization,
    users: DistArray,
    iterations: int,
    progress: bool,
) -> Factors:
    history: list[float] = []
    items = ps.zeros((len(ratings.items.ids), users.shape[1]))
    with progress_bar(iterations, is_shown=progress) as show:
        for number in range(iterations):
            items, of_items = _solve_side(ps, ratings.items, users, problem)
            users, of_users = _solve_side(ps, ratings.users, items, problem)
            history.append(of_users.value + of_items.penalty)
            show(number + 1, objective=history[-1])
    return Factors(users, items, history)


class _Sums(NamedTuple):
    """Of a partition's rows; see ``SolvedRows``."""

    value: float
    penalty: float


def _solve_side(
    ps: PSContext, side: Side, others: DistArray, problem: Factorization
) -> tuple[DistArray, _Sums]:
    """The factors of one side, by those of the other."""
    others.persist()
    held = StoredArray(others.buffer_id, others.type)
    rank = others.shape[1]
    gram = (others.T @ others).numpy() if problem.is_implicit else np.zeros((rank, rank))

    found, sums = run_in_round(
        ps,
        side.rows,
        partial(ps.zeros, (len(side.ids), rank)),
        partial(_solve, held, problem, gram),
    )
    return found, _Sums(*(math.fsum(column) for column in zip(*sums, strict=True)))


def _solve(
    others: StoredArray,
    problem: Factorization,
    gram: Floats,
    client: Client,
    selection: Selection,
    r: Contributor,
) -> _Sums:
    """Solve the rows of a partition. Two messages a server: a pull and a push."""
    places: Ints = selection.rows.labels.astype(np.int64)
    vectors = singleton(LoadedPartitions).vectors()
    factors = vectors.pull(client, *others, selection.features)
    solved = solve_rows(selection.rows.matrix, factors, problem, gram)  # type: ignore[arg-type]
    r.push(places, solved.factors)
    return _Sums(solved.value, solved.penalty)
