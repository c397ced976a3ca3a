"""What an objective over a DataFrame is given, looked at before the data is."""

from __future__ import annotations

from pyspark.sql import DataFrame

from distvec.losses.loss import Loss
from distvec.spark.context import PSContext
from distvec.spark.data.columns import Columns


def check_data(data: DataFrame, ps: PSContext) -> None:
    """TypeError or ValueError for what is no DataFrame of the Spark application of ``ps``."""
    if not hasattr(data, "sparkSession"):
        raise TypeError(
            f"data is {type(data).__name__}; it must be a Spark DataFrame: "
            "spark.createDataFrame(...)"
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
