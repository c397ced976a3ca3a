"""Objectives over Spark: all known optima of shared/data, and the same bits by jobs as by tasks
that stay."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

from distvec.spark import PSContext
from tests.spark.objectives.reference_optima import Optima, problems
from tests.stress.row import Row

_MOST = 2_000_000
"""Non-zeros of the largest set."""


def run(scale: float) -> Iterator[Row]:
    """A row for each, the smallest sets first; ``scale`` is of the size of the largest."""
    builder = SparkSession.builder.master("local[2]").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    ps = PSContext.get_or_create(spark, servers=2)
    optima = Optima(spark, ps)
    try:
        for name, kind, lam in problems(scale * _MOST):
            found, wrong = optima.solve(name, kind, lam)
            detail = f"{found}: {wrong}" if wrong else found
            yield Row(f"{name}: {kind}, {lam:g}, over Spark", 1, int(bool(wrong)), detail)
    finally:
        optima.close()
        ps.stop()
        spark.stop()
