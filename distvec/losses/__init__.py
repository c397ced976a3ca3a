"""Losses of rows, and objectives and models over rows in memory.

``distvec.spark`` uses the same losses for the rows of DataFrames.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from distvec.losses.classification import Hinge, Logistic, ModifiedHuber, Softmax, SquaredHinge
from distvec.losses.cox import Cox
from distvec.losses.factorization import FactorizationMachine
from distvec.losses.loss import Loss, LossError, NotFinite, Parameter, PhasedLoss, Sums
from distvec.losses.ranking import PairwiseRanking
from distvec.losses.regression import (
    Absolute,
    EpsilonInsensitive,
    Gamma,
    Huber,
    Poisson,
    Quantile,
    Squared,
    SquaredEpsilonInsensitive,
    Tweedie,
)
from distvec.losses.row_losses import RowLoss
from distvec.losses.rows import Rows
from distvec.losses.user_losses import block_loss, row_loss
from distvec.losses.weibull import Weibull

if TYPE_CHECKING:
    from distvec.losses.check import check_loss
    from distvec.objectives.keyed_machine import KeyedMachine
    from distvec.objectives.local import Objective
    from distvec.objectives.model import Model

__all__ = [
    "Absolute",
    "Cox",
    "EpsilonInsensitive",
    "FactorizationMachine",
    "Gamma",
    "Hinge",
    "Huber",
    "KeyedMachine",
    "Logistic",
    "Loss",
    "LossError",
    "Model",
    "ModifiedHuber",
    "NotFinite",
    "Objective",
    "PairwiseRanking",
    "Parameter",
    "PhasedLoss",
    "Poisson",
    "Quantile",
    "RowLoss",
    "Rows",
    "Softmax",
    "Squared",
    "SquaredEpsilonInsensitive",
    "SquaredHinge",
    "Sums",
    "Tweedie",
    "Weibull",
    "block_loss",
    "check_loss",
    "row_loss",
]


# Spark's tasks import losses, and have no use for optimizers.
_OF_DRIVERS = {
    "KeyedMachine": "distvec.objectives.keyed_machine",
    "Model": "distvec.objectives.model",
    "Objective": "distvec.objectives.local",
    "check_loss": "distvec.losses.check",
}


def __getattr__(name: str) -> Any:
    if name in _OF_DRIVERS:
        return getattr(import_module(_OF_DRIVERS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
