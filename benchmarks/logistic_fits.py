"""Fits of a logistic regression by distvec and by MLlib, timed up to given distances above the
optimum."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.ml.classification import LogisticRegression
from pyspark.sql import DataFrame

from benchmarks.sparse_rows import matrix_of
from distvec.spark import LogisticLoss, PSContext
from optim import LBFGS, State

PENALTY = 1e-4
LEVELS = (1e-2, 1e-4, 1e-6)
STEADY = 20
"""So many iterations say what one takes, but for the first."""

_OPTIMUM_WITHIN = 1e-10
_SAME_OBJECTIVE = 1e-9

_UNENDING: dict[str, Any] = {
    "history": 10,
    "max_iterations": 5000,
    "gradient_tolerance": 0.0,
    "value_tolerance": 0.0,
}


@dataclass(frozen=True)
class Optimum:
    """The least value there is, and how far below the one found it may be, relative."""

    value: float
    within: float


@dataclass
class Seconds:
    """Times of one of the two on one kind of rows, by repetition."""

    reading: list[float] = field(default_factory=list)
    """From the DataFrame to before the first iteration."""
    iteration: list[float] = field(default_factory=list)
    levels: dict[float, list[float]] = field(default_factory=lambda: {one: [] for one in LEVELS})
    """Whole fits; none where it does not get so near."""


@dataclass(frozen=True)
class Problem:
    """Rows, as a cached DataFrame, and what both are told."""

    data: DataFrame
    ps: PSContext
    dtype: str
    compact: bool
    most: int
    """MLlib gets no more iterations than these."""


def optimum_of(problem: Problem) -> Optimum:
    """By L-BFGS until the gradient proves it: ``f(x) - min f <= |g|^2 / (2 penalty)``.

    Features that no row has are 0 at the optimum, so leaving them out changes nothing.
    """
    with loss_of(problem) as loss:
        solver = LBFGS(**_UNENDING)
        start = problem.ps.zeros(loss.dimension, problem.dtype)
        result = solver.minimize(loss, start, callback=_is_optimum)
        within = _off(result.fun, result.jac)
        if within > _OPTIMUM_WITHIN:
            raise RuntimeError(f"no optimum to {_OPTIMUM_WITHIN:g}: {within:g}, {result.message}")
        return Optimum(float(result.fun), within)


def _is_optimum(state: State) -> bool:
    return _off(state.value, state.gradient) <= _OPTIMUM_WITHIN


def _off(value: float, gradient: Any) -> float:
    """How far above the optimum a value is at most, relative to itself."""
    return float(gradient @ gradient) / (2.0 * PENALTY) / float(value)


def loss_of(problem: Problem) -> LogisticLoss:
    """Our objective."""
    options: dict[str, Any] = {"dtype": problem.dtype, "compact": problem.compact}
    return LogisticLoss(problem.data, l2=PENALTY, mode="resident", ps=problem.ps, **options)


def above(value: float, optimum: Optimum) -> float:
    """The relative distance."""
    return (value - optimum.value) / optimum.value


def first_within(values: Sequence[float], optimum: Optimum, level: float) -> int | None:
    """The first iteration whose value is so near; None if there is none."""
    near = [above(value, optimum) <= level for value in values]
    return near.index(True) if True in near else None


def fit_mllib(data: DataFrame, iterations: int) -> tuple[float, Any]:
    """Seconds and model of a fit with so many iterations, which nothing else ends."""
    began = time.perf_counter()
    model = LogisticRegression(
        maxIter=iterations,
        regParam=PENALTY,
        elasticNetParam=0.0,
        standardization=False,
        fitIntercept=False,
        tol=0.0,
    ).fit(data)
    return time.perf_counter() - began, model


def time_mllib(data: DataFrame, needed: dict[float, int | None], into: Seconds) -> None:
    """A fit for each level; and two from whose difference an iteration follows."""
    times = {count: fit_mllib(data, count)[0] for count in (0, 1, 1 + STEADY)}
    into.reading.append(times[0])
    into.iteration.append((times[1 + STEADY] - times[1]) / STEADY)
    for level, count in needed.items():
        if count is not None:
            if count not in times:
                times[count] = fit_mllib(data, count)[0]
            into.levels[level].append(times[count])


def time_ours(
    problem: Problem, optimum: Optimum, into: Seconds, *, check: bool
) -> dict[float, int]:
    """One fit to the last level, in which the others are passed; and iterations from the start.

    To each level's time is added what making the result over all features takes.
    """
    began = time.perf_counter()
    with loss_of(problem) as loss:
        start = problem.ps.zeros(loss.dimension, problem.dtype)
        read = time.perf_counter() - began
        last = optimum.value * (1.0 + min(LEVELS))
        result = LBFGS(**_UNENDING).minimize(
            loss, start, callback=lambda state: bool(state.value <= last)
        )
        found = time.perf_counter()
        weights = loss.expand(result.x).persist()
        expanding = time.perf_counter() - found
        values = [record.value for record in result.history]
        if check:
            check_same("our", problem.data, values[-1], weights.numpy())
        iterations = {}
        for level, seconds in into.levels.items():
            number = first_within(values, optimum, level)
            if number is None:
                raise RuntimeError(f"stopped too far above the optimum: {result.message}")
            iterations[level] = number
            seconds.append(read + result.history[number].seconds + expanding)
        into.reading.append(read + result.history[0].seconds + expanding)
        steady = LBFGS(**(_UNENDING | {"max_iterations": 1 + STEADY})).minimize(loss, start)
        times = [record.seconds for record in steady.history]
        into.iteration.append((times[-1] - times[1]) / (len(times) - 2))
        return iterations


def check_same(whose: str, data: DataFrame, value: float, weights: np.ndarray) -> None:
    """RuntimeError if the objective at ``weights`` is not ``value``."""
    neutral = objective(data, weights)
    if abs(value - neutral) > _SAME_OBJECTIVE * neutral:
        raise RuntimeError(f"{whose} objective is {value!r}, by NumPy it is {neutral!r}")


def objective(data: DataFrame, weights: npt.NDArray[np.float64]) -> float:
    """The mean logistic loss and its penalty, by NumPy in Spark tasks: neither one's code."""
    shipped = data.sparkSession.sparkContext.broadcast(weights)

    def sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total, count = 0.0, 0
        for batch in batches:
            labels, rows = matrix_of(batch)
            total += float(np.logaddexp(0.0, (1.0 - 2.0 * labels) * (rows @ shipped.value)).sum())
            count += labels.size
        yield pa.RecordBatch.from_pydict({"total": [total], "count": [count]})

    parts = data.mapInArrow(sums, "total double, count long").collect()
    shipped.destroy()
    loss = sum(part["total"] for part in parts) / sum(part["count"] for part in parts)
    return float(loss + 0.5 * PENALTY * (weights @ weights))
