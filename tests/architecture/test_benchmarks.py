"""Benchmarks run where the peers that they measure are not installed, and say which are missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

WITHOUT_PEERS = """
import importlib, json, pkgutil, sys
peers = ["sklearn", "torch", "pandas", "dask"]
sys.modules |= dict.fromkeys(peers)
import benchmarks
for module in pkgutil.iter_modules(benchmarks.__path__):
    importlib.import_module(f"benchmarks.{module.name}")
from benchmarks import harness, keyed
runs = keyed.stream_runs([])
said = harness.not_measured(*peers)
del sys.modules["sklearn"]
print(json.dumps([list(runs), said, harness.machine(0.0)["packages"]]))
"""


def test_benchmarks_run_without_their_peers() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_PEERS], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert not ended.returncode, ended.stderr
    runs, said, packages = json.loads(ended.stdout)
    assert not [name for name in runs if "SGDClassifier" in name]
    assert said == {
        "scikit-learn": "not measured: pip install 'distvec[bench]'",
        "PyTorch": "not measured: pip install 'distvec[torch]'",
        "pandas": "not measured: pip install 'distvec[spark]'",
        "dask.array": "not measured: pip install 'distvec[bench]'",
    }
    assert packages["numpy"]
