"""A program that uses the estimators through Spark Connect; ``test_connect`` runs it.

It has a process of its own: with Spark Connect all functions of pyspark go to the remote session.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from pyspark.ml import classification
from pyspark.ml.functions import vector_to_array
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from distvec.losses import Logistic
from distvec.spark.ml.classification import LogisticRegressionModel
from distvec.spark.objectives.model import Model
from tests.quick_start import QUICK_START
from tests.spark.ml.test_classification import DATA


def check_models(spark: SparkSession, frame: object, path: str) -> None:
    """Transform, evaluate, save and load."""
    fitted = Model(np.array([1.0, -2.0, 0.5, 0.0, 0.25]), loss=Logistic(), intercept=True)
    model = LogisticRegressionModel(fitted)
    model.write().save(path)
    model.write().overwrite().format("mllib").save(path)
    theirs = classification.LogisticRegressionModel.load(path)
    expected = theirs.transform(frame).select("prediction", "probability").collect()
    arrays = frame.withColumn("features", vector_to_array("features"))
    for known in (
        model,
        LogisticRegressionModel.load(path),
        LogisticRegressionModel.from_mllib(theirs),
    ):
        for rows in (frame, arrays):
            found = known.transform(rows).select("prediction", "probability").collect()
            assert [one.prediction for one in found] == [one.prediction for one in expected]
            assert np.allclose(
                [one.probability for one in found], [one.probability for one in expected]
            )
    ours, his = model.evaluate(frame), theirs.evaluate(frame)
    assert abs(ours.areaUnderROC - his.areaUnderROC) < 1e-12 and ours.accuracy == his.accuracy


def main(folder: str) -> None:
    """Run all checks in one session."""
    options = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.remote("local[2]").config(map=options).config(*QUICK_START)
    spark = builder.getOrCreate()
    three = spark.read.format("libsvm").load(
        str(DATA / "sample_multiclass_classification_data.txt")
    )
    two = three.filter("label > 0").withColumn("label", F.expr("label - 1"))
    check_models(spark, two, str(Path(folder) / "model"))


if __name__ == "__main__":
    main(sys.argv[1])
