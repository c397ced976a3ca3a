"""A driver that runs rounds under faults drawn from seeds, and compares each with NumPy's bits.

It is started in a process of its own, as there is one Spark a process: by ``test_rounds`` for a
part of the seeds, by ``tests.stress`` for all.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pyspark import TaskContext
from pyspark.sql import SparkSession

from distvec.spark import PSContext
from ps_backend.errors import RoundClosed
from ps_backend.processes.launcher import launch_local
from tests.conftest import QUICK_START

SHAPES = ((2500,), (40, 3))
"""Of the arrays of a round: a vector and a table."""

PARTITIONS = 3
COMBINE = {"add": np.add, "min": np.minimum, "max": np.maximum}
KILLS = {12: "plain", 25: "reduce"}
SEEDS = range(50)
SOME = (*range(15), 18, 24, 25, 36, 41)
"""Seeds enough that all kinds of faults happen, most of them several times."""
TRIES = 5
PATIENCE = 30.0

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_START[1],
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    "spark.python.daemon.module": "tests.spark.warm_daemon",
    "spark.locality.wait": "0s",
    "spark.scheduler.revive.interval": "50ms",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "250ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    QUICK_START[0]: QUICK_START[1],
}


class Schedule(NamedTuple):
    """What goes wrong in a round.

    ``where`` the contributions are made: in a "plain" action, or before or after a shuffle ("map",
    "reduce"). ``faults``: by partition, what its first attempt meets after how many contributions.
    """

    seed: int
    where: str
    op: str
    faults: dict[int, tuple[str, int]]


class Contribution(NamedTuple):
    """Values for a slot at indices, or for all of it."""

    slot: int
    indices: np.ndarray | None
    values: np.ndarray


def contributions(seed: int, partition: int) -> list[Contribution]:
    """What a partition contributes, in order, which shows in the bits: magnitudes differ."""
    rng = np.random.default_rng((seed, partition))
    made = []
    for _ in range(rng.integers(1, 4)):
        slot, dense = int(rng.integers(len(SHAPES))), rng.random() < 0.3
        length, *row = SHAPES[slot]
        indices = None if dense else rng.integers(0, length, 30)
        shape = SHAPES[slot] if dense else (30, *row)
        values = rng.normal(size=shape) * 10.0 ** rng.integers(-8, 8)
        made.append(Contribution(slot, indices, values))
    return made


def start_values(seed: int) -> list[np.ndarray]:
    """The arrays before the round."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in SHAPES]


def expected(schedule: Schedule) -> list[np.ndarray]:
    """The arrays after it, by NumPy."""
    totals, combine = start_values(schedule.seed), COMBINE[schedule.op]
    for partition in range(PARTITIONS):
        for slot, indices, values in contributions(schedule.seed, partition):
            if indices is None:
                combine(totals[slot], values, out=totals[slot])
            else:
                combine.at(totals[slot], indices, values)
    return totals


def schedule_of(seed: int) -> Schedule:
    """Faults drawn from ``seed``; an executor is killed where KILLS says so."""
    rng = np.random.default_rng((seed, 1))
    if seed in KILLS:
        return Schedule(seed, KILLS[seed], "add", {PARTITIONS - 1: ("kill", 4)})
    op = str(rng.choice(["add", "add", "add", "min", "max"]))  # counting twice shows in sums only
    faults = {}
    for partition in range(PARTITIONS):
        # Spark copies slow tasks only when another has ended.
        slow = ["straggle", "late"] if partition else []
        kinds = ["raise", "raise", "raise", *slow]
        if rng.random() < 0.4:
            faults[partition] = str(rng.choice(kinds)), int(rng.integers(0, 4))
    return Schedule(seed, str(rng.choice(["plain", "plain", "reduce", "map"])), op, faults)


def lost_shuffle(seed: int) -> Schedule:
    """The contributions are made before a shuffle, and an executor dies with its outputs."""
    return Schedule(seed, "map", "add", {0: ("kill", 4)})


# --- in tasks -------------------------------------------------------------------------------------


