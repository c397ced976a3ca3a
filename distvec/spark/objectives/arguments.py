"""What an objective over a DataFrame is given, looked at before the data is."""

from __future__ import annotations

import difflib
from collections.abc import Collection

import numpy as np
from pyspark.sql import DataFrame

from distvec.losses.loss import Loss
from distvec.spark.context import PSContext
from distvec.spark.data.columns import Columns


def check_data(data: DataFrame, ps: PSContext) -> None:
    """TypeError or ValueError for what is no DataFrame of the Spark application of ``ps``."""
    if not hasattr(data, "sparkSession"):
        module, name = type(data).__module__.partition(".")[0], type(data).__name__
        shown = name if module == "builtins" else f"{module}.{name}"
        in_memory = isinstance(data, tuple | list | np.ndarray)
        raise TypeError(
            f"data is {shown}; it must be a Spark DataFrame: spark.createDataFrame(data)"
            + "; rows in memory: distvec.losses.Objective((X, y), loss=...)" * in_memory
        )
    if data.sparkSession.sparkContext is not ps.spark_context:
        raise ValueError("the data belongs to another SparkContext than the PSContext")


def check_columns(loss: Loss, columns: Columns) -> None:
    """Refuse columns that the loss has no use for, and the lack of one that it needs."""
    if loss.order == "group" and columns.group is None:
        raise ValueError(f"{loss} ranks within groups; name their column: group=...")
    if loss.order != "group" and columns.group is not None:
        raise ValueError(f"group={columns.group!r}: {loss} has no groups; leave it out")
    if loss.order != "time" and columns.event is not None:
        raise ValueError(f"event={columns.event!r}: {loss} has no times; leave it out")


_OF_MLLIB = {
    "featuresCol": "features=",
    "labelCol": "label=",
    "weightCol": "weight=",
    "regParam": "l2=, or of Objective penalty=optim.ElasticNet(l1=, l2=)",
    "elasticNetParam": "Objective(data, loss=Logistic(), penalty=optim.ElasticNet(l1=, l2=))",
    "fitIntercept": "intercept=",
    "maxIter": "minimize(max_iterations=)",
    "tol": "minimize(gradient_tolerance=)",
}


def check_options(given: Collection[str], known: Collection[str]) -> None:
    """TypeError for an argument that ``LogisticLoss`` does not have, as those of MLlib."""
    for name in given:
        if name in ("loss", "penalty"):
            raise TypeError(
                f"LogisticLoss has no argument {name!r}, but l2=; write Objective(data, "
                "loss=Logistic(), penalty=...)"
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(known)}"
            hint = f": write {_OF_MLLIB[name]}" if name in _OF_MLLIB else hint
            raise TypeError(f"LogisticLoss has no argument {name!r}{hint}")
