"""``run``: a training function in long Spark tasks, each at its own pace within a bound."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty
from typing import Any, TypeAlias

from pyspark import RDD

from distvec import DistArray
from distvec.array.core.handle import lock_in_order
from distvec.keyed.array import KeyedArray
from distvec.spark.context import PSContext
from distvec.spark.jobs.application import BackgroundJob, SlotWatch, free_slots
from distvec.spark.jobs.failures import Failure, describe_failure, user_stacklevel
from distvec.spark.jobs.interpreter import use_driver_python
from distvec.spark.loops.checkpoint_barrier import (
    BarrierSpec,
    CheckpointBarrier,
    LoopCheckpoints,
    checkpoint_writer,
    run_with_rollback,
)
from distvec.spark.loops.worker import Assignment, Train, serve
from distvec.spark.loops.worker_progress import Listener, Progress, Screen, WorkerProgress, screen
from distvec.spark.rounds.round import check_arrays
from distvec.spark.rounds.shared import SharedCopies
from ps_backend.client import Loop, SharedArray, defer_signals
from ps_backend.errors import LoopClosed, PSError, ServerLost

_LOOK_SECONDS = 0.1
_MOST_REPORTS = 1000
"""The driver looks up so often, or after so many reports: for Ctrl-C, and for a job that ended."""

_SERVERS_SECONDS = 2.0
"""It asks the servers so often whether they still have the loop."""

_START_SECONDS = 30.0
"""Tasks that have no slot for so long are not waited for, if others may wait for them."""


class LoopDriver:
    """One loop: its arrays, its Spark job, and what the driver does while it runs."""

    def __init__(
        self,
        ps: PSContext,
        arrays: Sequence[SharedArray],
        size: int,
        staleness: int | None,
        patience: float,
        began: int = 0,
    ) -> None:
        """``began``: the clock at which all workers begin."""
        self.loop: Loop = ps.client.loop(f"loop-{ps.client.new_id()}")
        self._arrays = arrays
        self._ps, self._size, self._patience = ps, size, patience
        self._staleness, self._began = staleness, began
        self._barrier: BarrierSpec | None = None
        self._checkpoints: CheckpointBarrier | None = None
        self._view = WorkerProgress(size)
        self._listener: Listener | None = None
        self._job: BackgroundJob[list[tuple[int, Any]]] | None = None
        self._failures: list[str] = []
        """What workers raised, which Spark may have tried again."""
        self._asked = time.monotonic()

    def keep(self, every: int, keep: Callable[[int], None]) -> None:
        """Let workers stand still after each ``every`` clocks while ``keep`` runs, which is told
        how often they have. To be called before ``start``."""
        filled = [array for array in self._arrays if array.type.space.length]
        if not filled:
            return
        self._barrier = BarrierSpec(f"{self.loop.name}-barrier", every, filled[0])

        def keep_all(times: int) -> None:
            if not self._view.has_given_up:  # one that comes back would come in between
                keep(times)

        barrier = self._ps.client.loop(self._barrier.name)
        self._checkpoints = CheckpointBarrier(barrier, self._size, filled[0], keep_all)

    def start(self, train: Train, rdd: RDD[Any]) -> None:
        """Open the loop on the servers and start the job."""
        context = self._ps.spark_context
        self.loop.open(self._size, self._staleness)
        conf, access = context.getConf(), self._ps.access
        host = conf.get("spark.driver.host") or "127.0.0.1"
        bind = conf.get("spark.driver.bindAddress") or host
        self._listener = Listener(host, bind, access.token, self._ps._authority(host))
        arrays, driver = tuple(self._arrays), self._listener.address
        assignment = Assignment(
            access,
            self.loop.name,
            self._size,
            arrays,
            driver,
            self._listener.tls,
            self._began,
            self._barrier,
        )
        if self._size < rdd.getNumPartitions():
            rdd = rdd.coalesce(self._size)
        tasks = rdd.mapPartitionsWithIndex(partial(serve, assignment, train))
        self._job = BackgroundJob(
            context,
            tasks.collect,
            f"distvec-{self.loop.name}-{self._ps.client.session}",
            f"distvec: a loop of {self._size} workers",
        )

    def wait(self, shown: Screen) -> list[Any]:
        """The results by rank."""
        if self._job is None:
            raise RuntimeError("the loop was not started")
        job, slots = self._job, SlotWatch(self._job, _START_SECONDS)
        while job.is_alive:
            self._look(shown)
            self._check_slots(slots)
            self._check_servers(_SERVERS_SECONDS)
            if self._checkpoints is not None and self._checkpoints.failure is not None:
                raise self._checkpoints.failure
        self._look_at_the_rest(shown)
        results = job.result or []
        if len(results) != self._size:
            self._check_servers(0.0)
            reason = (
                "its tasks ended early" if job.failure is None else describe_failure(job.failure)
            )
            for text in self._failures:
                failure = Failure.from_text(text)
                if " ".join(failure.summary.split()) in reason:  # what Spark gave up at
                    where = f"in the worker of rank {failure.partition}"
                    failure.throw(where, "the arrays given to run stand for what they were.")
            raise RuntimeError(f"the Spark job of the loop failed: {reason}") from job.failure
        self._close_listener()
        return [result for _, result in sorted(results, key=lambda one: one[0])]

    @property
    def clock(self) -> int:
        """How many clocks the workers have ended, the fastest of them."""
        return max(self._view.clocks)

    def close(self) -> None:
        """End the loop: all that its workers pushed counts."""
        self._close_barrier()
        self.loop.close()

    def stop(self) -> None:
        """End the loop and its tasks, some seconds at most."""
        self._close_barrier()
        with suppress(PSError):  # the servers are gone, and the loop with them
            self.loop.close()
        if self._job is not None:
            self._job.stop()
        self._close_listener()

    def _close_barrier(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()

    def _look(self, shown: Screen) -> None:
        """Take what reports come in a moment, and do what follows from them."""
        more = self._take(shown, _LOOK_SECONDS)
        for _ in range(_MOST_REPORTS):
            if not more:
                break
            more = self._take(shown)
        shown.show(self._view)
        self._warn_of_slow()
        self._exclude_silent()

    def _look_at_the_rest(self, shown: Screen) -> None:
        """The same of all that came before the job ended; nobody is silent any more."""
        while self._take(shown):
            pass
        shown.show(self._view)
        self._warn_of_slow()

    def _take(self, shown: Screen, seconds: float = 0.0) -> bool:
        """Take one report, if one comes within so many seconds; whether one came."""
        if self._listener is None:
            return False
        try:
            report = self._listener.reports.get(timeout=seconds)
        except Empty:
            return False
        self._view.note(report, time.monotonic())
        if report.failure:
            self._failures.append(report.failure)
        for line in report.lines:
            shown.print_line(f"[{report.rank}] {line}")
        return True

    def _warn_of_slow(self) -> None:
        for rank, mine, usual in self._view.slow():
            warnings.warn(
                f"worker {rank} is slow: {mine:.3g} s for a clock, the others {usual:.3g} s; "
                "staleness bounds how far the others run ahead",
                stacklevel=user_stacklevel(),
            )

    def _exclude_silent(self) -> None:
        for rank, attempt in self._view.silent(time.monotonic(), self._patience):
            self.loop.exclude(rank, attempt)
            if self._checkpoints is not None:
                self._checkpoints.exclude(rank, attempt)
            warnings.warn(
                f"worker {rank} sent no message for {self._patience:g} s; the others continue "
                "without it until it returns",
                stacklevel=user_stacklevel(),
            )

    def _check_slots(self, slots: SlotWatch) -> None:
        """Raise if workers that others may wait for, or all of them, get no slot."""
        began = self._view.missing < self._size
        if not self._view.missing or (began and self._staleness is None):
            return
        if slots.lacks(self._size if began else 1):
            raise RuntimeError(
                f"the loop needs {self._size} slots, but only {slots.active} of its tasks got one "
                f"within {_START_SECONDS:g} s; end other Spark jobs, or use fewer partitions: "
                "rdd.coalesce(n)"
            )

    def _check_servers(self, seconds: float) -> None:
        """Raise ``ServerLost`` unless all servers have the loop; asks them once in ``seconds``."""
        if time.monotonic() - self._asked < seconds:
            return
        try:
            self.loop.clocks()
        except (ServerLost, LoopClosed) as error:
            named = [
                f"{k} (buffer {one.number}, length {one.type.space.length})"
                for k, one in enumerate(self._arrays)
            ]
            raise ServerLost(
                f"the loop lost a server with a part of array {', '.join(named)}; the arrays "
                f"given to run keep their earlier values: {error}"
            ) from error
        self._asked = time.monotonic()


Trained: TypeAlias = tuple[list[Any], int, Sequence[DistArray]]
"""The results by rank, the clocks that have ended, and what the arrays become."""


def run(
    train: Train,
    rdd: RDD[Any],
    *arrays: DistArray | KeyedArray,
    staleness: int | None = 0,
    patience: float = 60.0,
    progress: Progress = None,
    every: int = 20,
) -> list[Any]:
    """Run a training function in long tasks over the partitions of an RDD, one for each worker.

    Workers pull from and push to the arrays. Each worker counts clocks, and ``staleness`` bounds
    how far workers may drift apart.

    Parameters
    ----------
    train : callable
        Called as ``train(worker, *arrays)`` in each task. ``worker.rows`` are its rows,
        ``worker.now`` its clock. ``array.pull(indices)`` reads, ``array.push(indices, values)``
        adds, and ``worker.clock()`` ends a clock.
    rdd : RDD
        The rows. There are at most as many workers as free slots, so a worker may have the rows
        of several partitions.
    *arrays : DistArray or KeyedArray
        The arrays to train. Afterwards each is rebound to its trained value.
    staleness : int or None, default 0
        A pull in clock ``c`` contains all pushes of others before clock ``c - staleness``, and
        waits for them if necessary. 0 is lockstep (BSP), a larger number is bounded (SSP), None
        has no bound (ASP).
    patience : float, default 60.0
        Seconds without a sign of life after which others no longer wait for a worker.
    progress : bool or callable, optional
        True shows a progress bar, the default on a terminal. A function is called with the clocks
        of all ranks.
    every : int, default 20
        Clocks between checkpoints, if the context has ``durability="rollback"``.

    Returns
    -------
    list
        The results of ``train`` by rank.

    Raises
    ------
    RuntimeError
        If workers get too few slots, or Spark gives up a task.
    ServerLost
        If a server was lost with its part of the arrays, and the context does not roll back.
    Exception
        The exception of ``train``, once Spark has tried the task as often as configured. The trace
        of the task is its cause.

    Warns
    -----
    UserWarning
        If a worker is silent for ``patience`` seconds, or takes three times as long as the others.

    Notes
    -----
    A worker sees its own pushes immediately, others see them after its clock. In lockstep
    each run gives bitwise identical results. If ``run`` raises, the arrays keep their values. A
    keyed array changes in place: a push takes effect immediately, counts at least once, and
    remains if ``run`` raises.

    Spark repeats a lost task, with ``worker.now`` at the clock of the loss. Each clock counts
    once. A silent worker may come back. Printed lines appear on the driver, after the rank of the
    worker: ``[3] loss 0.25``.

    With ``durability="rollback"`` the arrays are stored at the start, at the end, and after each
    ``every`` clocks, while all workers pause; a checkpoint is skipped while the last one is still
    being written. If a server is lost, all workers start again in new tasks at the clock of the
    newest checkpoint. Each clock counts once, and in lockstep the result is bitwise identical to a
    run without a loss.

    Examples
    --------
    >>> from distvec.spark import run
    >>> w = ps.zeros(4)
    >>> def train_one(worker, w):
    ...     for _ in range(worker.now, 3):
    ...         w.push([worker.rank], 1.0)
    ...         worker.clock()
    ...     return worker.rank
    >>> run(train_one, spark.sparkContext.parallelize(range(2), 2), w, progress=False)
    [0, 1]
    >>> w.numpy()
    array([3., 3., 0., 0.])
    """
    _check(rdd, staleness, patience, every)
    ps = _session(arrays)
    if len({id(array) for array in arrays}) != len(arrays):
        raise ValueError("an array is given twice; give each array once")
    own = [array for array in arrays if not isinstance(array, KeyedArray)]
    check_arrays(ps, own)
    if len(own) < len(arrays):
        train = TrainWithKeyed(
            train, [one if isinstance(one, KeyedArray) else None for one in arrays]
        )
    return _run(train, rdd, own, ps, staleness, patience, progress, every)


def _run(
    train: Train,
    rdd: RDD[Any],
    arrays: Sequence[DistArray],
    ps: PSContext,
    staleness: int | None,
    patience: float,
    progress: Progress,
    every: int,
) -> list[Any]:
    ps.release_slots()
    use_driver_python(rdd)
    size = min(rdd.getNumPartitions(), max(1, free_slots(ps.spark_context)))
    if not size:
        return []
    keeper = ps.durability.keeper(ps) if ps.durability.survives else None
    with screen(progress) as shown:

        def attempt(starts: Sequence[DistArray], kept: LoopCheckpoints | None = None) -> Trained:
            copies = SharedCopies(ps, starts)
            began = 0 if kept is None else kept.clock
            running = LoopDriver(ps, copies.arrays, size, staleness, patience, began)
            try:
                if kept is not None:
                    running.keep(every, checkpoint_writer(kept, copies, every))
                with ps._at_work("a loop"):
                    running.start(train, rdd)
                    results = running.wait(shown)
                running.close()
                ends = [DistArray(ps, node) for node in copies.snapshot(last=True)]
                return results, running.clock, ends
            except BaseException:
                running.stop()
                raise

        if keeper is None or not arrays:
            results, _, trained = attempt(arrays)
        else:
            kept = LoopCheckpoints(keeper, f"loop {ps.client.new_id()}", arrays)
            results, trained = run_with_rollback(kept, lambda: attempt(kept.arrays, kept))
    with lock_in_order(arrays), defer_signals():  # all or none
        for array, end in zip(arrays, trained, strict=True):
            array.rebind(end.node)
    return results


@dataclass(frozen=True)
class TrainWithKeyed:
    """A training function that gets keyed arrays among the others, each in its place."""

    train: Train
    given: Sequence[KeyedArray | None]
    """By place; None is one of the others."""

    def __call__(self, worker: Any, *arrays: Any) -> Any:
        """Train with all of them."""
        others = iter(arrays)
        return self.train(worker, *(next(others) if k is None else k for k in self.given))


def _session(arrays: Sequence[DistArray | KeyedArray]) -> PSContext:
    """That of the arrays; the active one of none."""
    found: set[Any] = {one.space.session for one in arrays if isinstance(one, KeyedArray)}
    found |= {one.session for one in arrays if isinstance(one, DistArray)}
    if len(found) > 1:
        raise ValueError("the arrays belong to several sessions; create all with one PSContext")
    ps = found.pop() if found else PSContext.active()
    if not isinstance(ps, PSContext):
        raise TypeError(
            "the arrays do not belong to a PSContext; create them with ps.array(values)"
        )
    return ps


def _check(rdd: RDD[Any], staleness: int | None, patience: float, every: int) -> None:
    if not isinstance(rdd, RDD):
        raise TypeError(f"run takes an RDD, got {type(rdd).__name__}; for a DataFrame pass df.rdd")
    whole = isinstance(staleness, int) and not isinstance(staleness, bool)
    if staleness is not None and (not whole or staleness < 0):
        raise ValueError(
            f"staleness={staleness!r}; allowed are 0 (lockstep), 1, 2, ... and None (no bound)"
        )
    if not patience > 0:
        raise ValueError(f"patience={patience!r}; must be a number of seconds above 0")
    if not every >= 1:
        raise ValueError(f"every={every!r}; must be a number of clocks, 1 or more")
