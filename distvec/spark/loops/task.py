"""The task side of ``run``: join the loop, train, and tell the driver what happens."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pyspark import TaskContext

from distvec.spark.access import Access, join
from distvec.spark.jobs.failures import Failure
from distvec.spark.loops.gate import Gate, GateOrders
from distvec.spark.loops.reports import LineWriter, Reporter, WorkerReport
from distvec.spark.loops.worker import LoopArray, Stopwatch, Worker
from ps_backend.client import LoopRank, SharedArray
from ps_backend.errors import LoopClosed, SessionUnknown

_MOST_UNREAD = 10_000

Train = Callable[..., Any]
"""A training function: gets a ``Worker`` and a ``LoopArray`` for each array."""


@dataclass(frozen=True)
class Assignment:
    """What each task is told: the session, the loop, its arrays, and where to report."""

    access: Access
    loop: str
    size: int
    targets: tuple[SharedArray, ...]
    driver: tuple[str, int]
    began: int = 0
    """The clock at which the workers began."""
    gate: GateOrders | None = None


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
        gate = None
        if assignment.gate is not None:
            gate = Gate(client.loop(assignment.gate.name), assignment.gate, rank, attempt)
            gate.arrive(loop_rank.now)
        return iter([(rank, _train(assignment, train, loop_rank, gate, rows))])
    except (LoopClosed, SessionUnknown):
        return iter(())  # the driver wants no more of this task


def _train(
    assignment: Assignment,
    train: Train,
    loop_rank: LoopRank,
    gate: Gate | None,
    rows: Iterable[Any],
) -> Any:
    watch, done, failure = Stopwatch(), False, ""
    rows = iter(rows)
    worker = Worker(loop_rank, assignment.size, rows, watch, assignment.began, gate)
    arrays = [LoopArray(loop_rank, target, watch) for target in assignment.targets]

    def tell(lines: Sequence[str]) -> WorkerReport:
        return WorkerReport(
            loop_rank.rank, loop_rank.attempt, worker.now, watch.take(), lines, done, failure
        )

    key = assignment.access.token
    with (
        closing(Reporter(assignment.driver, key, tell)) as reporter,
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
        if gate is not None:
            gate.leave()
        done = True
    # Spark uses a Python process again only if it has read all its input.
    deque(islice(rows, _MOST_UNREAD), maxlen=0)
    return result
