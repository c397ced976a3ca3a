"""Model how many claims a car insurer gets: Poisson counts with an offset, and their errors.

    python -m examples.claim_counts

Contracts run for different times, and a contract of half a year has half as many claims. So the
logarithm of the time is an offset: a part of the linear predictor whose coefficient is 1. The
claims are drawn from known effects, which the program prints beside the estimates. A second model
ignores the times, and fits worse.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from distvec.spark import PSContext
from distvec.spark.ml.regression import GeneralizedLinearRegression

EFFECTS = {"age": -0.3, "power": 0.25, "city": 0.6}
"""The features, and the logarithm of the factor by which a unit multiplies the number of claims."""
BASE = -2.0
"""The logarithm of the claims in a year, if all features are 0."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit both models; print effects with their 95 % intervals, and deviances."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="number of contracts")
    options = parser.parse_args(arguments)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        with PSContext.get_or_create(spark, servers=2):
            contracts = contracts_of(spark, options.rows)
            estimator = GeneralizedLinearRegression(
                family="poisson", featuresCol=list(EFFECTS), labelCol="claims"
            )
            with_times = estimator.copy({estimator.offsetCol: "log_years"})
            # The rows are read once for each model, as an offset changes them.
            model, other = with_times.fit(contracts), estimator.fit(contracts)
            truth = [*EFFECTS.values(), BASE]
            found = [*model.coefficients, model.intercept]
            errors = model.summary.coefficientStandardErrors
            for name, known, effect, error in zip(
                [*EFFECTS, "base"], truth, found, errors, strict=True
            ):
                low, high = (math.exp(effect + side * 1.96 * error) for side in (-1, 1))
                print(
                    f"{name:5}  factor {math.exp(effect):.3f}  95 % interval {low:.3f} to "
                    f"{high:.3f}  true {math.exp(known):.3f}"
                )
            print(f"deviance {model.summary.deviance:.0f} of {model.summary.nullDeviance:.0f}")
            print(f"deviance without times {other.summary.deviance:.0f}")
    finally:
        spark.stop()


def contracts_of(spark: SparkSession, count: int) -> DataFrame:
    """Return contracts with the numbers of their claims, and the logarithms of their times."""
    rng = np.random.default_rng(0)
    columns = {
        "age": rng.normal(size=count),
        "power": rng.normal(size=count),
        "city": (rng.random(count) < 0.3).astype(float),
        "log_years": np.log(rng.uniform(0.1, 3.0, size=count)),
    }
    predictor = BASE + columns["log_years"] + sum(w * columns[name] for name, w in EFFECTS.items())
    columns["claims"] = rng.poisson(np.exp(predictor)).astype(float)
    rows = np.column_stack(list(columns.values())).tolist()
    return spark.createDataFrame(rows, list(columns)).coalesce(2).cache()


if __name__ == "__main__":
    main()
