"""What a bound on staleness saves where workers are slow: lockstep, 4 clocks, no bound.

Workers fit a least-squares problem. The time that a clock takes is simulated by waiting, as four
workers share this machine's cores: 10 ms, and 100 ms where a worker is slow. Once all do the same
number of clocks, with the slow part going around; once one worker is slow all the time, and it is
measured when the objective is near its optimum. The lines marked ideal are what follows from the
waits alone if nobody waits for others.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from pyspark import RDD

from benchmarks.harness import Case, Ratio, Report, Table, Timing, interleaved, main
from benchmarks.spark import start_spark
from distvec.spark import PSContext, run

WORKERS, SERVERS = 4, 2
ROWS, SIZE = 4000, 50
FAST, SLOW = 0.010, 0.100
BOUNDS: dict[str, int | None] = {"BSP": 0, "SSP (4)": 4, "ASP": None}
STRETCHES = (1, 5)
NEAR, MOST_CLOCKS = 1.02, 1000
"""The objective is to be so many times its optimum, or less, within so many clocks."""

Pause = Callable[[int, int], float]
"""Seconds that a rank takes for a clock."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--clocks", type=int, default=60, help="of each worker")
    parser.add_argument("--repeat", type=int, default=3)


def measure(options: argparse.Namespace) -> Report:
    """All bounds in turn, for each way of being slow."""
    clocks, repeat = (20, 1) if options.quick else (options.clocks, options.repeat)
    spark = start_spark(WORKERS)
    try:
        with PSContext.get_or_create(spark, servers=SERVERS) as ps:
            rdd = spark.sparkContext.parallelize(problem(), WORKERS).cache()
            timings: dict[str, Timing] = {}
            for stretch in STRETCHES:
                name, pause = f"slow for {stretch} in turn", in_turn(stretch)
                timings |= interleaved(cases(ps, rdd, name, fixed(clocks, pause)), repeat)
            name = "one always slow, to the target"
            found: dict[str, list[float]] = {}
            for _ in range(repeat):
                for label, bound in BOUNDS.items():
                    seconds = to_target(ps, rdd, bound)
                    found.setdefault(f"{name}, {label}", []).append(seconds)
            timings |= {key: Timing(key, seconds) for key, seconds in found.items()}
    finally:
        spark.stop()
    kinds = [f"slow for {stretch} in turn" for stretch in STRETCHES] + [name]
    ratios = [
        Ratio(f"BSP over {label}, {kind}", ratio(timings, kind, label))
        for kind in kinds
        for label in list(BOUNDS)[1:]
    ]
    ideal = Table(
        "seconds of waits alone",
        ["BSP", "ASP"],
        {f"slow for {k} in turn": alone(clocks, in_turn(k)) for k in STRETCHES},
    )
    title = f"{WORKERS} workers, {SERVERS} servers: a clock is {FAST:g} s, {SLOW:g} s if slow"
    return Report(title, list(timings.values()), ratios, {"clocks": clocks}, [ideal])


def ratio(timings: dict[str, Timing], kind: str, label: str) -> float:
    """How many times as long lockstep takes."""
    return timings[f"{kind}, BSP"].median / timings[f"{kind}, {label}"].median


def in_turn(stretch: int) -> Pause:
    """In each stretch of clocks another worker is slow."""
    return lambda rank, clock: SLOW if clock // stretch % WORKERS == rank else FAST


def alone(clocks: int, pause: Pause) -> list[float | None]:
    """Seconds if all wait for the slowest in each clock, and if nobody waits for others."""
    waits = [[pause(rank, clock) for clock in range(clocks)] for rank in range(WORKERS)]
    return [sum(map(max, zip(*waits, strict=True))), max(map(sum, waits))]


def cases(ps: PSContext, rdd: RDD[Any], name: str, train: Callable[..., Any]) -> list[Case]:
    """A case for each bound, whose name begins with ``name``."""

    def timed(bound: int | None) -> Callable[[], object]:
        return lambda: run(train, rdd, ps.zeros(SIZE), staleness=bound)

    return [Case(f"{name}, {label}", timed(bound)) for label, bound in BOUNDS.items()]


def problem() -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows and targets of least squares, a block for each worker."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=SIZE)
    blocks = [rng.normal(size=(ROWS // WORKERS, SIZE)) for _ in range(WORKERS)]
    return [(a, a @ truth + rng.normal(size=len(a))) for a in blocks]


def step(a: np.ndarray, b: np.ndarray, weights: np.ndarray, clock: int) -> np.ndarray:
    """Of gradient descent on some of the rows."""
    part = slice(clock % 4, None, 4)
    return -0.05 * a[part].T @ (a[part] @ weights - b[part]) / len(b[part])


def fixed(clocks: int, pause: Pause) -> Callable[..., int]:
    """A training function: so many clocks."""

    def train(worker: Any, w: Any) -> int:
        ((a, b),) = worker.rows
        for clock, weights in worker.prefetch(w, range(worker.now, clocks)):
            time.sleep(pause(worker.rank, clock))
            w.push(None, step(a, b, weights, clock))
            worker.clock()
        return int(worker.now)

    return train


def to_target(ps: PSContext, rdd: RDD[Any], bound: int | None) -> float:
    """Seconds until the objective is near its optimum, while one worker is always slow."""
    a, b = (np.concatenate(parts) for parts in zip(*problem(), strict=True))
    best = float(np.linalg.lstsq(a, b, rcond=None)[1][0])

    def train(worker: Any, w: Any, over: Any) -> float:
        ((mine, targets),) = worker.rows
        over.pull()
        began = time.perf_counter()
        for clock, weights in worker.prefetch(w, range(worker.now, MOST_CLOCKS)):
            if over.pull()[0]:
                break
            if worker.rank == 0 and np.sum((a @ weights - b) ** 2) < NEAR * best:
                over.push(None, 1)
                return time.perf_counter() - began
            time.sleep(SLOW if worker.rank == 1 else FAST)
            w.push(None, step(mine, targets, weights, clock))
            worker.clock()
        over.push(None, 1)
        return float("nan")

    seconds: float = run(train, rdd, ps.zeros(SIZE), ps.zeros(1, np.int64), staleness=bound)[0]
    if np.isnan(seconds):
        raise RuntimeError(f"staleness={bound}: not near the optimum after {MOST_CLOCKS} clocks")
    return seconds


if __name__ == "__main__":
    main(__doc__, measure, configure)
