"""Drivers of servers that are killed at a random moment, and started again as they were.

``minimize(..., checkpoint=folder, resume=True)`` on ``distvec.local``. A failure: other bits than
of a run without a kill, a server that outlives its driver, no end within three minutes.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.stress.row import Row

_SEEDS = 10
_SECONDS = 180.0
_ORPHAN_SECONDS = 10.0

_SCRIPT = """
import sys
import numpy as np
import distvec as dv
from optim import LBFGS, OWLQN, Adam

name, folder = sys.argv[1:]
solver = {
    "L-BFGS": LBFGS(max_iterations=60, gradient_tolerance=0.0),
    "OWL-QN": OWLQN(l1=1e-3, max_iterations=60, gradient_tolerance=0.0),
    "Adam": Adam(max_iterations=100, gradient_tolerance=0.0),
}[name]
with dv.local(2) as ps:
    print(*ps._owner.pids, flush=True)
    curvatures = ps.array(np.geomspace(1.0, 1e4, 4000))
    fun = dv.value_and_grad(lambda x: (curvatures * (x - 1.0) ** 2).sum() / 2)
    found = solver.minimize(fun, ps.zeros(4000), checkpoint=folder, every=7, resume=True)
    print(found.x.numpy().tobytes().hex(), found.fun.hex(), found.nfev, flush=True)
"""


def run(scale: float) -> list[Row]:
    """A row for each solver; ``scale`` is of the seeds, 10 at 1."""
    return [_killed(name, max(1, round(_SEEDS * scale))) for name in ("L-BFGS", "OWL-QN", "Adam")]


def _killed(name: str, seeds: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        expected, usual = _ended(name, folder)
    wrong, took = [], []
    for seed in range(seeds):
        dice = random.Random(f"{name} {seed}")
        with tempfile.TemporaryDirectory() as folder:
            first = _begun(name, folder)
            servers = _pids(first)
            time.sleep(dice.uniform(0.0, usual))
            first.kill()
            first.communicate()
            deadline = time.monotonic() + _ORPHAN_SECONDS
            while any(map(_is_there, servers)) and time.monotonic() < deadline:
                time.sleep(0.1)
            if any(map(_is_there, servers)):
                wrong.append(f"seed {seed}: a server is left")
            found, seconds = _ended(name, folder)
            took.append(seconds)
            if found != expected:
                wrong.append(f"seed {seed}: {found[:100] or 'no end'}")
            if len(list(Path(folder).rglob("manifest.json"))) > 2:
                wrong.append(f"seed {seed}: more than two checkpoints")
    told = f"same bits {seeds - len(wrong)}; again to the end in {statistics.median(took):.1f} s"
    told += f", worst {max(took):.1f} s, {usual:.1f} s without a kill"
    return Row(
        f"{name}, dv.local: SIGKILL of the driver", seeds, len(wrong), "; ".join([told, *wrong])
    )


def _begun(name: str, folder: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _SCRIPT, name, folder]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _ended(name: str, folder: str) -> tuple[str, float]:
    """What it says at its end, and how long that took from when its servers were up."""
    process = _begun(name, folder)
    _pids(process)
    began = time.monotonic()
    try:
        said, _ = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    return said, time.monotonic() - began


def _pids(process: subprocess.Popen[str]) -> list[int]:
    return [] if process.stdout is None else [int(pid) for pid in process.stdout.readline().split()]


def _is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}/cmdline") and bool(_command(pid))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
