"""Penalties on groups of elements, which are zero as a whole, or not at all.

M. Yuan, Y. Lin, J. R. Statist. Soc. B 68 (2006) 49-67. Notation as of `operators`.
"""

from __future__ import annotations

from dataclasses import dataclass

from optim.core.arrays import Array, Scalar, namespace, vdot
from optim.core.checks import check_positive
from optim.proximal.operators import Proximal, adopt_arrays, check_weight, kept_part


@dataclass(frozen=True)
class L21Norm(Proximal):
    """weight * sum of |row| over the rows of a table: sets whole rows to 0, or nothing of them.

    M. Yuan, Y. Lin, J. R. Statist. Soc. B 68 (2006) 49-67, where the rows are the groups.
    """

    weight: float = 1.0

    def __post_init__(self) -> None:
        check_weight(self, "weight")

    def value(self, x: Array) -> Scalar:
        """The penalty at `x`."""
        return self.weight * namespace(x).sum(row_norms(x))

    def prox(self, x: Array, step: float) -> Array:
        """Block soft thresholding of each row (Parikh and Boyd, section 6.5.4)."""
        return kept_part(x, row_norms(x), step * self.weight) * x


@dataclass(frozen=True)
class GroupLasso(Proximal):
    """weight * sum over groups of |x_group|, the 2-norm: groups are zero as a whole, or not at all.

    labels      an integer array like x; element i belongs to group labels[i] of 0 ... groups - 1.
                Any other label, as -1, is of no group and is not penalised. Of parameters in
                several arrays each has its array of labels
    groups      how many groups there are. Each costs a sweep over x: meant for dozens, not for
                thousands

    M. Yuan, Y. Lin, J. R. Statist. Soc. B 68 (2006) 49-67, without their weights by group size.
    """

    labels: Array
    groups: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        adopt_arrays(self, "labels")
        check_weight(self, "weight")
        check_positive(self, "groups")

    def value(self, x: Array) -> Scalar:
        """The penalty at `x`."""
        parts = [self._part(x, group) for group in range(self.groups)]
        return self.weight * sum(vdot(part, part) ** 0.5 for part in parts)

    def prox(self, x: Array, step: float) -> Array:
        """Block soft thresholding of each group (Parikh and Boyd, section 6.5.4)."""
        # All norms are of x itself, as groups are disjoint: lazy arrays read them together.
        parts = [self._part(x, group) for group in range(self.groups)]
        norms = [vdot(part, part) ** 0.5 for part in parts]
        dropped = [1.0 - kept_part(x, norm, step * self.weight) for norm in norms]
        return x - sum(part * drop for part, drop in zip(parts, dropped, strict=True))

    def _part(self, x: Array, group: int) -> Array:
        return namespace(x).where(self.labels == group, x, 0.0)


def row_norms(x: Array) -> Array:
    """The 2-norms of the rows of a table, of shape (n, 1)."""
    return namespace(x).sum(x * x, axis=-1, keepdims=True) ** 0.5
