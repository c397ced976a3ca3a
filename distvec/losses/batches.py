"""Some of the rows at a time: batches in a new order in each epoch, or always the same ones."""

from __future__ import annotations

from dataclasses import dataclass

from distvec.losses.rows import Rows
from optim.stochastic.minibatches import Order


@dataclass(frozen=True)
class Batches:
    """Batch k = 0, 1, ... of ``rows``: a function of the orders' seed and k alone.

    One of ``order``, of all rows, and ``terms``, of batches that are the same in each epoch, is
    given.
    """

    rows: Rows
    size: int
    order: Order | None
    terms: Order | None

    @classmethod
    def of(cls, rows: Rows, size: int, *, shuffle: bool, fixed: bool, seed: int) -> Batches:
        """ValueError for a size that there is not. Rows of ``fixed`` batches are copied once."""
        if not 1 <= size <= len(rows):
            raise ValueError(f"batch_size={size!r}: must be between 1 and {len(rows)}, the rows")
        if not seed >= 0:
            raise ValueError(f"seed={seed!r}: must not be negative")
        if not fixed:
            return cls(rows, size, Order(len(rows), shuffle, seed), None)
        sample = Order(len(rows), True, seed).epoch(0)
        return cls(rows.take(sample), size, None, Order(-(-len(rows) // size), shuffle, seed))

    @property
    def per_epoch(self) -> int:
        """After how many each row was seen once; the last of them may be smaller."""
        return -(-len(self.rows) // self.size)

    def at(self, k: int) -> Rows:
        """The rows of batch k: a copy, where their order is new."""
        epoch, place = divmod(k, self.per_epoch)
        if self.order is not None and self.order.shuffle:
            return self.rows.take(self.order.epoch(epoch)[self._part(place)])
        return self.rows[self._part(place if self.terms is None else self.terms.number(k))]

    def _part(self, place: int) -> slice:
        start = place * self.size
        return slice(start, min(start + self.size, len(self.rows)))
