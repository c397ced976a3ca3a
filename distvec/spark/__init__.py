"""Spark: data in DataFrames, weights and gradients on parameter servers.

ps = PSContext.get_or_create(spark, servers=2)
loss = LogisticLoss(train, features="features", label="label", l2=1e-4)
result = LBFGS(history=10).minimize(loss, ps.zeros(loss.dimension))
scores(test, result.x).show()
run(train, rdd, w, staleness=1)
ps.stop()
"""

from importlib.util import find_spec

if find_spec("pyspark") is None:
    raise ModuleNotFoundError(
        "distvec.spark needs PySpark, which is not installed: pip install 'distvec[spark]'",
        name="pyspark",
    )

from distvec.spark.context import PSContext
from distvec.spark.loops.run import run
from distvec.spark.objectives.loss import LogisticLoss
from distvec.spark.objectives.scores import scores

__all__ = ["LogisticLoss", "PSContext", "run", "scores"]