class Task:
    """The task of a schedule: a partition contributes, and meets its fault once."""

    def __init__(self, schedule: Schedule, contributors, directory: Path) -> None:
        self.schedule, self.contributors = schedule, contributors
        self.directory = directory / str(schedule.seed)

    def __call__(self, rows):
        rows = list(rows)
        partition = TaskContext.get().partitionId()
        made = contributions(self.schedule.seed, partition)
        kind, after = self.schedule.faults.get(partition, ("none", 0))
        self.note("ran")
        self.contribute(made[:after])
        if kind != "none" and self.is_first(f"fault-{partition}"):
            self.meet(kind, partition)
        self.contribute(made[after:])
        (self.directory / f"contributed-{partition}").touch()
        return rows

    def meet(self, kind: str, partition: int) -> None:
        """Raise, die with the executor, or wait: for a copy to come first, or till it is late."""
        self.note(kind)
        if kind == "raise":
            raise ValueError("as scheduled")
        if kind == "kill":
            os.kill(parent_of(os.getppid()), signal.SIGKILL)  # worker, its daemon, the executor
        wait_for(self.directory / (f"contributed-{partition}" if kind == "straggle" else "over"))

    def contribute(self, made: list[Contribution]) -> None:
        try:
            for slot, indices, values in made:
                self.contributors[slot].push(indices, values)
        except RoundClosed:
            self.note("refused")
            raise

    def note(self, what: str) -> None:
        with open(self.directory / "log", "a") as log:
            log.write(what + "\n")

    def is_first(self, name: str) -> bool:
        try:
            (self.directory / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class Reduce(Task):
    """A task behind a shuffle whose contributions were made before it."""

    def __call__(self, rows):
        list(rows)
        kills = ("kill", 4) in self.schedule.faults.values()
        if kills and TaskContext.get().partitionId() == 0 and self.is_first("killed"):
            self.meet("kill", 0)


def parent_of(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists() and time.monotonic() < deadline:
        threading.Event().wait(0.005)


# --- the driver -----------------------------------------------------------------------------------


def pair(x: int) -> tuple[int, int]:
    return x % PARTITIONS, x


def run(schedule: Schedule, rdd, contributors, directory: Path) -> None:
    """The Spark job of a round."""
    task = Task(schedule, contributors, directory)
    task.directory.mkdir()
    if schedule.where == "plain":
        rdd.foreachPartition(task)
    elif schedule.where == "reduce":
        rdd.map(pair).partitionBy(PARTITIONS).foreachPartition(task)
    else:
        if lost_shuffle(schedule.seed) == schedule:
            task.schedule = schedule._replace(faults={})
        reduce = Reduce(schedule, (), directory)
        rdd.mapPartitions(task).map(pair).partitionBy(PARTITIONS).foreachPartition(reduce)


def check(ps: PSContext, schedule: Schedule, rdd, directory: Path) -> str:
    """Run a round; says how it differs from NumPy, if it does."""
    arrays = [ps.array(values) for values in start_values(schedule.seed)]
    before = [array.copy() for array in arrays]
    with ps.round(*arrays, op=schedule.op) as contributors:
        run(schedule, rdd, contributors, directory)
    (directory / str(schedule.seed) / "over").touch()
    if any(
        array.numpy().tobytes() != values.tobytes()
        for array, values in zip(arrays, expected(schedule), strict=True)
    ):
        return f"{schedule} gives other bits"
    if any(
        array.numpy().tobytes() != values.tobytes()
        for array, values in zip(before, start_values(schedule.seed), strict=True)
    ):
        return f"{schedule} changed the old values"
    return ""


def script(url: str, directory: Path, seeds: Iterable[int]) -> str:
    """What the driver's process is to run."""
    return f"""
from pathlib import Path
from tests.spark.round_schedules import main
main({url!r}, Path({str(directory)!r}), {list(seeds)})
"""


class Outcome(NamedTuple):
    """What was wrong, and by seed what happened in the tasks."""

    wrong: list[str]
    logs: dict[int, Counter[str]]

    @classmethod
    def said(cls, line: str) -> Outcome:
        """As ``main`` printed it."""
        wrong, logs = json.loads(line)
        return cls(wrong, {int(seed): Counter(log) for seed, log in logs.items()})

    @property
    def happened(self) -> Counter[str]:
        """In all rounds together."""
        return sum(self.logs.values(), Counter())

    @property
    def missing(self) -> list[str]:
        """What the schedules are to bring about, and did not."""
        least = {"raise": 11, "straggle": 4, "late": 4, "refused": 1}
        missing = [kind for kind, count in least.items() if self.happened[kind] < count]
        if any(self.logs[seed]["kill"] != 1 for seed in KILLS):
            missing.append("kill")
        # Contributions made before a shuffle whose outputs were lost later were made again.
        if not self.logs[max(self.logs)]["ran"] > PARTITIONS:
            missing.append("lost shuffle")
        return missing


def main(url: str, directory: Path, seeds: Sequence[int]) -> None:
    """Run the schedules on the cluster at ``url``; prints what happened as JSON."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(url)
    for name, value in CONFIGURATION.items():
        builder = builder.config(name, value)
    with launch_local(2, memory=1 << 28) as servers:
        spark = builder.getOrCreate()
        ps = PSContext.get_or_create(spark, addresses=servers.addresses, token=servers.token)
        rdd = spark.sparkContext.parallelize(range(40), PARTITIONS)
        wrong = [check(ps, schedule_of(seed), rdd, directory) for seed in seeds]
        # A speculative copy may have read the outputs already; then nothing is made again.
        for seed in range(SEEDS.stop, SEEDS.stop + TRIES):
            wrong.append(check(ps, lost_shuffle(seed), rdd, directory))
            if (directory / str(seed) / "log").read_text().split().count("ran") > PARTITIONS:
                break
        logs = {path.parent.name: path.read_text().split() for path in directory.glob("*/log")}
        json.dump(Outcome(list(filter(None, wrong)), logs), sys.stdout)
        sys.stdout.write("\n")
        sys.stdout.flush()
        ps.stop()
        spark.stop()
