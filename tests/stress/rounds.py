"""Rounds on a Spark cluster of two hosts, under faults drawn from seeds: are NumPy's bits counted?

Tasks raise, are copied, come late, and their processes and executors die; they contribute to plain
and keyed arrays. A failure: other bits than without the fault,
or a kind of fault that did not come about.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.spark.round_schedules import SEEDS, SOME, Outcome, script
from tests.spark.standalone import standalone
from tests.stress.row import Row


def run(scale: float) -> list[Row]:
    """One row; ``scale`` is of the seeds beyond those that ``make long`` runs, 42 at 1."""
    others = [seed for seed in SEEDS if seed not in SOME]
    seeds = [*SOME, *others[: math.ceil(scale * len(others))]]
    with tempfile.TemporaryDirectory() as folder, standalone(Path(folder)) as url:
        rounds = Path(folder, "rounds")
        rounds.mkdir()
        ended = subprocess.run(
            [sys.executable, "-c", script(url, rounds, seeds)],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    outcome = Outcome.said(ended.stdout.splitlines()[0])
    happened = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.happened.items()))
    told = "; ".join((*outcome.wrong, *(f"no {kind}" for kind in outcome.missing), happened))
    failures = len(outcome.wrong) + len(outcome.missing)
    return [Row("rounds under tasks' and executors' faults", len(outcome.logs), failures, told)]
