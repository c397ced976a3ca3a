"""Rows as users give them, made ready for a loss."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from distvec.losses import labels as label_rules
from distvec.losses.loss import Loss
from distvec.losses.rows import Floats, Matrix, Rows

Features: TypeAlias = "npt.ArrayLike | sp.sparray | sp.spmatrix"
"""A matrix of rows as users give it."""

InputRows: TypeAlias = "Rows | tuple[Features, npt.ArrayLike]"
"""Rows, or features and labels."""


def rows_for(
    given: InputRows, loss: Loss, positive_label: float | None
) -> tuple[Rows, Loss, tuple[float, float] | None]:
    """The rows in the types, the labels and the order that the loss wants, the loss for these
    labels, and the two classes of a loss of two. What is in these types is not copied.

    TypeError for what is no rows; ValueError for numbers that cannot be.
    """
    rows = _in_types(given if isinstance(given, Rows) else _pair(given))
    _check_columns(rows, loss)
    rule = label_rules.rule(loss.labels, positive_label)
    if (bad := rule.first_bad(rows.labels)) is not None:
        raise ValueError(f"row {bad[0]}: {bad[1]}")
    distinct: list[float] = []
    if rule.gathers:
        distinct = _distinct(rule, rows.labels)
        if loss.labels == "signs" and len(distinct) == 1:
            said = label_rules.one_class("y", distinct[0], len(rows))
            warnings.warn(said, stacklevel=3)
    ready = _in_order(replace(rows, labels=rule.encode(rows.labels)), loss)
    return ready, loss.bind(distinct), label_rules.classes(rule, distinct)


def _distinct(rule: label_rules.LabelRule, labels: Floats) -> list[float]:
    """All labels. ValueError unless they go together."""
    known: list[float] = []
    for label in np.unique(labels).tolist():
        if (reason := rule.unusable(label, known)) is not None:
            raise ValueError(reason)
        known.append(label)
    return rule.check_all({0: known})


def _pair(given: Any) -> Rows:
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(
            f"rows are given as {type(given).__name__}; give a pair (X, y), or "
            "Rows(X, y, weights=..., offsets=...)"
        )
    return Rows(*given)


def _in_types(rows: Rows) -> Rows:
    matrix = matrix_for(rows.matrix)
    count = int(matrix.shape[0])
    if count == 0:
        raise ValueError("the data has no rows; give at least one")
    labels = _column("labels", rows.labels, count)
    weights = None if rows.weights is None else _column("weights", rows.weights, count)
    if weights is not None and (weights.min() < 0.0 or not 0.0 < weights.sum() < math.inf):
        raise ValueError(
            "weights must be 0 or more, with a positive and finite sum; got the minimum "
            f"{weights.min():g} and the sum {weights.sum():g}"
        )
    return Rows(
        matrix,
        labels,
        weights,
        None if rows.offsets is None else _column("offsets", rows.offsets, count),
        None if rows.groups is None else _groups(rows.groups, count),
        None if rows.events is None else _events(rows.events, count),
    )


def matrix_for(given: Any, *, with_missing: bool = False) -> Matrix:
    """CSR with sorted indices, or a dense array by rows; of float32 or float64.

    ValueError for numbers that are not finite, but NaN ``with_missing``.
    """
    matrix: Matrix = _csr(given) if sp.issparse(given) else _floats("features", given)
    if matrix.ndim != 2:
        raise ValueError(f"features have the shape {matrix.shape}; must be a matrix, (rows, n)")
    numbers = matrix if isinstance(matrix, np.ndarray) else matrix.data
    is_finite = np.isfinite(numbers.sum()) or np.isfinite(numbers).all()
    if not is_finite and not (with_missing and not np.isinf(numbers).any()):
        raise ValueError(_not_finite(matrix))
    return matrix


def _not_finite(matrix: Matrix) -> str:
    """What is said of features that are not all finite."""
    numbers: Any = sp.coo_array(matrix)
    bad = np.flatnonzero(~np.isfinite(numbers.data))
    first = bad[np.lexsort((numbers.col[bad], numbers.row[bad]))[0]]
    return (
        f"features contain {bad.size} infinite or NaN numbers, the first in row "
        f"{numbers.row[first]}, column {numbers.col[first]}: {numbers.data[first]}; remove such "
        "rows, or fill the numbers in"
    )


def _csr(given: Any) -> sp.csr_array:
    matrix: sp.csr_array = sp.csr_array(given)
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    if matrix.indices.dtype == np.int64 and max(matrix.nnz, *matrix.shape) < 2**31:
        places = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)  # half the bytes
        matrix = sp.csr_array((matrix.data, *places), shape=matrix.shape)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _floats(name: str, given: Any) -> npt.NDArray[Any]:
    array = np.asarray(given)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} have the dtype {array.dtype}; must be real numbers")
    keep = name == "features" and array.dtype in (np.float32, np.float64)
    return np.ascontiguousarray(array, array.dtype if keep else np.float64)


def _column(name: str, given: Any, count: int) -> Floats:
    column = _floats(name, given)
    if column.shape != (count,):
        raise ValueError(f"{name} have the shape {column.shape}, but there are {count} rows")
    bad = np.flatnonzero(~np.isfinite(column))
    if bad.size:
        raise ValueError(f"row {bad[0]}: {name} must be finite, got {column[bad[0]]}")
    return column


def _groups(given: Any, count: int) -> npt.NDArray[np.int64]:
    groups = np.asarray(given)
    if groups.dtype.kind not in "iu":
        raise TypeError(f"groups have the dtype {groups.dtype}; must be whole numbers")
    if groups.shape != (count,):
        raise ValueError(f"groups have the shape {groups.shape}, but there are {count} rows")
    return groups.astype(np.int64, copy=False)


def _events(given: Any, count: int) -> Floats:
    events = _column("events", given, count)
    bad = np.flatnonzero((events != 0.0) & (events != 1.0))
    if bad.size:
        raise ValueError(f"row {bad[0]}: events must be 0 or 1, got {events[bad[0]]:g}")
    return events


def _check_columns(rows: Rows, loss: Loss) -> None:
    """Refuse what the loss has no use for, and the lack of what it needs."""
    if loss.order == "group" and rows.groups is None:
        raise ValueError(f"{loss} ranks within groups; give Rows(X, y, groups=...)")
    if loss.order != "group" and rows.groups is not None:
        raise ValueError(f"{loss} does not use groups; leave them out")
    if not loss.takes_events and rows.events is not None:
        raise ValueError(f"{loss} does not use events; leave them out")


def _in_order(rows: Rows, loss: Loss) -> Rows:
    """Rows by groups or times; others of the same stay in their order."""
    key = {"group": rows.groups, "time": rows.labels}.get(loss.order)
    if key is None or not (key[1:] < key[:-1]).any():
        return rows
    return rows.take(np.argsort(key, kind="stable"))
