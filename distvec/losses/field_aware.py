"""Field-aware factorization machines: each key has a vector for every field of its partners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from distvec.losses.factorization import FactorizationMachine
from distvec.losses.loss import Arrays, Parameter, Sums, evaluate_by_blocks
from distvec.losses.row_losses import sum_once_rounded
from distvec.losses.rows import Floats, Ints, Rows


@dataclass(frozen=True)
class FieldAwareMachine(FactorizationMachine):
    """As ``FactorizationMachine``, with ``<V_i[field of j], V_j[field of i]>`` for the pair i, j.

    The field of an element is its place in its row, as CSR rows have them, after ``leading`` ones
    that have no field, such as an intercept. ``"V"`` has ``fields * factors`` columns: the vectors
    of a key, one after the other. Rows may have fewer elements than fields, from the front.

    Y. Juan et al., "Field-aware factorization machines for CTR prediction", 2016.
    """

    fields: int = 2
    leading: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fields < 2:
            raise ValueError(f"fields={self.fields}; must be 2 or more")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        row = (self.fields * self.factors,)
        return Parameter("w"), Parameter("V", row, takes_intercept=False, spread=self.spread)

    @property
    def has_products(self) -> bool:
        return False

    def bind(self, labels: Sequence[float]) -> FieldAwareMachine:
        row: Any = self.row.bind(labels)
        return replace(self, row=row)

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        places, columns, x = self._elements(rows)
        partners = self._partners(columns, x, arrays[1])
        with np.errstate(all="ignore"):
            margins = rows.margins(arrays[0], intercept=intercept)
            margins += self._pairs(partners, columns, x, arrays[1])
            values, slopes = [], np.empty(len(rows))
            found = evaluate_by_blocks(self.row.row, str(self), ("values", "slopes"), rows, margins)
            for part, (of_block, of_rows) in found:
                values.append(float(of_block.sum()))
                slopes[part] = of_rows
            gradient = rows.gradient(slopes, intercept=intercept)
            partners *= (slopes[:, None] * x)[:, :, None, None].astype(partners.dtype)
            flat = partners.reshape(-1, self.fields * self.factors)[places]
            each = columns.ravel()[places]
            ones = np.ones(each.size, flat.dtype)
            where = sp.csr_array((ones, (each, np.arange(each.size))), (rows.columns, each.size))
        return Sums(sum_once_rounded(values), rows.weight_sum, (gradient, where @ flat))

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        _, columns, x = self._elements(rows)
        partners = self._partners(columns, x, arrays[1])
        margins = rows.margins(arrays[0], intercept=intercept)
        return margins + self._pairs(partners, columns, x, arrays[1])

    def _elements(self, rows: Rows) -> tuple[Ints, Ints, Floats]:
        """Which of ``(rows, fields)`` there are, flat; columns and values, 0 where is none."""
        return elements_by_field(rows.matrix, self.fields, self.leading)

    def _partners(self, columns: Ints, x: Floats, table: Any) -> Any:
        """For each row, and fields i and j: ``x_j V_j[field i]``; 0 for i = j."""
        vectors = table[columns].reshape(*columns.shape, self.fields, self.factors)
        partners = (vectors * x[:, :, None, None].astype(table.dtype)).transpose(0, 2, 1, 3)
        found = np.ascontiguousarray(partners)
        every = np.arange(self.fields)
        found[:, every, every] = 0.0
        return found

    def _pairs(self, partners: Any, columns: Ints, x: Floats, table: Any) -> Floats:
        """The sums over pairs."""
        vectors = table[columns].reshape(partners.shape)
        found: Floats = 0.5 * np.einsum("rijk,rijk,ri->r", vectors, partners, x, optimize=True)
        return found


def elements_by_field(matrix: Any, fields: int, leading: int = 0) -> tuple[Ints, Ints, Floats]:
    """Which of ``(rows, fields)`` there are, flat; columns and values, 0 where is none.

    The field of an element is its place in its row, after ``leading`` ones that have none.
    """
    count = matrix.shape[0]
    row = np.repeat(np.arange(count), np.diff(matrix.indptr))
    field = np.arange(matrix.nnz) - matrix.indptr[row] - leading
    if np.any(field >= fields):
        raise ValueError(
            f"a row has {int(field.max()) + 1} features that are not zero, for {fields} fields; "
            "give one for each field, or more fields"
        )
    kept = np.flatnonzero(field >= 0)
    places = row[kept] * fields + field[kept]
    columns, x = np.zeros(count * fields, np.int64), np.zeros(count * fields)
    columns[places], x[places] = matrix.indices[kept], matrix.data[kept]
    return places, columns.reshape(count, fields), x.reshape(count, fields)
