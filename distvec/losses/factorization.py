"""Factorization machines: a margin with a term for each pair of features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from distvec.losses.classification import Logistic
from distvec.losses.loss import Arrays, Loss, Parameter, Sums, evaluate_by_blocks
from distvec.losses.row_losses import RowLoss, sum_once_rounded
from distvec.losses.rows import Floats, Matrix, Rows, blocks

_Values: TypeAlias = npt.NDArray[Any]

_SQUARED_AT_ONCE = 1 << 21
"""So many elements of a sparse matrix are squared at a time (16 MiB)."""
_DENSE_AT_ONCE = 1 << 17
"""Of a dense one: they stay in the cache."""


@dataclass(frozen=True)
class FactorizationMachine(Loss):
    """Loss of a factorization machine: margins with a term for each pair of features.

    The margin is ``m = x w [+ intercept] [+ offset] + sum over i < j of x_i x_j <V_i, V_j>``. The
    parameters are a dict: ``"w"``, ``(features [+ 1],)``, and the table ``"V"``, ``(features,
    factors)``.

    Parameters
    ----------
    factors : int, default 8
        Number of columns of ``V``.
    row : RowLoss, optional
        The loss of margin and label, by default ``Logistic()``. The loss has products with its
        Hessian if ``row`` has a curvature.
    spread : float, default 0.01
        Standard deviation of the random values that ``V`` starts from. The loss is not convex, and
        its gradient by ``V`` is 0 at ``V = 0``.

    Raises
    ------
    TypeError, ValueError
        If ``row`` is not a loss of one margin, or a number is out of range.

    Notes
    -----
    The sum over pairs is half of ``|x V|^2 - x^2 |V|^2``, with squares by element and ``|V|^2`` by
    row. So an evaluation costs as much as with a matrix of ``factors + 1`` columns.

    References
    ----------
    S. Rendle, "Factorization machines", 2010.

    Examples
    --------
    >>> from distvec.losses import FactorizationMachine, Objective
    >>> X, y = [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]], [1, 0, 1]
    >>> objective = Objective((X, y), loss=FactorizationMachine(factors=2))
    >>> {name: array.shape for name, array in objective.start().items()}
    {'w': (3,), 'V': (3, 2)}
    """

    formula: ClassVar[str] = (
        "a loss (`row`) of x w + sum over i < j of x_i x_j <V_i, V_j>, `factors` columns in V"
    )
    factors: int = 8
    row: RowLoss = field(default_factory=Logistic)
    spread: float = 0.01

    def __post_init__(self) -> None:
        if self.factors < 1:
            raise ValueError(f"factors={self.factors}; must be 1 or more")
        if not isinstance(self.row, RowLoss):
            raise TypeError(f"row={self.row!r}; must be a loss of one margin, such as Logistic()")
        if not (np.isfinite(self.spread) and self.spread >= 0.0):
            raise ValueError(f"spread={self.spread!r}; must be a finite number, 0 or more")

    @property
    def labels(self) -> str:  # type: ignore[override]  # others have it by class
        """The kind of labels, as ``row`` takes them."""
        return self.row.labels

    @property
    def has_products(self) -> bool:
        return self.row.has_products

    @property
    def has_kinks(self) -> bool:
        return self.row.has_kinks

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        spread = self.spread
        return Parameter("w"), Parameter("V", (self.factors,), takes_intercept=False, spread=spread)

    def bind(self, labels: Sequence[float]) -> FactorizationMachine:
        row: Any = self.row.bind(labels)
        return self if row is self.row else replace(self, row=row)

    def probabilities(self, scores: Floats) -> Floats:
        return self.row.probabilities(scores)

    def predictions(self, scores: Floats) -> Floats:
        return self.row.predictions(scores)

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        table = arrays[1]
        with np.errstate(all="ignore"):
            plain = _sum_duplicates(replace(rows, offsets=None))
            projected = plain.margins(table, intercept=False)
            margins = self._margins(rows, plain, projected, arrays, intercept=intercept)
            values, all_slopes = [], np.empty(len(rows))
            found = evaluate_by_blocks(self.row.row, str(self), ("values", "slopes"), rows, margins)
            for part, (of_block, slopes) in found:
                values.append(float(of_block.sum()))
                all_slopes[part] = slopes
            projected *= all_slopes[:, None]
            pairs = plain.gradient(projected, intercept=False)
            _take(pairs, _squares_gradient(plain, all_slopes), table)
            gradient = plain.gradient(all_slopes, intercept=intercept)
        return Sums(sum_once_rounded(values), rows.weight_sum, (gradient, pairs))

    def products(
        self, rows: Rows, arrays: Arrays, directions: Arrays, *, intercept: bool
    ) -> Arrays:
        if not self.has_products:
            return super().products(rows, arrays, directions, intercept=intercept)
        table, way = arrays[1], directions[1]
        with np.errstate(all="ignore"):
            plain = _sum_duplicates(replace(rows, offsets=None))
            projected = plain.margins(table, intercept=False)
            margins = self._margins(rows, plain, projected, arrays, intercept=intercept)
            moved = plain.margins(way, intercept=False)
            changes = plain.margins(directions[0], intercept=intercept)
            changes += _dots(projected, moved) - _squares_margins(plain, _dots(table, way))
            all_slopes = np.empty(len(rows))
            found = evaluate_by_blocks(
                self._bends, str(self), ("slopes", "curvatures"), rows, margins
            )
            for part, (slopes, curvatures) in found:
                all_slopes[part] = slopes
                changes[part] *= curvatures
            projected *= changes[:, None]
            projected += all_slopes[:, None] * moved
            pairs = plain.gradient(projected, intercept=False)
            _take(pairs, _squares_gradient(plain, changes), table)
            _take(pairs, _squares_gradient(plain, all_slopes), way)
            return plain.gradient(changes, intercept=intercept), pairs

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        plain = _sum_duplicates(replace(rows, offsets=None))
        projected = plain.margins(arrays[1], intercept=False)
        return self._margins(rows, plain, projected, arrays, intercept=intercept)

    def _margins(
        self, rows: Rows, plain: Rows, projected: Floats, arrays: Arrays, *, intercept: bool
    ) -> Floats:
        margins = rows.margins(arrays[0], intercept=intercept)
        squares = _squares_margins(plain, _dots(arrays[1], arrays[1]))
        margins += 0.5 * (_dots(projected, projected) - squares)
        return margins

    def _bends(self, margins: Floats, labels: Floats) -> tuple[Any, Any]:
        _, slopes = self.row.row(margins, labels)
        return slopes, self.row.curvature(margins, labels)


def _dots(left: _Values, right: _Values) -> _Values:
    """Row by row."""
    found: _Values = np.einsum("ij,ij->i", left, right)
    return found


def _take(table: _Values, factors: _Values, other: _Values) -> None:
    """``table -= factors * other``, row by row, in blocks that stay in the cache."""
    for part in blocks(len(table)):
        table[part] -= factors[part, None] * other[part]


def _squares_margins(rows: Rows, vector: _Values) -> Floats:
    """``X^2 v``, squares by element."""
    margins = np.empty(len(rows))
    for part, squares in _squares(rows):
        margins[part] = squares.margins(vector, intercept=False)
    return margins


def _squares_gradient(rows: Rows, slopes: Floats) -> _Values:
    """``(X^2)^T s``."""
    gradient = np.zeros(rows.columns, rows.matrix.dtype)
    for part, squares in _squares(rows):
        gradient += squares.gradient(slopes[part], intercept=False)
    return gradient


def _squares(rows: Rows) -> Iterator[tuple[slice, Rows]]:
    matrix = rows.matrix
    most = _DENSE_AT_ONCE if isinstance(matrix, np.ndarray) else _SQUARED_AT_ONCE
    elements = matrix.size if isinstance(matrix, np.ndarray) else matrix.nnz
    count = max(1, len(rows) * most // max(elements, 1))
    for start in range(0, len(rows), count):
        part = slice(start, start + count)
        piece = rows[part]
        yield part, replace(piece, matrix=_square(piece.matrix))


def _square(matrix: Matrix) -> Matrix:
    if isinstance(matrix, np.ndarray):
        return np.square(matrix)
    arrays = np.square(matrix.data), matrix.indices, matrix.indptr
    return sp.csr_array(arrays, shape=matrix.shape, copy=False)


def _sum_duplicates(rows: Rows) -> Rows:
    """With each element of the matrix in one place, as a square of a sum is no sum of squares."""
    matrix = rows.matrix
    if isinstance(matrix, np.ndarray) or matrix.has_canonical_format:
        return rows
    matrix = matrix.copy()
    matrix.sum_duplicates()
    return replace(rows, matrix=matrix)
