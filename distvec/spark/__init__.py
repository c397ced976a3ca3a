"""Train models on the rows of DataFrames, with parameters on parameter servers.

ps = PSContext.get_or_create(spark, servers=2)
model = Objective(train, loss=Logistic(), penalty=SquaredL2Norm(1e-4)).fit()
model.predict(test).show()
ps.stop()
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("pyspark") is None:
    raise ModuleNotFoundError(
        "distvec.spark needs PySpark, which is not installed: pip install 'distvec[spark]'",
        name="pyspark",
    )

from distvec.spark.context import PSContext
from distvec.spark.loops.run import run

if TYPE_CHECKING:
    from distvec.losses import block_loss, row_loss
    from distvec.spark.keyed.objective import KeyedObjective
    from distvec.spark.nonzeros import load_nonzeros, save_nonzeros
    from distvec.spark.objectives.model import Model, margins, mllib_model, scores
    from distvec.spark.objectives.objective import LogisticLoss, Objective

__all__ = [
    "KeyedObjective",
    "LogisticLoss",
    "Model",
    "Objective",
    "PSContext",
    "block_loss",
    "load_nonzeros",
    "margins",
    "mllib_model",
    "row_loss",
    "run",
    "save_nonzeros",
    "scores",
]

# Tasks import this package, and have no use for optimizers.
_OF_DRIVERS = {
    "KeyedObjective": "distvec.spark.keyed.objective",
    "LogisticLoss": "distvec.spark.objectives.objective",
    "Model": "distvec.spark.objectives.model",
    "Objective": "distvec.spark.objectives.objective",
    "block_loss": "distvec.losses",
    "load_nonzeros": "distvec.spark.nonzeros",
    "margins": "distvec.spark.objectives.model",
    "mllib_model": "distvec.spark.objectives.model",
    "row_loss": "distvec.losses",
    "save_nonzeros": "distvec.spark.nonzeros",
    "scores": "distvec.spark.objectives.model",
}


def __getattr__(name: str) -> Any:
    if name in _OF_DRIVERS:
        return getattr(import_module(_OF_DRIVERS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
