"""Sparse rows made in Spark tasks, the same every time: uniformly random ones, and such as texts
have.

Rows of texts are made to look like RCV1-v2's (Lewis et al. 2004): ``statistics`` counts in both
what matters for speed and convergence, and ``RCV1`` has the figures of 1500 real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import gcd

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DoubleType, StructField, StructType

NONZEROS = 50
"""Of a uniformly random row."""

RCV1: Mapping[str, float] = {
    "non-zeros a row, mean": 78.1,
    "non-zeros a row, median": 62.0,
    "value, median": 0.0724,
    "share of rows with the most frequent feature": 0.442,
    "share of rows with the 100th": 0.112,
    "share of rows with the 1000th": 0.0167,
    "share of non-zeros in the first 100 features": 0.219,
    "share of non-zeros in the first 1000": 0.672,
    "features that occur": 11_670.0,
}
"""Of the first 1500 rows of RCV1-v2 that Vowpal Wabbit ships: 47,236 features, log tf-idf."""

_BATCH = 2500
_SCHEMA = StructType([StructField("label", DoubleType()), StructField("features", VectorUDT())])
_LENGTH = 60.0
"""The median number of words of a text, but for 5 that each has."""

_TRUTH = 1 << 20
"""So many weights has the model that labels are drawn from; they are used again and again where
there are more features."""

Batch = tuple[npt.NDArray[np.float64], sp.csr_array]


def synthetic(spark: SparkSession, rows: int, features: int) -> DataFrame:
    """Uniformly random rows: see ``uniform_rows``."""
    return made(spark, rows, features, uniform_rows)


def texts(spark: SparkSession, rows: int, features: int) -> DataFrame:
    """Rows such as texts have: see ``text_rows``."""
    return made(spark, rows, features, text_rows)


def made(
    spark: SparkSession, rows: int, features: int, make: Callable[[int, int, int], Batch]
) -> DataFrame:
    """Labels 0 and 1, and ml vectors, by ``make(number of the batch, rows, features)``."""
    partitions = spark.sparkContext.defaultParallelism
    batches = -(-rows // _BATCH)

    def batch_of(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            for batch in part.column(0).to_pylist():
                yield _as_arrow(*make(batch, min(_BATCH, rows - batch * _BATCH), features))

    return spark.range(0, batches, 1, partitions).mapInArrow(batch_of, _SCHEMA)


def uniform_rows(batch: int, count: int, features: int) -> Batch:
    """Normal values in ``NONZEROS`` places spread evenly; labels drawn from a logistic model.

    One place is drawn in each of as many strata: no row has a place twice, every feature is as
    likely as any other, and indices come sorted.
    """
    rng = np.random.default_rng([1, batch])
    shape = (count, NONZEROS)
    width = features / NONZEROS
    places = ((np.arange(NONZEROS) + rng.random(shape)) * width).astype(np.int32)
    values = rng.standard_normal(shape)
    starts = np.arange(count + 1, dtype=np.int32) * NONZEROS
    matrix = sp.csr_array((values.ravel(), places.ravel(), starts), shape=(count, features))
    return _labels(rng, matrix, 3.0 / np.sqrt(NONZEROS)), matrix


class Words:
    """The law of Zipf and Mandelbrot: word ``r`` comes as ``(r + 150) ** -1.6``."""

    SHIFT, EXPONENT = 150.0, 1.6

    def __init__(self, count: int) -> None:
        self.count = count
        power = 1.0 - self.EXPONENT
        self._first, self._last = self.SHIFT**power, (count + self.SHIFT) ** power

    def drawn(self, uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Ranks from 0, of numbers in [0, 1): by the inverse of the distribution function."""
        powers = self._first - uniform * (self._first - self._last)
        ranks = powers ** (1.0 / (1.0 - self.EXPONENT)) - self.SHIFT
        return np.clip(ranks.astype(np.int64), 0, self.count - 1)

    def chances(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Of each rank to be drawn."""
        power = 1.0 - self.EXPONENT
        low, high = ranks + self.SHIFT, ranks + (self.SHIFT + 1.0)
        return np.asarray((low**power - high**power) / (self._first - self._last))


def text_rows(batch: int, count: int, features: int) -> Batch:
    """Words of texts, with log tf-idf values of unit length; labels drawn from a logistic model.

    Lengths are lognormal, words drawn by ``Words``, and frequent ones are anywhere among the
    features. Of the labels a linear model gets some 95 % right.
    """
    rng, words = np.random.default_rng([2, batch]), Words(features)
    lengths = np.exp(rng.normal(np.log(_LENGTH), 0.7, count)).astype(np.int64) + 5
    rows = np.repeat(np.arange(count), lengths)
    ranks = words.drawn(rng.random(rows.size))
    keys, frequencies = np.unique(rows * features + ranks, return_counts=True)
    rows, ranks = np.divmod(keys, features)
    chances = -np.expm1(-lengths.mean() * words.chances(ranks))
    values = (1.0 + np.log(frequencies)) * -np.log(chances)
    values /= np.sqrt(np.bincount(rows, values * values, count))[rows]
    places = (ranks * _step(features)) % features
    matrix = sp.csr_array((values, (rows, places)), shape=(count, features))
    matrix.sort_indices()
    return _labels(rng, matrix, 10.0), matrix


def _step(features: int) -> int:
    """A number that has no factor in common with ``features``, near the golden section of it."""
    step = int(0.618 * features) | 1
    while gcd(step, features) > 1:
        step += 2
    return step


def _labels(rng: np.random.Generator, matrix: sp.csr_array, scale: float) -> np.ndarray:
    truth = np.random.default_rng(0).standard_normal(_TRUTH)
    products = matrix.data * truth[matrix.indices % _TRUTH]
    margins = scale * np.add.reduceat(products, matrix.indptr[:-1])
    return (rng.random(margins.size) < 1.0 / (1.0 + np.exp(-margins))).astype(np.float64)


def _as_arrow(labels: np.ndarray, matrix: sp.csr_array) -> pa.RecordBatch:
    count, features = matrix.shape
    starts = pa.array(matrix.indptr.astype(np.int32))
    indices = pa.array(matrix.indices.astype(np.int32))
    vectors = {
        "type": pa.array(np.zeros(count, dtype=np.int8)),
        "size": pa.array(np.full(count, features, dtype=np.int32)),
        "indices": pa.ListArray.from_arrays(starts, indices),
        "values": pa.ListArray.from_arrays(starts, pa.array(matrix.data)),
    }
    column = pa.StructArray.from_arrays(list(vectors.values()), names=list(vectors))
    return pa.RecordBatch.from_arrays([pa.array(labels), column], names=["label", "features"])


def matrix_of(batch: pa.RecordBatch) -> Batch:
    """The opposite: labels and rows."""
    vectors = batch.column("features")
    indices, values = vectors.field("indices"), vectors.field("values")
    starts = indices.offsets.to_numpy()
    parts = (values.flatten().to_numpy(), indices.flatten().to_numpy(), starts - starts[0])
    shape = (batch.num_rows, vectors.field("size")[0].as_py())
    return batch.column("label").to_numpy(), sp.csr_array(parts, shape=shape)


def statistics(matrix: sp.csr_array) -> dict[str, float]:
    """Of rows, what ``RCV1`` has of real ones."""
    lengths, count = np.diff(matrix.indptr), matrix.shape[0]
    rows_with = np.sort(np.bincount(matrix.indices))[::-1]
    return {
        "non-zeros a row, mean": float(lengths.mean()),
        "non-zeros a row, median": float(np.median(lengths)),
        "value, median": float(np.median(matrix.data)),
        "share of rows with the most frequent feature": float(rows_with[0] / count),
        "share of rows with the 100th": float(rows_with[99] / count),
        "share of rows with the 1000th": float(rows_with[999] / count),
        "share of non-zeros in the first 100 features": float(rows_with[:100].sum() / matrix.nnz),
        "share of non-zeros in the first 1000": float(rows_with[:1000].sum() / matrix.nnz),
        "features that occur": float(np.count_nonzero(rows_with)),
    }
