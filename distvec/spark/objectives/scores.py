"""What a model on the servers says of a DataFrame's rows: margins, or a score for each class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from pyspark.sql import DataFrame
from pyspark.sql.pandas.functions import arrow_udf

from distvec import DistArray
from distvec.array.handle import Handle
from distvec.losses.binary import Logistic
from distvec.losses.loss import Loss, Parameter, as_arrays, zeros
from distvec.losses.rows import Floats, Rows
from distvec.spark.access import Access, join
from distvec.spark.context import STOPPED, PSContext
from distvec.spark.data.blocks import local_columns
from distvec.spark.data.columns import Columns, feature_column, feature_names
from distvec.spark.data.rows import BadRow, SparseRows, features_of
from distvec.spark.interpreter import adopt
from distvec.spark.objectives.vectors import Values, WholeVectors
from ps_backend.client import Client, StoredArray
from ps_backend.program.types import FLOATS


@dataclass(frozen=True)
class Scoring:
    """Of what model, and where its parameters are, as plain data in the task's closure."""

    access: Access
    loss: Loss
    parameters: tuple[StoredArray, ...]
    intercept: bool
    names: tuple[str, ...] = ()
    """Of the columns that the features come from, if they are several."""

    def takes_intercept(self, parameter: Parameter) -> bool:
        """Does it have a row for the intercept?"""
        return self.intercept and parameter.takes_intercept


def scores(
    df: DataFrame,
    weights: Any,
    *,
    loss: Loss | None = None,
    features: str | Sequence[str] = "features",
    output: str = "score",
    intercept: bool = False,
) -> DataFrame:
    """``df`` with a column ``output``: what the model ``weights`` says of each row.

    That is the margin ``<x, w>``, a double; or what a ``loss`` with other parameters says, as
    ``FactorizationMachine`` of a dict, or ``Softmax``: an array of doubles, a score for each class.
    With ``intercept`` the last row of ``weights`` is added to each. Offsets are not. ``features``
    is a column of ml vectors or arrays, or a list of columns of numbers.

    Lazy, as all of Spark: the tasks pull the coordinates of their rows, one message a batch of rows
    and array, when the result is computed. The weights of the last four calls are kept for that,
    and those of a frame that you hold; of others a task raises BufferLost once you let them go.
    """
    loss = Logistic() if loss is None else loss
    arrays = as_arrays(weights, loss.parameters)
    session = _session_of(df, arrays)
    adopt(df)
    session.evaluate(*arrays)
    stored = tuple(StoredArray(array.buffer_id, array.type) for array in arrays)
    several = Columns(feature_names(features)).feature_names
    request = Scoring(session.access, loss, stored, intercept, several)

    # arrow_udf reads the kind of function from these hints, which a functools.partial cannot have.
    def score(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return score_batches(request, batches)

    kind = "array<double>" if _no_scores(request).ndim == 2 else "double"
    udf = arrow_udf(score, kind)  # type: ignore[call-overload]  # the stubs want the kind
    scored = df.withColumn(output, udf(feature_column(df, features)))
    # As long as the caller holds this frame, the weights' buffers are not freed. Frames made of it
    # do not hold it: so the session keeps the last models.
    held = vars(scored)["_distvec_weights"] = [array.copy() for array in arrays]
    session.scored.append(held)
    return scored


def _session_of(df: DataFrame, arrays: tuple[DistArray, ...]) -> PSContext:
    """The session of all arrays, where they are such as tasks of ``df`` can pull."""
    session = arrays[0].session if isinstance(arrays[0], DistArray) else None
    if not isinstance(session, PSContext):
        raise TypeError("weights must be a DistArray of a PSContext; make one: ps.array(weights)")
    if session.is_stopped:
        raise RuntimeError(STOPPED)
    if df.sparkSession.sparkContext is not session.spark_context:
        raise ValueError("the data belongs to another SparkContext than the weights")
    for array in arrays:
        if not isinstance(array, Handle) or array.session is not session:
            raise ValueError("the weights do not all belong to one session")
        if array.dtype.name not in FLOATS:
            raise TypeError(f"weights have dtype {array.dtype}; allowed are float64 and float32")
    return session


def _no_scores(request: Scoring) -> Floats:
    """The scores of no rows, which have a column for each class if there are several."""
    loss, intercept = request.loss, request.intercept
    nothing = Rows(sp.csr_array((0, 0)), np.zeros(0))
    return loss.scores(nothing, zeros(loss, 0, intercept=intercept), intercept=intercept)


def score_batches(request: Scoring, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """The task side: one array of scores for each array of features."""
    client, nothing = join(request.access), _no_scores(request)
    for batch in batches:
        found = _scores_of(client, request, batch) if len(batch) else nothing
        flat = pa.array(np.ascontiguousarray(found).ravel())
        if found.ndim == 1:
            yield flat
        else:
            ends = np.arange(len(batch) + 1, dtype=np.int32) * found.shape[1]
            yield pa.ListArray.from_arrays(pa.array(ends), flat)


def _scores_of(client: Client, request: Scoring, batch: pa.Array) -> Floats:
    try:
        rows = features_of(batch, request.names)
    except BadRow as bad:
        raise ValueError(f"scores: row {bad.row} of a batch: {bad.reason}") from None
    columns, local = local_columns(rows.indices, rows.size)
    arrays = tuple(
        _pulled(client, stored, rows, columns, intercept=request.takes_intercept(one))
        for one, stored in zip(request.loss.parameters, request.parameters, strict=True)
    )
    indptr = np.concatenate(([0], np.cumsum(rows.lengths)))
    matrix = sp.csr_array((rows.values, local, indptr), shape=(len(batch), columns.size))
    unlabelled = Rows(matrix, np.zeros(len(batch)))
    return request.loss.scores(unlabelled, arrays, intercept=request.intercept)


def _pulled(
    client: Client, stored: StoredArray, rows: SparseRows, columns: np.ndarray, *, intercept: bool
) -> Values:
    """The rows of a parameter at the columns that occur, and the intercept's."""
    features = stored.type.space.length - intercept
    if rows.size != features:
        raise ValueError(f"scores: rows have {rows.size} features, the weights {features}")
    coordinates = np.append(columns, features) if intercept else columns
    return WholeVectors().pull(client, *stored, coordinates)
