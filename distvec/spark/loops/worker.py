"""What a training function gets in its task: a worker with a clock, and arrays to pull and push.

def train(worker, w):
    data = load(worker.rows)
    batches = (data.batch(t) for t in range(worker.now, 100))
    for batch, weights in worker.prefetch(w, batches, lambda batch: batch.columns):
        w.push(batch.columns, -step * gradient(batch, weights))
        worker.clock()
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any, TypeVar

import numpy.typing as npt
from pyspark import TaskContext

from distvec.array.indexing.pull_push import as_indices
from distvec.spark.jobs.failures import Failure
from distvec.spark.loops.checkpoint_barrier import BarrierSpec, WorkerBarrier
from distvec.spark.loops.worker_progress import ANSWER_SECONDS, LineWriter, Reporter, WorkerReport
from distvec.spark.rounds.contribute import as_values
from distvec.spark.task_session import SessionTicket, join
from ps_backend.client import Indices, LoopRank, MessageClient, Pulled, SharedArray, Tls
from ps_backend.errors import LoopClosed, SessionUnknown

_MOST_LAPS = 100

Batch = TypeVar("Batch")


class Stopwatch:
    """How long each clock of a worker took, without what it waited for others. Thread-safe."""

    def __init__(self) -> None:
        self._began, self._waited = time.monotonic(), 0.0
        self._seconds: deque[float] = deque(maxlen=_MOST_LAPS)
        self._lock = threading.Lock()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time that is not the worker's own."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._waited += time.monotonic() - began

    def lap(self) -> None:
        """A clock ends."""
        now = time.monotonic()
        with self._lock:
            self._seconds.append(max(0.0, now - self._began - self._waited))
        self._began, self._waited = now, 0.0

    def take(self) -> list[float]:
        """The seconds of the clocks since the last call, of the latest ones if they are many."""
        with self._lock:
            taken = list(self._seconds)
            self._seconds.clear()
        return taken


class Worker:
    """One of the workers of a loop: its rows, its rank and its clock.

    ``run`` passes it to the training function.
    """

    def __init__(
        self,
        loop_rank: LoopRank,
        size: int,
        rows: Iterable[Any],
        watch: Stopwatch,
        began: int = 0,
        barrier: WorkerBarrier | None = None,
    ) -> None:
        """``began``: the clock at which all began; ``barrier``: where they stand still at times."""
        self.size = size
        """How many workers the loop has."""
        self.rows = rows
        """The rows of the worker's partitions, to be read once."""
        self._loop_rank, self._watch = loop_rank, watch
        self._began, self._barrier = began, barrier

    @property
    def rank(self) -> int:
        """The number of the worker, from 0 to ``size - 1``."""
        return self._loop_rank.rank

    @property
    def now(self) -> int:
        """The current clock; a repeated task or loop starts at the clock of the loss."""
        return self._began + self._loop_rank.now

    def clock(self) -> None:
        """End the current clock, and send its pushes to the servers.

        Notes
        -----
        One request to each server.
        """
        self._loop_rank.tick()
        self._watch.lap()
        if self._barrier is not None:
            with self._watch.waiting():
                self._barrier.arrive(self._loop_rank.now)

    def prefetch(
        self,
        w: LoopArray,
        batches: Iterable[Batch],
        indices: Callable[[Batch], npt.ArrayLike | None] | None = None,
    ) -> Iterator[tuple[Batch, npt.NDArray[Any]]]:
        """Yield each batch with the elements of an array that it needs, pulled in advance.

        The elements for the next batch are pulled while the loop's body uses this one. The values
        equal those of ``w.pull``, with all pushes of this worker.

        Parameters
        ----------
        w : LoopArray
            The array.
        batches : iterable
            The batches. A batch is taken before the body has finished the one before it.
        indices : callable, optional
            Returns the indices that a batch needs. By default all elements are pulled.

        Yields
        ------
        batch : object
            The batch.
        values : array
            The elements or rows.

        Notes
        -----
        Call ``clock()`` once in the body. Otherwise the elements are pulled again.
        """
        chosen = indices or _every_index
        ahead: _Ahead | None = None
        wanted: Indices | None = None
        each = ((batch,) for batch in batches)
        try:
            for here, following in pairwise(chain(each, [()])):
                if ahead is None:
                    wanted = w.check(chosen(here[0]))
                weights = w.receive(ahead, wanted)
                ahead = None
                if following:
                    wanted = w.check(chosen(following[0]))
                    ahead = _Ahead(self._loop_rank, w.target, wanted)
                yield here[0], weights
        finally:
            if ahead is not None:
                ahead.give_up()


def _every_index(batch: object) -> None:
    """The indices that stand for all."""


