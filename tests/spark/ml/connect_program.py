"""A program that uses the estimators through Spark Connect; ``test_connect`` runs it.

It has a process of its own: with Spark Connect all functions of pyspark go to the remote session.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.ml import classification
from pyspark.ml.functions import vector_to_array
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from distvec.losses import Logistic
from distvec.spark.ml.classification import (
    GBTClassifier,
    LogisticRegression,
    LogisticRegressionModel,
)
from distvec.spark.ml.losses import LossEstimator
from distvec.spark.ml.recommendation import ALS
from distvec.spark.objectives.model import Model
from tests.pages import pages
from tests.quick_start import QUICK_START
from tests.spark.ml.test_classification import DATA, OPTIMA, TIGHT


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


def check_fits(frame: object, path: str) -> None:
    """Optima, summaries and errors; rows of three partitions are in two tasks."""
    _, params, coefficients, intercepts, value = OPTIMA[2]
    estimator = LogisticRegression(**TIGHT, **params)
    maps = [{}, {estimator.thresholds: [1.0] * 3}, {estimator.elasticNetParam: 1.0}]
    fits = estimator.fitMultiple(frame.repartition(3), maps)
    _, model = next(fits)
    assert np.allclose(model.coefficientMatrix.toArray(), coefficients, atol=3e-6)
    assert np.allclose(model.interceptVector.toArray(), intercepts, atol=3e-6)
    summary = model.summary
    assert abs(summary.objectiveHistory[-1] - value) < 1e-11 and summary.accuracy == 1.0
    assert summary.totalIterations > 0
    with pytest.raises(ValueError, match=re.escape("numClasses=2, but thresholds has length 3")):
        next(fits)
    assert next(fits)[1].coefficients.numNonzeros() == 3
    model.save(path)
    assert LogisticRegressionModel.load(path).coefficients == model.coefficients
    some = frame.filter("label < 2").withColumn("held", F.rand(1) < 0.3)
    held = LossEstimator(loss=Logistic(), maxIter=5, validationIndicatorCol="held").fit(some)
    assert len(held.summary.validationHistory) == held.summary.totalIterations > 0
    with pytest.raises(
        NotImplementedError, match=re.escape('model.write().format("mllib").save(path)')
    ):
        model.to_mllib()
    trees = GBTClassifier(maxIter=2).fit(frame)
    shares = [row.probability[1] for row in trees.transform(frame).collect()]
    assert len({*shares}) > 1 and trees.evaluateEachIteration(frame)[1] < 1.0
    with pytest.raises(ValueError, match=re.escape("the label is 0.5")):
        estimator.fit(frame.withColumn("label", F.lit(0.5)))
    with pytest.raises(NotImplementedError, match=re.escape("pyspark.ml.recommendation.ALS")):
        ALS().fit(frame)
    frame.sparkSession.conf.set("spark.distvec.tasks", "3")
    with pytest.raises(ValueError, match=re.escape("but the application has 2 slots")):
        estimator.fit(frame)


def check_slots(frame: object, folder: Path) -> None:
    """A fit while another job holds all slots."""
    begun, release, session = folder / "begun", folder / "release", frame.sparkSession
    os.mkfifo(begun)
    os.mkfifo(release)
    gate = os.open(release, os.O_RDWR)  # so that opening it does not wait

    def hold(batches: Iterator[object]) -> Iterator[object]:
        with release.open("rb") as end:
            begun.write_bytes(b".")
            end.read()  # until the gate is closed
        yield from batches

    job = session.range(0, 2, 1, 2).mapInArrow(hold, "id long")
    other = threading.Thread(target=job.collect)
    other.start()
    with begun.open("rb") as signs:
        count = 0
        while count < 2:
            count += len(signs.read(1))
    session.conf.unset("spark.distvec.tasks")
    session.conf.set("spark.distvec.timeout", "3")
    try:
        with pytest.raises(TimeoutError, match=r"got none in 3 s; .*end other jobs"):
            LogisticRegression().fit(frame)
    finally:
        os.close(gate)
        other.join()


def main(folder: str) -> None:
    """Run all checks in one session."""
    options = {
        "spark.driver.memory": "1g",
        "spark.python.daemon.module": "tests.spark.warm_daemon",
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
    for block in pages.BLOCK.finditer((pages.DOCS / "how-to/spark_connect.md").read_text()):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(block["code"], {"__name__": "__main__"})
        assert shown.getvalue().split() == block["output"].split(), shown.getvalue()
    check_models(spark, two, str(Path(folder) / "made"))
    check_fits(two, str(Path(folder) / "fitted"))
    check_slots(two, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1])
