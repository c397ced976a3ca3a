"""Report training runs: a table, a plot and a JSON file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Progress:
    """One iteration: the value of the objective, and the seconds since the start of the run."""

    value: float
    seconds: float


@dataclass(frozen=True)
class Run:
    """The run of one solver. Values of the objective compare only under the same ``penalty``."""

    solver: str
    penalty: str
    value: float
    auc: float
    accuracy: float
    nonzeros: int
    iterations: int
    evaluations: int
    messages: int
    seconds: float
    converged: bool
    message: str
    history: Sequence[Progress]

    @property
    def requests_per_iteration(self) -> float:
        """Requests of the driver to each server."""
        return self.messages / max(self.iterations, 1)


_COLUMNS: Sequence[tuple[str, Callable[[Run], str]]] = (
    ("solver", lambda run: run.solver),
    ("penalty", lambda run: run.penalty),
    ("AUC", lambda run: f"{run.auc:.4f}"),
    ("accuracy", lambda run: f"{run.accuracy:.4f}"),
    ("non-zero", lambda run: f"{run.nonzeros:,}"),
    ("iterations", lambda run: str(run.iterations)),
    ("requests/iter", lambda run: f"{run.requests_per_iteration:.1f}"),
    ("seconds", lambda run: f"{run.seconds:.1f}"),
    ("converged", lambda run: "yes" if run.converged else "no"),
)


def table(runs: Sequence[Run]) -> str:
    """Return a table with one line per run; names are aligned left and numbers right."""
    cells = [[name for name, _ in _COLUMNS]]
    cells += [[text(run) for _, text in _COLUMNS] for run in runs]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "-" * sum(widths, 2 * len(widths) - 2), *lines[1:]])


def plot(runs: Sequence[Run], path: Path) -> None:
    """Draw the distance to the best value of the same objective, by iteration and by seconds."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    by_iteration, by_seconds = figure.subplots(1, 2, sharey=True)
    for run in runs:
        gaps = above_best(run, runs)
        name = f"{run.solver}, {run.penalty}"
        by_iteration.semilogy(range(len(gaps)), gaps, label=name)
        by_seconds.semilogy([point.seconds for point in run.history], gaps, label=name)
    by_iteration.set(xlabel="iteration", ylabel="objective above the best found")
    by_seconds.set(xlabel="seconds")
    for axes in (by_iteration, by_seconds):
        axes.grid(alpha=0.3)
    by_iteration.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(path)


def above_best(run: Run, runs: Sequence[Run]) -> np.ndarray:
    """Return the distance of each iterate to the best value of all runs with the same penalty.

    The best iterate itself gets NaN, because a logarithmic axis cannot show 0.
    """
    same = [point.value for other in runs if other.penalty == run.penalty
            for point in other.history]  # fmt: skip
    gaps = np.array([point.value for point in run.history]) - min(same)
    return np.where(gaps > 0, gaps, np.nan)


def write_json(runs: Sequence[Run], path: Path, **about: object) -> None:
    """Write all fields of the runs, and the entries of ``about`` (data set, options)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**about, "runs": [asdict(run) for run in runs]}, indent=1) + "\n")