class LoopArray:
    """An array in a training function of ``run``."""

    def __init__(self, loop_rank: LoopRank, target: SharedArray, watch: Stopwatch) -> None:
        self.target = target
        """The array as servers know it."""
        self.dtype = target.type.dtype
        self.shape = target.type.shape
        """``(n,)``, or ``(n, k)`` of a table."""
        self._loop_rank, self._watch = loop_rank, watch

    def __len__(self) -> int:
        return self.shape[0]

    def pull(self, indices: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
        """Return elements or rows with the pushes that ``staleness`` guarantees.

        They contain all pushes of this worker, and the pushes of others up to ``staleness`` clocks
        ago, possibly later ones. The call waits for these if necessary.

        Parameters
        ----------
        indices : array_like of int, optional
            The indices. By default all.

        Returns
        -------
        array, (m,) or (m, k)
            In the order of ``indices``.

        Notes
        -----
        One request to each server that holds some of them.
        """
        return self.receive(None, self.check(indices))

    def push(self, indices: npt.ArrayLike | None, values: npt.ArrayLike) -> None:
        """Add values at some indices; ``clock()`` sends them to the servers.

        Parameters
        ----------
        indices : array_like of int or None
            The indices; repeated ones add up. None means all elements.
        values : array_like
            One number for each index, or a row for a table; or a single number or row for all.
            They are copied.

        Notes
        -----
        No request. ``clock()`` merges all pushes of a clock.
        """
        where = self.check(indices)
        self._loop_rank.push(self.target, where, as_values(values, self.target.type, where))

    def check(self, indices: npt.ArrayLike | None) -> Indices | None:
        """``indices`` from 0 to the length, or ``IndexError``."""
        return None if indices is None else as_indices(indices, len(self))

    def receive(self, ahead: _Ahead | None, wanted: Indices | None) -> npt.NDArray[Any]:
        """What was pulled ``ahead``, if it is for this clock; else what is pulled now."""
        with self._watch.waiting():
            if ahead is not None:
                if ahead.clock == self._loop_rank.now:
                    return self._loop_rank.receive(self.target, ahead.result())
                ahead.give_up()
            return self._loop_rank.pull(self.target, wanted)


class _Ahead:
    """A pull for the next clock, in a thread of its own."""

    def __init__(self, loop_rank: LoopRank, target: SharedArray, wanted: Indices | None) -> None:
        self.clock = loop_rank.now + 1
        self._work = (loop_rank, target, wanted)
        self._pulled: Pulled | None = None
        self._failure: Exception | None = None
        self._given_up = threading.Event()
        # Not of a pool: one that nobody waits for any more may stay with its server for a while.
        self._thread = threading.Thread(target=self._run, name="distvec-prefetch", daemon=True)
        self._thread.start()

    def result(self) -> Pulled:
        """Wait for the values; raises what the pull raised."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        if self._pulled is None:
            raise RuntimeError("the pull was cancelled, because the loop ended")
        return self._pulled

    def give_up(self) -> None:
        """Nobody wants the values."""
        self._given_up.set()

    def _run(self) -> None:
        loop_rank, target, wanted = self._work
        try:
            self._pulled = loop_rank.ask(target, wanted, self.clock, self._given_up.is_set)
        except Exception as error:  # noqa: BLE001 - raised where the values are wanted
            self._failure = error


_MOST_UNREAD = 10_000

Train = Callable[..., Any]
"""A training function: gets a ``Worker`` and a ``LoopArray`` for each array."""


@dataclass(frozen=True)
class Assignment:
    """What each task is told: the session, the loop, its arrays, and where to report."""

    access: SessionTicket
    loop: str
    size: int
    targets: tuple[SharedArray, ...]
    driver: tuple[str, int]
    driver_tls: Tls | None = None
    """How the driver is known."""
    began: int = 0
    """The clock at which the workers began."""
    barrier: BarrierSpec | None = None


def serve(
    assignment: Assignment, train: Train, rank: int, rows: Iterable[Any]
) -> Iterator[tuple[int, Any]]:
    """For ``mapPartitionsWithIndex``: the rank and what ``train`` returned.

    Nothing if the driver ended the loop meanwhile. The prints of ``train`` go to the driver.
    """
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("serve runs inside a Spark task; call run on the driver")
    try:
        client = join(assignment.access)
        attempt = context.taskAttemptId() + 1
        loop_rank = LoopRank(client.loop(assignment.loop), rank, attempt)
        barrier = None
        if assignment.barrier is not None:
            barrier = WorkerBarrier(
                client.loop(assignment.barrier.name), assignment.barrier, rank, attempt
            )
            barrier.arrive(loop_rank.now)
        return iter([(rank, _train(assignment, train, loop_rank, barrier, rows))])
    except (LoopClosed, SessionUnknown):
        return iter(())  # the driver wants no more of this task


def _train(
    assignment: Assignment,
    train: Train,
    loop_rank: LoopRank,
    barrier: WorkerBarrier | None,
    rows: Iterable[Any],
) -> Any:
    watch, done, failure = Stopwatch(), False, ""
    rows = iter(rows)
    worker = Worker(loop_rank, assignment.size, rows, watch, assignment.began, barrier)
    arrays = [LoopArray(loop_rank, target, watch) for target in assignment.targets]

    def tell(lines: Sequence[str]) -> WorkerReport:
        return WorkerReport(
            loop_rank.rank, loop_rank.attempt, worker.now, watch.take(), lines, done, failure
        )

    def connect() -> MessageClient:
        return MessageClient(
            assignment.driver, assignment.access.token, ANSWER_SECONDS, assignment.driver_tls
        )

    with (
        closing(Reporter(connect, tell)) as reporter,
        closing(LineWriter(reporter.print_line)) as out,
        redirect_stdout(out),
        redirect_stderr(out),
    ):
        try:
            result = train(worker, *arrays)
        except Exception as error:
            failure = Failure.of(loop_rank.rank, error).as_text()
            raise
        loop_rank.leave()
        if barrier is not None:
            barrier.leave()
        done = True
    # Spark uses a Python process again only if it has read all its input.
    deque(islice(rows, _MOST_UNREAD), maxlen=0)
    return result
