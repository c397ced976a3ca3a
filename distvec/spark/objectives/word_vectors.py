"""Words and their vectors: the most similar ones, means of sentences, and frames.

Vectors are in memory, so that tasks get them by a broadcast, or on the servers, from which tasks
pull those that they need.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from pyspark import Broadcast
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from distvec import DistArray
from distvec.losses.rows import Floats, Ints
from distvec.spark.jobs.interpreter import use_driver_python
from distvec.spark.objectives.recommendations import FactorTable, TaskRows, as_lists, by_blocks

_BLOCK = 4096
"""So many vectors become rows of a frame at a time."""


class WordVectors(NamedTuple):
    """Words, and a vector for each."""

    words: pa.Array
    vectors: npt.NDArray[np.float32] | DistArray
    """``(words, columns)``."""

    def of(self, word: str) -> Floats:
        """The vector of a word. ``ValueError`` if there is none."""
        place = self.place(word)
        if place is None:
            raise ValueError(f"{word} not in vocabulary, which has {len(self.words):,} words")
        found: Floats = np.asarray(self.vectors[place : place + 1], np.float64)[0]
        return found

    def place(self, word: str) -> int | None:
        """The number of a word; None if it is unknown."""
        found: int = pc.index(self.words, word).as_py()
        return None if found < 0 else found

    def similar(self, vector: Floats, count: int, without: int | None) -> list[tuple[str, float]]:
        """The words with the largest cosines, of another number than ``without``.

        Of vectors on the servers only the cosines travel.
        """
        norms = np.asarray(np.sqrt((self.vectors * self.vectors).sum(axis=1)), np.float64)
        norm = float(np.linalg.norm(vector))
        direction = (vector / norm if norm else vector).astype(np.float32)
        products = np.asarray(self.vectors @ direction, np.float64)
        cosines = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0.0)
        if without is not None:
            cosines[without] = -np.inf
        count = min(count, cosines.size - (without is not None))
        best = np.lexsort((np.arange(cosines.size), -cosines))[:count]
        return [(self.words[place].as_py(), float(cosines[place])) for place in best.tolist()]

    def frame(self, session: SparkSession) -> DataFrame:
        """The columns ``word`` and ``vector``, an array of floats. Lazy."""
        task = partial(_listed, _send(session, self))
        places = np.arange(len(self.words))
        return by_blocks(session, places, _BLOCK, task, "word string, vector array<float>")


class _InTask(NamedTuple):
    """The same in tasks."""

    words: pa.Array
    rows: TaskRows


def _send(session: SparkSession, known: WordVectors) -> Broadcast[_InTask]:
    places = np.arange(len(known.words), dtype=np.int32)
    rows = TaskRows.of(FactorTable(places, known.vectors))
    return session.sparkContext.broadcast(_InTask(known.words, rows))


def _listed(known: Broadcast[_InTask], places: Ints) -> pa.RecordBatch:
    words, rows = known.value
    vectors = as_lists(pa.array(rows.at(places).ravel()), len(places))
    return pa.RecordBatch.from_arrays([words.take(pa.array(places)), vectors], ["word", "vector"])


def means(data: DataFrame, known: WordVectors, sentences: Column) -> Any:
    """A column: the mean of the vectors of each sentence's words, as an array of doubles.

    Unknown words count as zeros, as in MLlib.
    """
    use_driver_python(data)
    sent = _send(data.sparkSession, known)

    def average(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for batch in batches:
            yield _means(sent.value, batch)

    udf = arrow_udf(average, "array<double>")  # type: ignore[call-overload]  # the stubs want the kind
    return udf(sentences)


def _means(known: _InTask, lists: pa.Array) -> pa.Array:
    if lists.null_count:
        raise ValueError("a sentence is null; drop such rows: data.dropna()")
    lengths = np.asarray(pc.list_value_length(lists), np.int64)
    places = pc.index_in(lists.flatten(), known.words)
    is_known = np.asarray(places.is_valid())
    rows = np.repeat(np.arange(lengths.size), lengths)[is_known]
    used, inverse = np.unique(places.drop_null().to_numpy(), return_inverse=True)
    vectors = known.rows.at(used).astype(np.float64)
    counts = sp.csr_array((np.ones(rows.size), (rows, inverse)), shape=(lengths.size, used.size))
    found = (counts @ vectors) / np.maximum(lengths, 1)[:, None]
    return as_lists(pa.array(found.ravel()), lengths.size)
