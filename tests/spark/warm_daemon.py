"""PySpark's daemon, with all imports done before it forks: a new worker is there at once.

For ``spark.python.daemon.module``. A worker is replaced by a new one where its task raised, was
killed or left rows unread, as those of ``take`` and of a frame's schema do. The new one would
import everything again, from the sources in PySpark's archive, and where Spark speculates, be
found slow and copied.
"""

import runpy

import pyspark.ml  # all of it, as its vectors alone import the rest
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401

import tests.spark.round_schedules  # noqa: F401 - what its tasks need, and distvec.spark with it

if __name__ == "__main__":
    runpy.run_module("pyspark.daemon", run_name="__main__")
