"""A function of margins and labels, block by block of rows; what it gives is looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from distvec.losses.errors import LossError, NotFinite, loss_error, row_block
from distvec.losses.rows import Floats, Rows, blocks, read_only

RowFunction: TypeAlias = Callable[[Floats, Floats], tuple[Any, ...]]
"""Of margins and labels, ``(rows,)`` each, to columns of as many numbers."""


def evaluate(
    function: RowFunction, loss: str, names: Sequence[str], rows: Rows, margins: Floats
) -> Iterator[tuple[slice, list[Floats]]]:
    """For each block of rows its columns, times the row weights; ``names`` says what they are.

    Raises LossError, in the name of ``loss``.
    """
    for number, part in enumerate(blocks(len(rows))):
        arguments = read_only(margins[part]), read_only(rows.labels[part])
        try:
            given = function(*arguments)
        except Exception as error:
            raise loss_error(loss, row_block(number, part), error) from error
        wrong = _why_not(given, names, *arguments)
        if wrong:
            raise LossError(loss, row_block(number, part), wrong)
        nan = _nan(given, names, *arguments, part.start)
        if nan:
            raise NotFinite(loss, row_block(number, part), nan)
        columns = [np.asarray(column, np.float64) for column in given]
        yield part, [weighted(column, weights_of(rows, part)) for column in columns]


def weights_of(rows: Rows, part: slice) -> Floats | None:
    """Of some of the rows; None: all 1."""
    return None if rows.weights is None else rows.weights[part]


def weighted(values: Floats, weights: Floats | None) -> Floats:
    """Their products, ``(..., rows)``. A row of weight 0 has no say, whatever is there."""
    if weights is None:
        return values
    products = values * weights
    if not math.isfinite(products.sum()):
        products[..., weights == 0.0] = 0.0
    return products


def _why_not(given: Any, names: Sequence[str], margins: Floats, labels: Floats) -> str:
    """Why these cannot be the columns; "" if they can."""
    wanted = f"it must return ({', '.join(names)}), each of the margins' shape {margins.shape}"
    if not isinstance(given, tuple) or len(given) != len(names):
        what = f"a tuple of {len(given)}" if isinstance(given, tuple) else type(given).__name__
        return f"it returned {what}, but {wanted}"
    for name, column in zip(names, map(np.asarray, given), strict=True):
        if column.shape != margins.shape:
            return f"the {name} have the shape {column.shape}, but {wanted}"
        if column.dtype.kind not in "fiub":
            return f"the {name} have the dtype {column.dtype}, but must be real numbers"
    return ""


def _nan(
    given: Sequence[Any], names: Sequence[str], margins: Floats, labels: Floats, start: int
) -> str:
    """Where the first NaN is that a finite margin gave; "" if there is none.

    Infinite values are for the solver to judge, which has no use for the slopes there.
    """
    judged = np.isfinite(margins)
    for name, column in zip(names, map(np.asarray, given), strict=True):
        if not math.isfinite(column.sum()):
            found = np.flatnonzero(np.isnan(column) & judged)
            if found.size:
                row = int(found[0])
                return (
                    f"the {name} are NaN in row {start + row:,}, where the margin is "
                    f"{float(margins[row])!r} and the label {float(labels[row])!r}"
                )
            judged &= np.isfinite(column)
    return ""
