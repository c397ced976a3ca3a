"""A quiet local Spark for benchmarks."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def start_spark(slots: int, *, driver_memory: str = "2g", parallelism: int = 0) -> SparkSession:
    """``local[slots]``; data comes in as many partitions unless ``parallelism`` says how many."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.appName("distvec: benchmark")
        .master(f"local[{slots}]")
        .config("spark.default.parallelism", str(parallelism or slots))
        .config("spark.driver.memory", driver_memory)
        .config("spark.driver.maxResultSize", "4g")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
