"""Runs of solvers on NumPy's arrays whose process is killed again and again, and started again.

Each seed kills at random moments, a few of them before the first checkpoint, and starts the same
call again until it ends. A failure: other bits of x, fun, nit, nfev or the history than without a
kill, or a file left that is no checkpoint.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from optim import LBFGS, OWLQN, Adam, Minibatches, Result, Solver
from tests.stress.row import Row

_SEEDS = 100
_ROWS, _FEATURES = 400, 60
_SECONDS = 0.25  # at most until the next kill; a run takes about as long
_rng = np.random.default_rng(0)
_MATRIX, _SIGNS = _rng.standard_normal((_ROWS, _FEATURES)), _rng.choice([-1.0, 1.0], _ROWS)

RUNS: dict[str, tuple[Solver, Any]] = {}


def _logistic(x: Any, rows: Any = slice(None)) -> tuple[float, Any]:
    signed = _MATRIX[rows] * _SIGNS[rows, None]
    margins = signed @ x
    value = float(np.logaddexp(0.0, -margins).mean() + 5e-7 * (x @ x))
    return value, signed.T @ (-0.5 * (1.0 - np.tanh(0.5 * margins))) / len(margins) + 1e-6 * x


RUNS["L-BFGS"] = LBFGS(gradient_tolerance=0.0, max_iterations=150), _logistic
RUNS["OWL-QN"] = OWLQN(l1=1e-3, gradient_tolerance=0.0, max_iterations=150), _logistic
RUNS["Adam, minibatches"] = (
    Adam(step_size=0.01, average=True, max_iterations=600),
    Minibatches(_logistic, _ROWS, 32, seed=5),
)


def run(scale: float) -> list[Row]:
    """A row for each solver; ``scale`` is of the number of seeds, 100 at 1."""
    seeds = max(1, round(_SEEDS * scale))
    return [_killed(name, seeds) for name in RUNS]


def _killed(name: str, seeds: int) -> Row:
    expected = _text(_minimized(name))
    kills = failures = 0
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as place:
            before, found = _until_it_ends(name, Path(place), np.random.default_rng(seed))
            kills += before
            left = {path.suffix for path in Path(place, "run").iterdir()}
            failures += found != expected or left != {".npz", ".lock"}
    return Row(f"{name}: SIGKILL of its process", seeds, failures, f"{kills} kills")


def _until_it_ends(name: str, place: Path, rng: np.random.Generator) -> tuple[int, str]:
    """How often it was killed, and what it found."""
    every = int(rng.integers(1, 30))
    result, kills = place / "result", 0
    while True:
        child = _forked(lambda: _ended(name, place / "run", every, result))
        time.sleep(_SECONDS * rng.random() ** 2 * (1 + kills / 5))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if result.exists():
            return kills, result.read_text()
        if not os.WIFSIGNALED(status):
            return kills, f"the process ended by itself: {status}"
        kills += 1


def _ended(name: str, directory: Path, every: int, result: Path) -> None:
    found = _minimized(name, checkpoint=directory, every=every, resume=True)
    partial = result.with_suffix(".part")
    partial.write_text(_text(found))
    partial.rename(result)


def _minimized(name: str, **kept: Any) -> Result:
    solver, fun = RUNS[name]
    return solver.minimize(fun, np.zeros(_FEATURES), **kept)


def _text(result: Result) -> str:
    history = [(r.value, r.gradient_norm, r.step_size, r.evaluations) for r in result.history]
    numbers = (result.fun, result.nit, result.nfev, result.outcome.name, history)
    return repr((result.x.tobytes().hex(), numbers))


def _forked(action: Callable[[], None]) -> int:
    """The process that runs ``action``: it begins at once, with all that is imported here."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    return child
