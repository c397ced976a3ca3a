"""Predict how long machines run: Weibull times, most of them censored, and their quantiles.

    python -m examples.survival

The observation ends while most machines still run: of these only a lower bound of the time is
known. A mean of the observed times would be far too short. The model has the scale of the Weibull
distribution, so it predicts quantiles: the time after which one in ten machines has failed. The
program checks the quantiles with times of further machines, which are observed to their end.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from distvec.spark import PSContext
from distvec.spark.ml.regression import AFTSurvivalRegression

EFFECTS = {"load": -0.6, "heat": -0.2}
"""The features, and the change of the logarithm of the time with them."""
BASE, SCALE = 3.0, 0.5
QUANTILES = [0.1, 0.5, 0.9]
END = 10.0
"""The time at which the observation ends."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, print the parameters beside the true ones, and check the quantiles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000, help="number of machines")
    options = parser.parse_args(arguments)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        with PSContext.get_or_create(spark, servers=2):
            train, test = (machines(spark, options.rows, seed) for seed in (0, 1))
            observed = train.agg(F.avg("observed"), F.avg("label")).first()
            print(f"{observed[0]:.0%} observed to their end; mean of all times {observed[1]:.1f}")
            model = AFTSurvivalRegression(
                featuresCol=list(EFFECTS),
                censorCol="observed",
                quantileProbabilities=QUANTILES,
                quantilesCol="quantiles",
            ).fit(train)
            truth = [*EFFECTS.values(), BASE, SCALE]
            found = [*model.coefficients, model.intercept, model.scale]
            for name, known, value in zip([*EFFECTS, "base", "scale"], truth, found, strict=True):
                print(f"{name:5}  {value:6.3f}  true {known:6.3f}")
            rows = model.transform(test).select("time", "quantiles").collect()
            times = np.array([row.time for row in rows])
            table = np.array([row.quantiles.toArray() for row in rows])
            for probability, column in zip(QUANTILES, table.T, strict=True):
                share = np.mean(times < column)
                print(f"quantile {probability}: {share:.1%} of the times are shorter")
    finally:
        spark.stop()


def machines(spark: SparkSession, count: int, seed: int) -> DataFrame:
    """Return machines: ``time`` to failure, and ``label``, the part of it that is observed."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, len(EFFECTS)))
    # The logarithm of a standard exponential time has the extreme value distribution.
    noise = np.log(rng.exponential(size=count))
    times = np.exp(features @ list(EFFECTS.values()) + BASE + SCALE * noise)
    rows = np.column_stack([features, times, np.minimum(times, END), times < END]).tolist()
    return spark.createDataFrame(rows, [*EFFECTS, "time", "label", "observed"]).coalesce(2).cache()


if __name__ == "__main__":
    main()
