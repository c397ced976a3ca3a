"""Logistic regression's objective, in a word."""

from __future__ import annotations

import inspect
import math
from typing import Any, ClassVar

from pyspark.sql import DataFrame

import distvec
from distvec import DistArray
from distvec.losses.binary import Logistic
from distvec.spark.keyed.logistic import KeyedLogisticLoss
from distvec.spark.objectives.arguments import check_options
from distvec.spark.objectives.objective import Objective
from optim import ElasticNet


class LogisticLoss(Objective):
    """``loss(w) -> (value, gradient)``: the mean logistic loss of a DataFrame's rows.

    ``value = sum c ln(1 + exp(-y m)) / sum c + 0.5 l2 ||w||^2`` with ``m = <x, w>``, labels ``y``
    +1 or -1 and row weights ``c`` (column ``weight``, else 1). It is ``Objective`` with that loss
    and penalty, whose other arguments it takes; ``mode`` is "job" unless said otherwise.
    ``label`` holds {0, 1} or {-1, 1}, or two values of which ``positive_label`` is +1.

    With ``keys=True`` it is a ``KeyedLogisticLoss`` instead, which takes its own arguments:
    features are keys that nobody numbered, and it trains itself, by minibatches.
    """

    _stack_of_user: ClassVar[int] = 3

    def __new__(cls, *args: Any, keys: bool = False, **options: Any) -> Any:
        """One over numbered features, or over ``keys``."""
        return KeyedLogisticLoss(*args, **options) if keys else super().__new__(cls)

    def __init__(
        self,
        data: DataFrame,
        *,
        l2: float = 0.0,
        mode: str = "job",
        keys: bool = False,
        **options: Any,
    ) -> None:
        check_options(options, _OPTIONS)
        self.l2 = _penalty_factor(l2, "l2")
        super().__init__(data, loss=Logistic(), penalty=_l2(l2), mode=mode, **options)

    def with_l2(self, l2: float) -> LogisticLoss:
        """The same rows (and the same blocks: closing one closes both) under another penalty."""
        other = self.with_penalty(_l2(_penalty_factor(l2, "l2")))
        other.l2 = float(l2)
        return other

    def l1_weights(self, l1: float) -> float | DistArray:
        """``l1`` for ``OWLQN(l1=...)``: with an intercept, an array that is 0 there."""
        l1 = _penalty_factor(l1, "l1")
        is_weight = self._is_penalised(self.loss.parameters[0])
        return l1 if is_weight is None else distvec.where(is_weight, l1, 0.0).persist()


_OPTIONS = [
    name
    for name in inspect.signature(Objective.__init__).parameters
    if name not in ("self", "data", "loss", "penalty")
]


def _l2(l2: float) -> ElasticNet | None:
    return ElasticNet(0.0, l2) if l2 else None


def _penalty_factor(value: float, name: str) -> float:
    if not (math.isfinite(value) and value >= 0.0):
        raise ValueError(f"{name}={value}; it must be finite and 0 or more")
    return float(value)
