"""``python -m tests.spark.class_archive FILE``: Spark's Java classes in a form that Java maps.

Java reads, verifies and parses some 15,000 classes before Spark runs its first job, which takes
half of the start of each driver and executor. The archive holds those that a job of each kind
needs; Java itself sees whether it fits (https://openjdk.org/jeps/350), and else goes without.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyspark.sql.functions as F
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession

from tests.quick_start import java


def main(file: str) -> None:
    """Start Spark, run some jobs, and let Java write what it loaded when it ends.

    Without Java there is nothing to do.
    """
    if java() is None:
        return
    os.environ["PYSPARK_PYTHON"] = sys.executable
    partial = f"{file}.partial"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.log.level", "OFF")
    options = f"-XX:TieredStopAtLevel=1 -Xlog:disable -XX:ArchiveClassesAtExit={partial}"
    spark = builder.config("spark.driver.extraJavaOptions", options).getOrCreate()
    run_jobs(spark)
    process = spark.sparkContext._gateway.proc
    spark.stop()
    process.stdin.close()  # at which it exits
    process.wait()
    if Path(partial).exists():  # not every Java can
        Path(partial).replace(file)


def run_jobs(spark: SparkSession) -> None:
    """Rows, frames, a shuffle, a file, a Python and an Arrow function."""
    rows = [(float(k % 2), Vectors.sparse(9, {k: 1.0})) for k in range(8)]
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), ["label", "features"])
    frame.cache().count()
    frame.rdd.map(tuple).map(lambda row: (row[0], 1)).partitionBy(2).collect()
    frame.select(F.udf(lambda label: -label, "double")("label")).collect()
    frame.mapInArrow(lambda batches: batches, frame.schema).repartition(3, "label").collect()
    features = F.array(F.col("id") / 2.0).alias("features")
    spark.range(9).repartition(2, "id").sortWithinPartitions("id").select(features).collect()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.svm")
        file.write_text("1 1:2\n0 1:3\n")
        spark.read.format("libsvm").option("numFeatures", 2).load(str(file)).collect()


if __name__ == "__main__":
    main(sys.argv[1])
