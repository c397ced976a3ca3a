"""Word vectors by skip-gram: sentences in long tasks, a table of vectors on the servers.

Each task keeps the sentences of its partitions as numbers of words. For each batch it pulls the
rows that the batch needs, trains them, and pushes their changes: two messages a server, the pull of
the next batch while this one is trained. All tasks proceed in lockstep, so a fit has the same bits
for any number of servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from distvec import DistArray
from distvec.losses.rows import Ints
from distvec.objectives.skip_gram import SkipGram, Text
from distvec.spark.context import PSContext
from distvec.spark.data.columns import in_few_partitions
from distvec.spark.jobs.interpreter import use_driver_python
from distvec.spark.loops.run import run
from distvec.spark.loops.worker import LoopArray, Worker
from distvec.spark.objectives.block_rounds import restart_if_lost
from optim.core.run import progress_bar


class Vocabulary(NamedTuple):
    """Words, the most frequent first, and how often each occurs."""

    words: pa.Array
    counts: Ints


class Sentences:
    """Sentences of words that occur ``least`` times or more.

    ``data`` has the column ``words``. Two Spark jobs read it. ``ValueError`` for rows that are
    null, and if no word occurs so often.
    """

    def __init__(self, data: DataFrame, least: int, longest: int, partitions: int) -> None:
        use_driver_python(data)
        few = in_few_partitions(data)
        if few.where(F.col("words").isNull()).limit(1).count():
            raise ValueError("the column of sentences has nulls; drop such rows: data.dropna()")
        self.vocabulary = _vocabulary(few, least)
        known = data.sparkSession.sparkContext.broadcast(self.vocabulary.words)
        if partitions != data.rdd.getNumPartitions():
            data = data.repartition(partitions)
        numbered = data.mapInArrow(partial(_number, known, longest), "words binary, ends binary")
        self.rows = numbered.rdd

    def close(self) -> None:
        """Nothing is kept."""


def _vocabulary(data: DataFrame, least: int) -> Vocabulary:
    words = data.select(F.explode("words").alias("word")).dropna()
    counted = words.groupBy("word").count().where(F.col("count") >= least).toArrow()
    if not counted.num_rows:
        raise ValueError(
            f"no word occurs minCount={least} times or more; set minCount to a smaller number, or "
            "give more sentences"
        )
    ordered = counted.sort_by([("count", "descending"), ("word", "ascending")])
    column = ordered.column("word").combine_chunks()
    return Vocabulary(column, ordered.column("count").to_numpy().astype(np.int64))


def _number(
    known: Broadcast[pa.Array], longest: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For ``mapInArrow``: a row for each batch, with the numbers of known words and the ends of
    sentences, which have ``longest`` words at most."""
    for batch in batches:
        lists = batch.column(0)
        numbers = pc.index_in(lists.flatten(), known.value)
        is_known = np.asarray(numbers.is_valid())
        ends = np.cumsum(np.asarray(pc.list_value_length(lists), np.int64))
        last = np.append(0, np.cumsum(is_known))[ends]
        lengths = np.diff(last, prepend=0)
        pieces = -(-lengths // longest)
        first = np.repeat(last - lengths, pieces)
        at = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        cut = np.minimum(first + (at + 1) * longest, np.repeat(last, pieces))
        words = numbers.drop_null().to_numpy().astype(np.int32)
        yield pa.RecordBatch.from_pydict({"words": [words.tobytes()], "ends": [cut.tobytes()]})


def text_of(rows: Any) -> Text:
    """The sentences that a task has."""
    words, ends, count = [], [], 0
    for row in rows:
        words.append(np.frombuffer(row.words, np.int32))
        ends.append(count + np.frombuffer(row.ends, np.int64))
        count += words[-1].size
    if not words:
        return Text(np.zeros(0, np.int32), np.zeros(0, np.int64))
    return Text(np.concatenate(words), np.concatenate(ends))


class Embeddings(NamedTuple):
    """Vectors of words and of neighbours, and the mean loss of a pair in each epoch."""

    table: DistArray
    history: list[float]


def embed(
    ps: PSContext, sentences: Any, problem: SkipGram, columns: int, *, progress: bool = False
) -> Embeddings:
    """Train vectors of so many columns; ``sentences`` are an RDD of rows of ``Sentences``.

    If a server is lost, all epochs run again, with a warning, and give the same vectors.
    """
    attempt = partial(_embed, ps, sentences, problem, columns, progress)
    return restart_if_lost(ps, attempt, "the training")


def _embed(
    ps: PSContext, sentences: Any, problem: SkipGram, columns: int, progress: bool
) -> Embeddings:
    words, bound = len(problem.counts), 0.5 / columns
    start: Any = ps.random.uniform(-bound, bound, size=(words, columns), seed=problem.seed)
    table = start.astype(np.float32)
    if not problem.is_symmetric:
        zeros = ps.zeros((problem.rows - words, columns), dtype=np.float32)
        table = np.concatenate([table, zeros])
    losses = ps.zeros((problem.epochs, 2))
    total = problem.epochs * problem.batches_per_epoch(int(problem.counts.sum()))
    with progress_bar(total, is_shown=progress) as show:

        def tell(clocks: Any) -> None:
            show(min(total, min(clocks)))

        run(partial(train_in_task, problem), sentences, table, losses, progress=tell)
    sums: npt.NDArray[np.float64] = losses.numpy()
    return Embeddings(table, (sums[:, 0] / np.maximum(sums[:, 1], 1.0)).tolist())


def train_in_task(problem: SkipGram, worker: Worker, table: LoopArray, losses: LoopArray) -> None:
    """All batches of its sentences from the clock at which it begins."""
    text, size = text_of(worker.rows), worker.size
    each = problem.batches_per_epoch(text.words.size, size)
    batches = problem.batches(text, worker.rank, size, worker.now)
    for batch, vectors in worker.prefetch(table, batches, attrgetter("rows")):
        found = problem.train(batch, vectors, size)
        table.push(batch.rows, found.changes)
        losses.push([worker.now // each], [[found.loss, found.pairs]])
        worker.clock()
