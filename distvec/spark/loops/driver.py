"""What the driver does while a loop runs: show and print, exclude, and see that all is well."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty
from typing import Any

from pyspark import RDD

from distvec.spark.callers import levels_to_user
from distvec.spark.context import PSContext
from distvec.spark.jobs.application import reason_of
from distvec.spark.jobs.background import BackgroundJob, SlotWatch
from distvec.spark.jobs.failures import Failure
from distvec.spark.loops.gate import GateOrders, Keeping
from distvec.spark.loops.reports import Listener
from distvec.spark.loops.task import Assignment, Train, serve
from distvec.spark.loops.view import Screen, View
from ps_backend.client import Loop, SharedArray
from ps_backend.errors import LoopClosed, PSError, ServerLost

_LOOK_SECONDS = 0.1
_MOST_REPORTS = 1000
"""The driver looks up so often, or after so many reports: for Ctrl-C, and for a job that ended."""

_SERVERS_SECONDS = 2.0
"""It asks the servers so often whether they still have the loop."""

_START_SECONDS = 30.0
"""Tasks that have no slot for so long are not waited for, if others may wait for them."""


class Driver:
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
        self._gate: GateOrders | None = None
        self._keeping: Keeping | None = None
        self._view = View(size)
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
        self._gate = GateOrders(f"{self.loop.name}-gate", every, filled[0])

        def keep_all(times: int) -> None:
            if not self._view.has_given_up:  # one that comes back would come in between
                keep(times)

        gate = self._ps.client.loop(self._gate.name)
        self._keeping = Keeping(gate, self._size, filled[0], keep_all)

    def start(self, train: Train, rdd: RDD[Any]) -> None:
        """Open the loop on the servers and start the job."""
        context = self._ps.spark_context
        self.loop.open(self._size, self._staleness)
        conf, access = context.getConf(), self._ps.access
        host = conf.get("spark.driver.host") or "127.0.0.1"
        bind = conf.get("spark.driver.bindAddress") or host
        self._listener = Listener(host, bind, access.token)
        arrays, driver = tuple(self._arrays), self._listener.address
        assignment = Assignment(
            access, self.loop.name, self._size, arrays, driver, self._began, self._gate
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
            if self._keeping is not None and self._keeping.failure is not None:
                raise self._keeping.failure
        self._look_at_the_rest(shown)
        results = job.result or []
        if len(results) != self._size:
            self._check_servers(0.0)
            reason = "its tasks ended early" if job.failure is None else reason_of(job.failure)
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
        self._close_gate()
        self.loop.close()

    def stop(self) -> None:
        """End the loop and its tasks, some seconds at most."""
        self._close_gate()
        with suppress(PSError):  # the servers are gone, and the loop with them
            self.loop.close()
        if self._job is not None:
            self._job.stop()
        self._close_listener()

    def _close_gate(self) -> None:
        if self._keeping is not None:
            self._keeping.close()

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
                f"worker {rank} is slow: {mine:.3g} s a clock, the others {usual:.3g} s; the loop "
                "waits for it as far as staleness says",
                stacklevel=levels_to_user(),
            )

    def _exclude_silent(self) -> None:
        for rank, attempt in self._view.silent(time.monotonic(), self._patience):
            self.loop.exclude(rank, attempt)
            if self._keeping is not None:
                self._keeping.exclude(rank, attempt)
            warnings.warn(
                f"worker {rank} was not heard of for {self._patience:g} s; the others go on "
                "without it until it comes back",
                stacklevel=levels_to_user(),
            )

    def _check_slots(self, slots: SlotWatch) -> None:
        """Raise if workers that others may wait for, or all of them, get no slot."""
        began = self._view.missing < self._size
        if not self._view.missing or (began and self._staleness is None):
            return
        if slots.lacks(self._size if began else 1):
            raise RuntimeError(
                f"the loop needs {self._size} slots at once, and {slots.active} of its tasks had "
                f"one for {_START_SECONDS:g} s; end other Spark jobs, or give fewer partitions: "
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
                f"the loop lost a server, and with it a part of array {', '.join(named)}; the "
                f"arrays given to run still stand for their values of before: {error}"
            ) from error
        self._asked = time.monotonic()
