"""Use your own loss as an estimator, in a pipeline, and choose its penalty by cross-validation.

    python -m examples.own_loss

Some sensors report nonsense, so squares of residuals would follow them. The loss below grows like a
logarithm. It consists of NumPy's elementwise operations, so distvec derives its slopes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import RegressionEvaluator
from pyspark.ml.feature import StandardScaler, VectorAssembler
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import DataFrame, SparkSession

from distvec.losses import Squared, row_loss
from distvec.spark import PSContext
from distvec.spark.ml.losses import LossEstimator

NAMES = ["pressure", "temperature", "flow"]


@row_loss
def cauchy(margins: Any, labels: Any, scale: float = 1.0) -> Any:
    """Return ``scale^2 / 2 * log(1 + (residual / scale)^2)`` of each row."""
    return 0.5 * scale**2 * np.log1p(((margins - labels) / scale) ** 2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare the loss with squares, and save the better pipeline."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000, help="number of rows")
    options = parser.parse_args(arguments)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        with PSContext.get_or_create(spark, servers=2), tempfile.TemporaryDirectory() as folder:
            train, test = rows_of(spark, options.rows, 0.1), rows_of(spark, 500, 0.0)
            measure = RegressionEvaluator(metricName="mae")
            for name, loss in (("squares", Squared()), ("cauchy", cauchy(scale=0.5))):
                estimator = LossEstimator(loss=loss, featuresCol="scaled")
                grid = ParamGridBuilder().addGrid(estimator.regParam, [0.001, 0.1]).build()
                folds = CrossValidator(
                    estimator=estimator, estimatorParamMaps=grid, evaluator=measure, numFolds=2
                )
                assembler = VectorAssembler(inputCols=NAMES, outputCol="features")
                scaler = StandardScaler(inputCol="features", outputCol="scaled")
                model = Pipeline(stages=[assembler, scaler, folds]).fit(train)
                best = PipelineModel([*model.stages[:-1], model.stages[-1].bestModel])
                best.write().overwrite().save(f"{folder}/model")
                error = measure.evaluate(PipelineModel.load(f"{folder}/model").transform(test))
                strength = best.stages[-1].getRegParam()
                print(f"{name}: regParam {strength:g}, mean absolute error {error:.3f}")
    finally:
        spark.stop()


def rows_of(spark: SparkSession, count: int, nonsense: float) -> DataFrame:
    """Return rows with a linear label; a share of the labels is nonsense."""
    rng = np.random.default_rng(int(10 * nonsense))
    x = rng.normal(size=(count, 3))
    y = x @ [1.0, -2.0, 0.5] + 3.0 + 0.2 * rng.normal(size=count)
    y = np.where(rng.random(count) < nonsense, 100.0 * rng.random(count), y)
    data = [(*map(float, row), float(label)) for row, label in zip(x, y, strict=True)]
    return spark.createDataFrame(data, [*NAMES, "label"]).coalesce(2).cache()


if __name__ == "__main__":
    main()
