"""What all tests share: Hypothesis profiles, and one small Spark for those that need it."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.quick_start import QUICK_START, java
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Read when Spark starts, here and in its workers, which need what this interpreter has.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# Read when NumPy is imported. Threads of BLAS spin while they wait: solvers of short vectors took
# three times the processor time, and four processes share two cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# "default" repeats the same examples, so that a red run can be run again; "explore" finds new ones:
# HYPOTHESIS_PROFILE=explore make test
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
_SHARED = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", _SHARED, derandomize=True, max_examples=25)
settings.register_profile("explore", _SHARED, max_examples=1000)
settings.load_profile(PROFILE)
if PROFILE == "default":
    # Hypothesis also draws constants that it finds in the modules imported so far: the examples of
    # a test would depend on those that ran before it in the same process.
    providers._get_local_constants = lambda: providers._local_constants


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses Spark, and skip it where there is no Java; what takes longest begins first."""
    items.sort(key=lambda item: "spark" not in item.path.parts)  # so that no process waits long
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") and java() is None:
            item.add_marker(pytest.mark.skip(reason="Spark needs Java 17 or newer; none found"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """No look for garbage while tests are collected: all of it stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        _leave_out_what_stays()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """After the last test of a file, what libraries have loaded and caches hold stays, too."""
    yield
    if nextitem is None or nextitem.path != item.path:
        _leave_out_what_stays()


def _leave_out_what_stays() -> None:
    """Of later collections: with nine thousand tests and a compiler each took a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A SparkSession of two cores, stopped at the end."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.appName("distvec tests")
        .master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.log.level", "ERROR")
        .config(*QUICK_START)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # A task that raised leaves no worker, and the next one would import everything again.
        .config("spark.python.daemon.module", "tests.spark.warm_daemon")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def one_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """The tests' Spark for whole programs and pages, which cannot stop it.

    Starting another one takes longer than most of them. They find all slots free and no servers,
    as in a Spark of their own: tasks that a test before them cancelled may still hold slots.
    """
    from distvec.spark import PSContext
    from distvec.spark.jobs.application import free_slots, slots

    if PSContext._active is not None:
        PSContext._active.stop()
    context = spark.sparkContext
    wait_for(lambda: free_slots(context) == sum(slots(context).values()))
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    return spark
