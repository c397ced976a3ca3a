"""PySpark's daemon, with all imports done before it forks: a new worker is there at once.

For ``spark.python.daemon.module``. A worker whose task raised or was killed is replaced by a new
one, which would import everything again, and where Spark speculates, be found slow and copied.
"""

import runpy

import pyspark.worker  # noqa: F401

import tests.spark.round_schedules  # noqa: F401 - what its tasks need, and distvec.spark with it

if __name__ == "__main__":
    runpy.run_module("pyspark.daemon", run_name="__main__")
