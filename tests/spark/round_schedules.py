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
from tests.quick_start import QUICK_START
from tests.spark.round_contributions import (
    KEYS,
    PARTITIONS,
    Contribution,
    contributions,
    expected,
    expected_rows,
    keyed_arrays,
    same_bits,
    start_values,
)

KILLS = {12: ("plain", 3), 25: ("reduce", 4)}
"""Schedules with an executor that is killed: where, and after how many contributions."""
SEEDS = range(50)
SOME = (7, 9, 12, 14, 15, 24, 25, 36)
"""Seeds enough that all kinds of faults happen, in all places and ops."""
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


def schedule_of(seed: int) -> Schedule:
    """Faults drawn from ``seed``; an executor is killed where KILLS says so."""
    rng = np.random.default_rng((seed, 1))
    if seed in KILLS:
        where, after = KILLS[seed]
        return Schedule(seed, where, "add", {PARTITIONS - 1: ("kill", after)})
    op = str(rng.choice(["add", "add", "add", "min", "max"]))  # counting twice shows in sums only
    faults = {}
    for partition in range(PARTITIONS):
        # Spark copies slow tasks only when another has ended.
        slow = ["straggle", "late"] if partition else []
        kinds = ["raise", "raise", "die", *slow]
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
        """Raise, die, also with the executor, or wait: for a copy that is first, or to be late."""
        self.note(kind)
        if kind == "raise":
            raise ValueError("as scheduled")
        if kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "kill":
            os.kill(parent_of(os.getppid()), signal.SIGKILL)  # worker, its daemon, the executor
        wait_for(self.directory / (f"contributed-{partition}" if kind == "straggle" else "over"))

    def contribute(self, made: list[Contribution]) -> None:
        fault = self.directory / f"fault-{TaskContext.get().partitionId()}"
        try:
            for one in made:
                self.contributors[one.slot].push(one.indices, one.values)
                if one.is_keyed and fault.exists():
                    self.note("keyed-again")
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
    seed, op = schedule.seed, schedule.op
    arrays, keyed = [ps.array(values) for values in start_values(seed)], keyed_arrays(ps, seed)
    old, rows = [array.copy() for array in arrays], [array.pull(KEYS) for array in keyed]
    with ps.round(*arrays, *keyed, op=op) as contributors:
        run(schedule, rdd, contributors, directory)
    (directory / str(seed) / "over").touch()
    if not same_bits([one.numpy() for one in arrays], expected(seed, op)):
        return f"{schedule} gives other bits"
    if not same_bits([one.numpy() for one in old], start_values(seed)):
        return f"{schedule} changed the old values"
    keys, wanted = expected_rows(seed, op, rows)
    if not same_bits([one.pull(KEYS) for one in keyed], wanted):
        return f"{schedule} gives other rows of keys"
    if not np.array_equal(keyed[0].space.keys(), keys):
        return f"{schedule} inserts other keys, or in another order"
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
        seeds = self.logs.keys() & set(SEEDS)
        least = Counter(kind for seed in seeds for kind, _ in schedule_of(seed).faults.values())
        least += Counter({"refused": 1, "keyed-again": len(seeds) // 2})
        missing = [kind for kind, count in least.items() if self.happened[kind] < count]
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
