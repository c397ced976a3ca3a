"""The tasks that say of rows what a model says: margins, or a score for each class; labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from pyspark import Broadcast

from distvec.losses.loss import Loss, Parameter, no_scores, predict
from distvec.losses.rows import Floats, Ints, Matrix, Rows
from distvec.spark.data.blocks import local_columns
from distvec.spark.data.rows import BadRow, DenseRows, SparseRows, read_features
from distvec.spark.objectives.partition import CoordinateTransfer, Values
from distvec.spark.task_session import SessionTicket, join, singleton
from ps_backend.client import Client, StoredArray


class Arrays(NamedTuple):
    """A model's parameters, and the features that they are for; None: all."""

    parameters: tuple[Any, ...]
    coordinates: Any


@dataclass(frozen=True)
class Request:
    """What is asked of what model, as plain data in the task's closure.

    ``arrays`` are ``StoredArray``s of the servers that ``access`` joins; without it, a broadcast.
    """

    wanted: tuple[str, ...]
    """MARGINS, PROBABILITIES or PREDICTIONS; of several the answers are structs."""
    loss: Loss
    classes: tuple[float, float]
    intercept: bool
    num_features: int
    arrays: Arrays | Broadcast[Arrays]
    access: SessionTicket | None = None
    names: tuple[str, ...] = ()
    """Of the columns that the features come from, if they are several."""

    def rows_of(self, parameter: Parameter, length: int, columns: Ints) -> Ints:
        """Which of its ``length`` rows are needed for the features ``columns``."""
        if not parameter.is_of_features:
            return np.arange(length)
        has_intercept = parameter.has_intercept(self.intercept)
        return np.append(columns, length - 1) if has_intercept else columns


def empty_answers(request: Request) -> list[Floats]:
    """The answers for no rows: they have a column for each class if there are several."""
    found = no_scores(request.loss, intercept=request.intercept)
    return [predict(what, request.loss, request.classes, found) for what in request.wanted]


def score_batches(request: Request, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """One array of answers for each array of features."""
    client = None if request.access is None else join(request.access)
    arrays = request.arrays.value if isinstance(request.arrays, Broadcast) else request.arrays
    nothing = empty_answers(request)
    for batch in batches:
        answers = _answers(client, request, arrays, batch) if len(batch) else nothing
        columns = [_in_arrow(found) for found in answers]
        yield (
            columns[0] if len(columns) == 1 else pa.StructArray.from_arrays(columns, request.wanted)
        )


def _in_arrow(found: Floats) -> pa.Array:
    """A number for each row, or a list."""
    flat = pa.array(np.ascontiguousarray(found).ravel())
    if found.ndim == 1:
        return flat
    ends = np.arange(len(found) + 1, dtype=np.int32) * found.shape[1]
    return pa.ListArray.from_arrays(pa.array(ends), flat)


def _answers(
    client: Client | None, request: Request, arrays: Arrays, batch: pa.Array
) -> list[Floats]:
    try:
        rows = read_features(batch, request.names, with_missing=request.loss.takes_missing)
    except BadRow as bad:
        raise ValueError(f"row {bad.row} of a batch: {bad.reason}") from None
    if rows.size != request.num_features:
        raise ValueError(
            f"rows have {rows.size} features, the weights {request.num_features}; for weights with "
            "an intercept or compact=True use objective.model(x).margins(data)"
        )
    columns, matrix = _of_table(rows) if request.loss.takes_tables else _of_touched(rows)
    if arrays.coordinates is not None:
        columns, is_known = _places(client, arrays.coordinates, columns)
        matrix = matrix if is_known.all() else matrix[:, is_known]
    pulled = tuple(
        _pull(client, request, one, array, columns)
        for one, array in zip(request.loss.parameters, arrays.parameters, strict=True)
    )
    unlabelled = Rows(matrix, np.zeros(len(batch)))
    found = request.loss.scores(unlabelled, pulled, intercept=request.intercept)
    return [predict(what, request.loss, request.classes, found) for what in request.wanted]


def _of_table(rows: SparseRows | DenseRows) -> tuple[Ints, Matrix]:
    """All columns, and the rows as a table."""
    matrix = rows.matrix
    table = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
    return np.arange(rows.size), table


def _of_touched(rows: SparseRows | DenseRows) -> tuple[Ints, Matrix]:
    """The columns that are not zero, and the rows over them."""
    rows = rows.as_sparse()
    columns, local = local_columns(rows.indices, rows.size)
    indptr = np.concatenate(([0], np.cumsum(rows.lengths)))
    return columns, sp.csr_array((rows.values, local, indptr), (rows.lengths.size, columns.size))


def _places(
    client: Client | None, coordinates: Any, columns: Ints
) -> tuple[Ints, np.ndarray[Any, Any]]:
    """The rows of the parameters for those of ``columns`` that have one, and which have."""
    known = coordinates if client is None else singleton(_Coordinates).get(client, coordinates)
    places = np.searchsorted(known, columns)
    is_known = places < len(known)
    is_known[is_known] = known[places[is_known]] == columns[is_known]
    return places[is_known], is_known


def _pull(
    client: Client | None, request: Request, parameter: Parameter, array: Any, columns: Ints
) -> Values:
    """The rows of a parameter for ``columns``, and the intercept's."""
    length = len(array) if client is None else array.type.space.length
    coordinates = request.rows_of(parameter, length, columns)
    if client is None:
        found: Values = array[coordinates]
        return found
    return CoordinateTransfer().pull(client, array.buffer, array.type, coordinates)


class _Coordinates:
    """The features of compact models that this process has seen last."""

    def __init__(self) -> None:
        self._known: dict[StoredArray, Ints] = {}

    def get(self, client: Client, stored: StoredArray) -> Ints:
        """All of them; one message a server, once."""
        if stored not in self._known:
            if len(self._known) > 1:
                self._known.pop(next(iter(self._known)))
            self._known[stored] = client.read(*stored)
        return self._known[stored]
