"""Functions with one kink, and what is smooth in place of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distvec.losses.checks import check_smoothing
from distvec.losses.one_margin import RowLoss
from distvec.losses.rows import Floats


@dataclass(frozen=True, kw_only=True)
class KinkedLoss(RowLoss):
    """A loss with kinks, unless ``smoothing`` g > 0 puts its Moreau envelope in its place."""

    smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_smoothing(self)

    @property
    def has_products(self) -> bool:
        """Where it is smooth."""
        return self.smoothing > 0.0

    @property
    def has_kinks(self) -> bool:
        """Without smoothing."""
        return self.smoothing == 0.0


def kinked(r: Floats, low: float, high: float, smoothing: float) -> tuple[Floats, Floats]:
    """``max(low r, high r)`` and its derivative by ``r``, or the Moreau envelope of it.

    The envelope, ``min_t max(low t, high t) + (t - r)^2 / (2 smoothing)``, is ``r^2 / (2
    smoothing)`` where ``low < r / smoothing < high`` and linear outside, less than the function by
    at most ``smoothing max(low^2, high^2) / 2``. Without smoothing the subgradient at 0 is 0, which
    must lie between ``low`` and ``high``.
    """
    if smoothing == 0.0:
        slopes = np.where(r > 0.0, high, np.where(r < 0.0, low, 0.0))
        return slopes * r, slopes
    slopes = np.clip(r / smoothing, low, high)
    return slopes * (r - 0.5 * smoothing * slopes), slopes


def kink_curvature(r: Floats, low: float, high: float, smoothing: float) -> Floats:
    """The second derivative of the envelope; 0 where it does not exist.

    NotImplementedError without smoothing.
    """
    if smoothing == 0.0:
        raise NotImplementedError("what has a kink has no second derivative; give it smoothing=")
    place = r / smoothing
    return np.where((place > low) & (place < high), 1.0 / smoothing, 0.0)
