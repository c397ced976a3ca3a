"""What an objective sums over rows: losses as small values, on NumPy and SciPy arrays of one
process. Which rows there are, and where the parameters live, is the business of the objectives."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from distvec.losses.binary import Hinge, Logistic, ModifiedHuber, SquaredHinge
from distvec.losses.check import check_loss
from distvec.losses.counts import Gamma, Poisson, Tweedie
from distvec.losses.cox import Cox
from distvec.losses.errors import LossError, NotFinite
from distvec.losses.factorization import FactorizationMachine
from distvec.losses.loss import Loss, Parameter, PhasedLoss, Sums
from distvec.losses.one_margin import RowLoss
from distvec.losses.ranking import PairwiseRanking
from distvec.losses.regression import (
    Absolute,
    EpsilonInsensitive,
    Huber,
    Quantile,
    Squared,
    SquaredEpsilonInsensitive,
)
from distvec.losses.rows import Rows
from distvec.losses.softmax import Softmax
from distvec.losses.user_block_loss import block_loss
from distvec.losses.user_row_loss import row_loss

if TYPE_CHECKING:
    from distvec.losses.model import Model
    from distvec.losses.objective import Objective

__all__ = [
    "Absolute",
    "Cox",
    "EpsilonInsensitive",
    "FactorizationMachine",
    "Gamma",
    "Hinge",
    "Huber",
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
    "block_loss",
    "check_loss",
    "row_loss",
]


# Spark's tasks import losses, and have no use for optimizers.
_OF_DRIVERS = {"Model": "distvec.losses.model", "Objective": "distvec.losses.objective"}


def __getattr__(name: str) -> Any:
    if name in _OF_DRIVERS:
        return getattr(import_module(_OF_DRIVERS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
