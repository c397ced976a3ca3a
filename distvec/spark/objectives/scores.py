"""Margins of a DataFrame's rows under weights on the servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from pyspark.sql import DataFrame
from pyspark.sql.pandas.functions import arrow_udf

from distvec import DistArray
from distvec.losses.rows import Rows
from distvec.spark.access import Access, join
from distvec.spark.context import STOPPED, PSContext
from distvec.spark.data.blocks import local_columns
from distvec.spark.data.columns import feature_column
from distvec.spark.data.rows import BadRow, features_of
from distvec.spark.interpreter import adopt
from distvec.spark.objectives.vectors import WholeVectors
from ps_backend.program.types import FLOATS, ArrayType


@dataclass(frozen=True)
class Scoring:
    """Where the weights are, as plain data in the task's closure."""

    access: Access
    weights: int
    type: ArrayType
    intercept: bool


def scores(
    df: DataFrame,
    weights: DistArray,
    *,
    features: str = "features",
    output: str = "score",
    intercept: bool = False,
) -> DataFrame:
    """``df`` with a double column ``output``: the margin ``<x, w>``.

    With ``intercept`` the last of ``weights`` is added to each. Lazy, as all of Spark: the tasks
    pull the coordinates of their rows, one message a batch of rows, when the result is computed.
    Keep ``weights`` until then; a task raises BufferLost otherwise.
    """
    session = weights.session if isinstance(weights, DistArray) else None
    if not isinstance(session, PSContext):
        raise TypeError("weights must be a DistArray of a PSContext; make one: ps.array(weights)")
    if session.is_stopped:
        raise RuntimeError(STOPPED)
    if df.sparkSession.sparkContext is not session.spark_context:
        raise ValueError("the data belongs to another SparkContext than the weights")
    if weights.dtype.name not in FLOATS:
        raise TypeError(f"weights have dtype {weights.dtype}; allowed are float64 and float32")
    adopt(df)
    weights = weights.persist()
    request = Scoring(
        session.access,
        weights.buffer_id,
        weights.type,
        intercept,
    )

    # arrow_udf reads the kind of function from these hints, which a functools.partial cannot have.
    def score(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return score_batches(request, batches)

    udf = arrow_udf(score, "double")  # type: ignore[call-overload]  # the stubs want the kind
    scored = df.withColumn(output, udf(feature_column(df, features)))
    # As long as the caller holds this frame, the weights' buffer is not freed.
    vars(scored)["_distvec_weights"] = weights
    return scored


def score_batches(request: Scoring, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """The task side: one array of margins for each array of features."""
    client = join(request.access)
    expected = request.type.space.length - request.intercept
    for batch in batches:
        if len(batch) == 0:
            yield pa.array([], type=pa.float64())
            continue
        try:
            rows = features_of(batch)
        except BadRow as bad:
            raise ValueError(f"scores: row {bad.row} of a batch: {bad.reason}") from None
        if rows.size != expected:
            raise ValueError(f"scores: rows have {rows.size} features, the weights {expected}")
        columns, local = local_columns(rows.indices, rows.size)
        coordinates = np.append(columns, expected) if request.intercept else columns
        pulled = WholeVectors().pull(client, request.weights, request.type, coordinates)
        indptr = np.concatenate(([0], np.cumsum(rows.lengths)))
        matrix = sp.csr_array((rows.values, local, indptr), shape=(len(batch), columns.size))
        found = Rows(matrix, np.zeros(len(batch))).margins(pulled, intercept=request.intercept)
        yield pa.array(found)
