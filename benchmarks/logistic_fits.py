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
from distvec.losses import Logistic
from distvec.spark import Objective, PSContext
from optim import ElasticNet, State

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
    standardization: bool
    """Is the penalty that of features divided by their standard deviations?"""
    dtype: str
    compact: bool
    most: int
    """MLlib gets no more iterations than these."""


def optimum_of(problem: Problem) -> Optimum:
    """By L-BFGS until the gradient proves it: ``f(x) - min f <= |g|^2 / (2 penalty)``, in the
    variables that are penalised, which are those of the solver.

    Features that no row has are 0 at the optimum, so leaving them out changes nothing.
    """
    with objective_of(problem) as objective:
        dimension, within = len(objective.start()), np.inf

        def is_there(state: State) -> bool:
            nonlocal within
            square = dimension * state.gradient_norm**2  # at most: it is the largest element
            within = square / (2.0 * PENALTY) / state.value
            return within <= _OPTIMUM_WITHIN

        result = objective.minimize(callback=is_there, **_UNENDING)
        if within > _OPTIMUM_WITHIN:
            raise RuntimeError(f"no optimum to {_OPTIMUM_WITHIN:g}: {within:g}, {result.message}")
        return Optimum(float(result.fun), within)


def objective_of(problem: Problem) -> Objective:
    """Ours."""
    return Objective(
        problem.data,
        loss=Logistic(),
        penalty=ElasticNet(l1=0.0, l2=PENALTY),
        standardization=problem.standardization,
        dtype=problem.dtype,
        compact=problem.compact,
        ps=problem.ps,
    )


def above(value: float, optimum: Optimum) -> float:
    """The relative distance."""
    return (value - optimum.value) / optimum.value


def check_not_below(value: float, optimum: Optimum) -> None:
    """RuntimeError if ``value`` shows that the optimum is none."""
    if above(value, optimum) < -_OPTIMUM_WITHIN:
        raise RuntimeError(f"{value!r} is less than the optimum, {optimum}")


def first_within(values: Sequence[float], optimum: Optimum, level: float) -> int | None:
    """The first iteration whose value is so near; None if there is none."""
    near = [above(value, optimum) <= level for value in values]
    return near.index(True) if True in near else None


def fit_mllib(problem: Problem, iterations: int) -> tuple[float, Any]:
    """Seconds and model of a fit with so many iterations, which nothing else ends."""
    began = time.perf_counter()
    model = LogisticRegression(
        maxIter=iterations,
        regParam=PENALTY,
        elasticNetParam=0.0,
        standardization=problem.standardization,
        fitIntercept=False,
        tol=0.0,
    ).fit(problem.data)
    return time.perf_counter() - began, model


def time_mllib(problem: Problem, needed: dict[float, int | None], into: Seconds) -> None:
    """A fit for each level; and two from whose difference an iteration follows."""
    times = {count: fit_mllib(problem, count)[0] for count in (0, 1, 1 + STEADY)}
    into.reading.append(times[0])
    into.iteration.append((times[1 + STEADY] - times[1]) / STEADY)
    for level, count in needed.items():
        if count is not None:
            if count not in times:
                times[count] = fit_mllib(problem, count)[0]
            into.levels[level].append(times[count])


def time_ours(
    problem: Problem, optimum: Optimum, into: Seconds, *, check: bool
) -> dict[float, int]:
    """One fit to the last level, in which the others are passed; and iterations from the start.

    To each level's time is added what making the result over all features takes.
    """
    began = time.perf_counter()
    with objective_of(problem) as objective:
        read = time.perf_counter() - began
        last = optimum.value * (1.0 + min(LEVELS))
        result = objective.minimize(callback=lambda state: state.value <= last, **_UNENDING)
        found = time.perf_counter()
        weights = objective.expand(result.x).persist()
        expanding = time.perf_counter() - found
        values = [record.value for record in result.history]
        if check:
            check_same("our", problem, values[-1], weights.numpy())
        iterations = {}
        for level, seconds in into.levels.items():
            number = first_within(values, optimum, level)
            if number is None:
                raise RuntimeError(f"stopped too far above the optimum: {result.message}")
            iterations[level] = number
            seconds.append(read + result.history[number].seconds + expanding)
        into.reading.append(read + result.history[0].seconds + expanding)
        steady = objective.minimize(**(_UNENDING | {"max_iterations": 1 + STEADY}))
        times = [record.seconds for record in steady.history]
        into.iteration.append((times[-1] - times[1]) / (len(times) - 2))
        return iterations


def check_same(whose: str, problem: Problem, value: float, weights: np.ndarray) -> None:
    """RuntimeError if the objective at ``weights`` is not ``value``, by NumPy: neither one's
    code."""
    penalised = weights
    if problem.standardization:
        penalised = weights * deviations(problem.data, weights.size)
    neutral = mean_loss(problem.data, weights) + 0.5 * PENALTY * float(penalised @ penalised)
    if abs(value - neutral) > _SAME_OBJECTIVE * neutral:
        raise RuntimeError(f"{whose} objective is {value!r}, by NumPy it is {neutral!r}")


def mean_loss(data: DataFrame, weights: npt.NDArray[np.float64]) -> float:
    """The mean logistic loss, in Spark tasks."""
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
    return float(sum(part["total"] for part in parts) / sum(part["count"] for part in parts))


def deviations(data: DataFrame, features: int) -> npt.NDArray[np.float64]:
    """The standard deviation of each feature in a sample, as MLlib has it."""

    def sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total, count = np.zeros((2, features)), 0
        for batch in batches:
            labels, rows = matrix_of(batch)
            for power in (1, 2):
                powers = rows.data**power
                total[power - 1] += np.bincount(rows.indices, powers, minlength=features)
            count += labels.size
        yield pa.RecordBatch.from_pydict({"sums": [total.tobytes()], "count": [count]})

    parts = data.mapInArrow(sums, "sums binary, count long").collect()
    count = sum(part["count"] for part in parts)
    total, squares = np.sum([np.frombuffer(part["sums"]).reshape(2, -1) for part in parts], axis=0)
    return np.sqrt((squares - total * total / count) / (count - 1))
