"""Losses without Spark: all known optima of shared/data, and many rows against 60 digits.

Hinge losses under little penalty, and the l1 norms of news20, take minutes each.
"""

from __future__ import annotations

import math

import numpy as np

from tests.distvec.losses.sixty_digits import exact
from tests.distvec.losses.test_shelf import SHELF, check
from tests.distvec.objectives.reference_optima import problems, solve
from tests.stress.row import Row

_ROWS = 5000
"""Of each loss."""


def run(scale: float) -> list[Row]:
    """Two rows; ``scale`` is of the rows, and below 1 of the optima."""
    return [_rows(math.ceil(scale * _ROWS)), _optima(scale)]


def _rows(count: int) -> Row:
    rng, wrong = np.random.default_rng(0), []
    for loss in SHELF:
        for _ in range(count):
            label = _label(loss.labels, rng)
            margin = _margin([float(kink) for kink in exact(loss, 0.0, label).kinks], rng)
            try:
                check(loss, margin, label)
            except AssertionError:
                wrong.append(f"{loss} at margin {margin!r}, label {label!r}")
    return Row("rows of losses against 60 digits", count * len(SHELF), len(wrong), _first(wrong))


def _label(kind: str, rng: np.random.Generator) -> float:
    size = float(10.0 ** rng.uniform(-6, 6))
    sign = float(rng.choice([-1.0, 1.0]))
    zero = float(rng.choice([0.0, 1.0]))
    return {"signs": sign, "real": sign * size, "counts": zero * size, "positive": size}[kind]


def _margin(kinks: list[float], rng: np.random.Generator) -> float:
    far = float(rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-8, 300))
    near = float(rng.choice(kinks or [0.0]) + rng.choice([0.0, 1e-9, 1e-3]) * rng.normal())
    return float(rng.choice([far, near, rng.normal(0.0, 30.0)]))


def _optima(scale: float) -> Row:
    known = problems()
    chosen = known[:: max(1, round(1.0 / scale))]
    found = [(problem, solve(*problem)) for problem in chosen]
    wrong = [f"{problem}: {one.gap:.1e}" for problem, one in found if not one.is_right]
    worst = max((abs(one.gap) for _, one in found), default=0.0)
    detail = _first(wrong) or f"the largest relative gap is {worst:.1e}"
    return Row("known optima without Spark", len(chosen), len(wrong), detail)


def _first(wrong: list[str]) -> str:
    return "; ".join(wrong[:5])
