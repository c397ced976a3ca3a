"""Runs with ``durability=`` whose processes are killed, stopped or told to end.

With rollback: servers, supervisors, executors and workers, below L-BFGS, OWL-QN and Adam on arrays
and over Spark, and below lockstep loops. With replay: servers, below the same solvers and a script
of 200 statements, also while its session is resized again and again. A failure: other bits than
without the kill, an error, no end within three minutes, more than two checkpoints on disk, shared
memory or a server that is left.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyspark.sql.functions as F
from pyspark.sql import SparkSession

import distvec as dv
from distvec.spark import LogisticLoss, PSContext
from distvec.spark import run as run_loop
from optim import LBFGS, OWLQN, Adam
from ps_backend.errors import ServerLost
from tests.served import TOKEN, served
from tests.spark.cluster.test_executors import executor_of
from tests.stress.recovery import cluster, spark_here
from tests.stress.row import Row

_HANG_SECONDS = 180.0
_N = 4000
_LIFE_SECONDS = 10.5
"""A server that dies several times sooner is given up, rightly."""

_GRACE_SECONDS = 0.3
"""A server that is told to end serves open sessions for so long: less than a run takes."""

_STOP_SECONDS = 14.0
"""A stopped process goes on after that at most: some are replaced meanwhile, some are not."""

Victims = Mapping[str, Callable[[], list[int]]]
"""By name: the processes of now."""

SOLVERS = {
    "L-BFGS": LBFGS(max_iterations=60, gradient_tolerance=0.0),
    "OWL-QN": OWLQN(l1=1e-3, max_iterations=60, gradient_tolerance=0.0),
    "Adam": Adam(max_iterations=100, gradient_tolerance=0.0),
}


@dataclass
class Work:
    """What is run, and what is killed below it."""

    name: str
    bits: Callable[[], bytes]
    victims: Victims
    folder: Path
    signals: Mapping[signal.Signals, int] = field(
        default_factory=lambda: {signal.SIGKILL: 4, signal.SIGSTOP: 1}
    )
    """How often each is sent."""
    taken: list[float] = field(default_factory=list)
    """Seconds of runs without a kill."""


def run(scale: float) -> Iterator[Row]:
    """A row for each work and victim; ``scale`` is of the kills, 136 at 1, 34 stops and 100
    ends."""
    for place in (_local, _replayed, _resized, _connected, _spark_here, _spark_cluster):
        before = _shared_memory()
        with ExitStack() as stack:
            for work in place(stack):
                yield from _rows(work, scale)
        left = _shared_memory() - before
        yield Row(f"{place.__name__[1:]}: shared memory left", 1, len(left), " ".join(left))


def _rows(work: Work, scale: float) -> Iterator[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = work.bits()
        for _ in range(2):
            began = time.monotonic()
            assert work.bits() == expected, f"{work.name}: other bits without a kill"
            work.taken.append(time.monotonic() - began)
        for victim in work.victims:
            for kind, share in work.signals.items():
                count = round(share * scale)
                if count:
                    yield _row(work, victim, kind, count, expected)


def _row(work: Work, victim: str, kind: signal.Signals, count: int, expected: bytes) -> Row:
    same, recoveries, wrong = 0, [], []
    usual = min(work.taken)
    for seed in range(count):
        if kind != signal.SIGTERM:  # at which none is given up
            time.sleep(_LIFE_SECONDS)
        dice = random.Random(f"{work.name} {victim} {kind} {seed}")
        strike = threading.Thread(
            target=_strike, args=(dice, work.victims[victim], kind, usual), daemon=True
        )
        found: list[Any] = []
        worker = threading.Thread(target=_attempt, args=(work.bits, found), daemon=True)
        began = time.monotonic()
        strike.start()
        worker.start()
        worker.join(_HANG_SECONDS)
        if worker.is_alive():
            wrong.append(f"seed {seed}: no end")
            break
        recoveries.append(max(0.0, time.monotonic() - began - usual))
        strike.join()
        if found[0] == expected:
            same += 1
        else:
            told = f"{type(found[0]).__name__}: {found[0]}" if found[1] else "other bits"
            wrong.append(f"seed {seed}: {told[:300]}")
        kept = len(list(work.folder.rglob("manifest.json")))
        if kept > 2:
            wrong.append(f"seed {seed}: {kept} checkpoints")
    told = f"same bits {same}"
    if recoveries:
        told += f"; recovery {statistics.median(recoveries):.1f} s, worst {max(recoveries):.1f} s"
    what = f"{work.name}: {kind.name} of a {victim}"
    return Row(what, count, len(wrong), "; ".join([told, *wrong]))


def _attempt(bits: Callable[[], bytes], found: list[Any]) -> None:
    try:
        found[:] = bits(), False
    except BaseException as error:  # noqa: BLE001 - it is part of the table
        found[:] = error, True


def _strike(
    dice: random.Random, victims: Callable[[], list[int]], kind: signal.Signals, usual: float
) -> None:
    time.sleep(dice.uniform(0.0, usual))
    alive = [pid for pid in victims() if pid]
    if not alive:
        return
    pid = dice.choice(alive)
    with suppress(ProcessLookupError):
        os.kill(pid, kind)
        if kind == signal.SIGSTOP:
            time.sleep(dice.uniform(0.2, _STOP_SECONDS))
            os.kill(pid, signal.SIGCONT)


# --- what is run ----------------------------------------------------------------------------------


def _local(stack: ExitStack) -> Iterator[Work]:
    folder = _folder(stack)
    ps = stack.enter_context(dv.local(2, durability="rollback", checkpoint=folder))
    for name in SOLVERS:
        bits = _on_arrays(ps, name)
        yield Work(f"{name}, dv.local", bits, {"server": lambda: list(ps._owner.pids)}, folder)


def _replayed(stack: ExitStack) -> Iterator[Work]:
    folder = _folder(stack)
    ps = stack.enter_context(dv.local(2, durability="replay", checkpoint=folder))
    ps.journal_limit = 2**20  # checkpoints come in the middle
    victims = {"server": lambda: list(ps._owner.pids)}
    for name in SOLVERS:
        yield Work(f"{name}, replay", _on_arrays(ps, name), victims, folder)
    yield Work("script, replay", lambda: _script(ps), victims, folder)


def _resized(stack: ExitStack) -> Iterator[Work]:
    folder = _folder(stack)
    ps = stack.enter_context(dv.local(2, spares=1, durability="replay", checkpoint=folder))
    victims = {"server": lambda: list(ps._owner.pids)}

    def bits() -> bytes:
        numbers = iter([3, 1, 2] * 4)
        return _script(ps, lambda place: place % 20 == 9 and _resize(ps, next(numbers)))

    yield Work("script that resizes, replay, a spare", bits, victims, folder)


def _resize(ps: dv.Session, servers: int) -> None:
    """Again where one of the other servers was lost meanwhile."""
    with suppress(ServerLost):
        return ps.resize(servers)
    return _resize(ps, servers)


def _script(ps: dv.Session, between: Callable[[int], object] = lambda place: None) -> bytes:
    """200 statements by chance, always the same; the bytes of all that is there in the end."""
    dice, draws = random.Random(0), np.random.default_rng(0)
    arrays = [ps.array(draws.normal(size=_N)) for _ in range(4)]
    space = ps.keys()
    rows, counts = space.table(3, init=dv.normal(seed=1)), space.zeros(dtype="int64")
    for place in range(200):
        between(place)
        k, (x, y) = dice.randrange(4), dice.sample(arrays, 2)
        match dice.randrange(9):
            case 0:
                arrays[k] = np.sort(x) - y
            case 1:
                arrays[k] = np.cumsum(np.tanh(x))
            case 2:
                arrays[k] = ps.array(draws.normal(size=_N))
            case 3:
                x[10:500] = y[510:1000] * 2.0
            case 4:
                x.push(draws.integers(0, _N, 50), draws.normal(size=50))
            case 5:
                arrays[k] = x[np.argsort(y)]
            case 6:
                arrays[k] = np.where(x > float(y.mean()), x, np.cos(y))
            case 7:
                keys = draws.integers(0, 10_000, 300)
                rows.push(keys, draws.normal(size=(300, 3)))
                counts.push(keys, 1)
            case 8:
                arrays[k] = x / (1.0 + abs(float(x @ y)))
    found = np.concatenate([one.numpy() for one in arrays])
    keys = np.sort(space.keys())
    return bytes(found.tobytes() + rows.pull(keys).tobytes() + counts.pull(keys).tobytes())


def _connected(stack: ExitStack) -> Iterator[Work]:
    folder = _folder(stack)
    servers = stack.enter_context(served(folder, 2, grace=_GRACE_SECONDS))
    stack.enter_context(servers.kept())
    ps = stack.enter_context(
        dv.connect(
            servers.addresses,
            token=TOKEN,
            timeout=60,
            durability="rollback",
            checkpoint=folder / "run",
        )
    )
    for name in ("L-BFGS", "Adam"):
        bits = _on_arrays(ps, name)
        often = {signal.SIGTERM: 50, signal.SIGKILL: 4, signal.SIGSTOP: 1}
        yield Work(f"{name}, dv.connect", bits, {"server": lambda: servers.pids}, folder, often)


def _on_arrays(ps: dv.Session, name: str) -> Callable[[], bytes]:
    """What is lost before the first checkpoint of a run is lost, so the start is kept before."""
    curvatures = ps.array(np.geomspace(1.0, 1e4, _N))
    start = ps.zeros(_N).persist()
    ps.checkpoint(start=start, curvatures=curvatures)
    fun = dv.value_and_grad(lambda x: (curvatures * (x - 1.0) ** 2).sum() / 2)

    def bits() -> bytes:
        return _read(ps, SOLVERS[name].minimize(fun, start, every=7).x)

    return bits


def _spark_here(stack: ExitStack) -> Iterator[Work]:
    spark = stack.enter_context(spark_here("local[2,4]"))
    yield from _over_spark(stack, spark, "local[2]", lambda ps: {
        "server": lambda: ps.server_pids,
        "worker": lambda: _workers(ps),
    })  # fmt: skip


def _spark_cluster(stack: ExitStack) -> Iterator[Work]:
    spark = stack.enter_context(cluster())
    yield from _over_spark(stack, spark, "2 executors", lambda ps: {
        "server": lambda: ps.server_pids,
        "supervisor": lambda: [_parent(pid) for pid in ps.server_pids if pid],
        "executor": lambda: [executor_of(pid) for pid in ps.server_pids if pid],
        "worker": lambda: _workers(ps),
    })  # fmt: skip


def _over_spark(
    stack: ExitStack, spark: SparkSession, where: str, victims: Callable[[PSContext], Victims]
) -> Iterator[Work]:
    folder = _folder(stack)
    ps = stack.enter_context(
        PSContext.get_or_create(
            spark,
            servers=2,
            memory="256m",
            timeout=120.0,
            durability="rollback",
            checkpoint=folder,
        )
    )
    with LogisticLoss(_rows_of(spark), ps=ps) as loss:
        for name, solver in SOLVERS.items():

            def bits(solver: Any = solver) -> bytes:
                return _read(ps, solver.minimize(loss, ps.zeros(loss.dimension), every=7).x)

            yield Work(f"{name}, {where}", bits, victims(ps), folder)
    rdd = spark.sparkContext.parallelize(range(2), 2)
    start = ps.array(np.random.default_rng(0).normal(size=_N))
    ps.checkpoint(start=start)

    def looped() -> bytes:
        w = start.copy()
        run_loop(_train, rdd, w, every=10)
        return _read(ps, w)

    yield Work(f"lockstep loop, {where}", looped, victims(ps), folder)


def _read(ps: dv.Session, result: dv.DistArray) -> bytes:
    """What was made: a server that dies after the end of a run had it, and so has the store."""
    deadline = time.monotonic() + _HANG_SECONDS
    while True:
        try:
            return bytes(result.numpy().tobytes())
        except ServerLost:
            if time.monotonic() > deadline:
                raise
        with suppress(ServerLost):  # another one is not there yet
            ps.restore(ps.durability.directory)


def _train(worker: Any, w: Any) -> None:
    for _ in range(worker.now, 100):
        w.push(None, 1e-3 * np.sin(w.pull() + worker.rank))
        worker.clock()


def _rows_of(spark: SparkSession) -> Any:
    column = F.col("id")
    features = F.array(*[(column * k % 97 / 97.0).alias("x") for k in range(1, 33)])
    frame = spark.range(2000).repartition(2).select(features.alias("features"), column % 2)
    return frame.withColumnRenamed("(id % 2)", "label")


# --- who is there ---------------------------------------------------------------------------------


def _workers(ps: PSContext) -> list[int]:
    """Spark's Python processes that run tasks, but for supervisors of servers."""
    supervisors = {_parent(pid) for pid in ps.server_pids if pid}
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            if pid not in supervisors and _is_daemon(pid) and _is_daemon(_parent(pid)):
                found.append(pid)
    return [pid for pid in found if os.getpid() in _ancestors(pid)]


def _is_daemon(pid: int) -> bool:
    return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        pid = _parent(pid)
        yield pid


def _shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "distvec" in name}


def _folder(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory()))
