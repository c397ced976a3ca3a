"""Estimators through Spark Connect, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.spark.conftest import ROOT
from tests.waiting import PATIENCE

for package in ("grpc_status", "google.rpc", "zstandard"):
    pytest.importorskip(package, reason="Spark Connect needs it")

pytestmark = pytest.mark.spark


def test_estimators_through_spark_connect(tmp_path):
    """A session takes seconds to start, so that all checks share one."""
    # With SPARK_TESTING the Connect server listens on a free port.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_TESTING": "1"}
    program = [sys.executable, "-m", "tests.spark.ml.connect_program", str(tmp_path)]
    done = subprocess.run(
        program, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=3 * PATIENCE
    )
    lines = [line for line in done.stderr.splitlines() if not line.startswith("\tat ")]
    assert done.returncode == 0, "\n".join(lines[-60:])
