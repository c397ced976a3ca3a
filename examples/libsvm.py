"""Rows of a LIBSVM file instead of the source corpus."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def read(
    spark: SparkSession, path: Path, positive_label: float | None = None
) -> tuple[DataFrame, DataFrame]:
    """Rows ``label, features``: four fifths to train on and one held out, always the same.

    Spark unpacks .bz2 and .gz by their names. With ``positive_label`` that label becomes 1 and all
    others 0.
    """
    if not path.is_file():
        raise SystemExit(f"--data {path}: no such file")
    rows = spark.read.format("libsvm").load(str(path))
    if positive_label is not None:
        rows = rows.withColumn("label", (F.col("label") == positive_label).cast("double"))
    parts = spark.sparkContext.defaultParallelism
    train, test = rows.repartition(parts).randomSplit([0.8, 0.2], seed=1)
    return train, test
