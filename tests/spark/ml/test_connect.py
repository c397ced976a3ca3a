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
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    program = [sys.executable, "-m", "tests.spark.ml.connect_program", str(tmp_path)]
    done = subprocess.run(
        program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr[-4000:]
