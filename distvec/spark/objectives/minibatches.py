"""An objective of rows in Spark, seen one part of the rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optim.stochastic.minibatches import Evaluation, FiniteSum, Order


@dataclass(frozen=True)
class Draws(Order):
    """Numbers 0 .. count - 1 drawn with replacement: the k-th is a function of the seed and k."""

    def at(self, k: int) -> int:
        """The k-th number."""
        return int(np.random.default_rng((self.seed, k)).integers(self.count))


@dataclass(frozen=True)
class Minibatches(FiniteSum):
    """The parts of an objective's rows, for solvers that see one at a time: a ``FiniteSum``.

    Part i has an equal share of the rows of each partition, always the same ones, a random sample;
    all parts together are all rows, and the mean of their values and gradients is the objective's.
    Which part iteration k sees is a function of the seed and k alone. ``fun(x, i)`` is part i.
    """

    whole: Callable[..., Evaluation] = field(kw_only=True)
    """The objective: a look at it is one evaluation, not one for each part."""
    replace: bool = field(default=False, kw_only=True)
    """Draw a part each time, rather than go through all of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.replace:
            object.__setattr__(self, "order", Draws(self.count, True, self.seed))

    def __call__(self, x: Any, *args: Any) -> Evaluation:
        """The mean over all rows."""
        return self.whole(x, *args)
