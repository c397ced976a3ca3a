"""The client's side of a barrier job: its settings, its deadline, and its result.

Spark Connect offers no RDD, no accumulators and no way to the executors. So all of a fit is in one
barrier job: its tasks start the servers, keep the rows, and the first one runs the solver.
"""

from __future__ import annotations

import io
import pickle
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from distvec.losses.labels import LabelRule
from distvec.spark.barrier.rank import Outcome, run_rank
from distvec.spark.barrier.settings import CONF, Settings, count_slots, timeout_of
from distvec.spark.context import SessionStandIn
from distvec.spark.data.build import BuildRequest
from distvec.spark.data.columns import Columns, select_columns
from distvec.spark.data.dataset import FrameStandIn, PartitionedRows
from distvec.spark.jobs.failures import describe_failure, tasks_were_lost, user_stacklevel

T = TypeVar("T")

_SLOT_SECONDS = 60.0
_TRIES = 3
_RESULT_SCHEMA = "number long, data binary"


class _RowsKnown(Exception):
    """Which rows a function reads, and how."""

    def __init__(self, rows: DataFrame, request: BuildRequest, rule: LabelRule) -> None:
        super().__init__()
        self.rows, self.request, self.rule = rows, request, rule


class _Plan(FrameStandIn):
    """Takes the place of the frame until it is known which of its columns are read."""

    def __init__(self, frame: DataFrame, tasks: int) -> None:
        self._frame, self._tasks = frame, tasks

    @property
    def sparkSession(self) -> SessionStandIn:
        """Takes the place of the session."""
        return SessionStandIn(None)

    def read(
        self, columns: Columns, rule: LabelRule, dtype: str, order: str, *, compact: bool
    ) -> PartitionedRows:
        """Raises ``_RowsKnown``: the tasks read."""
        rows = select_columns(self._frame, columns, order, self._tasks)
        numbered = rows.select(F.spark_partition_id().alias("partition"), "*")
        # Rows of one partition stay together, in their order.
        number = F.col("partition") % self._tasks
        name = f"distvec-{uuid.uuid4().hex}"
        known = columns.feature_names, columns.with_missing, columns.as_table
        request = BuildRequest(name, rule, dtype, order, compact, *known)
        raise _RowsKnown(numbered.repartitionById(self._tasks, number), request, rule)


def run_in_tasks(frame: DataFrame, read: Callable[[Any], Any], work: Callable[[Any], T]) -> T:
    """Run ``work(frame)`` in the first task of a barrier job over the rows; return its result.

    ``read(frame)`` reads the rows, as ``work`` does; it is called here to see which ones. Both get
    a stand-in for the frame. ``RuntimeError`` if the job fails, ``TimeoutError`` if its tasks get
    no slots. Exceptions of ``work`` are raised as they are.
    """
    session: Any = frame.sparkSession
    seconds = timeout_of(session)
    with _slots_in_time(session, seconds, "a job that counts the slots for a fit got none"):
        slots = count_slots(session)
    settings = Settings.of(session, slots, seconds)
    try:
        read(_Plan(frame, settings.tasks))
    except _RowsKnown as known:
        rows, request, rule = known.rows, known.request, known.rule
    else:
        raise NotImplementedError("without RDDs a fit must read the rows once")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_rank(settings, request, rule, work, batches)

    made = rows.mapInArrow(run, _RESULT_SCHEMA, barrier=True)
    for attempt in range(_TRIES):
        try:
            with _slots_in_time(session, seconds, f"the {settings.tasks} tasks of a fit got none"):
                table = made.toArrow()
            break
        except PySparkException as error:
            if attempt + 1 < _TRIES and tasks_were_lost(error):
                continue
            raise RuntimeError(f"the barrier job failed: {describe_failure(error)}") from error
    outcome = _decode(table, frame)
    for kind, text in outcome.warnings:
        warnings.warn(text, kind, stacklevel=user_stacklevel())
    if outcome.failure is not None:
        outcome.failure.throw("in the first task of a fit", "the trace is that of the task")
    found: T = outcome.value
    return found


@contextmanager
def _slots_in_time(session: Any, seconds: float, who: str) -> Iterator[None]:
    """Around a job of this thread; ``TimeoutError`` if it gets no slots in time."""
    watch = _SlotWatch(session, seconds)
    session.addTag(watch.tag)
    session.registerProgressHandler(watch.look)
    try:
        yield
    except PySparkException as error:
        if watch.is_over:
            raise TimeoutError(
                f"{who} in {watch.patience:g} s; its tasks run at the same time: end other jobs of "
                f"the application, or lower {CONF}tasks"
            ) from error
        raise
    except KeyboardInterrupt:
        session.interruptTag(watch.tag)
        raise
    finally:
        session.removeProgressHandler(watch.look)
        session.removeTag(watch.tag)


class _SlotWatch:
    """Ends a job whose tasks wait for slots in vain."""

    def __init__(self, session: Any, seconds: float) -> None:
        self._session = session
        self.tag = f"distvec-{uuid.uuid4().hex}"
        self.patience = min(_SLOT_SECONDS, seconds)
        self.is_over = False
        self._since, self._thread = time.monotonic(), threading.get_ident()

    def look(self, *, inflight_tasks: int, done: bool, **_: Any) -> None:
        """For ``registerProgressHandler``: the thread of a job calls it each second or two."""
        if threading.get_ident() != self._thread:  # another job of the session
            return
        now = time.monotonic()
        if inflight_tasks or done:
            self._since = now
        elif now - self._since > self.patience and not self.is_over:
            self.is_over = True
            with suppress(PySparkException):
                self._session.interruptTag(self.tag)


# --- results --------------------------------------------------------------------------------------


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, frame: DataFrame) -> None:
        super().__init__(io.BytesIO(data))
        self._frame = frame

    def persistent_load(self, name: str) -> DataFrame:
        return self._frame


def _decode(table: pa.Table, frame: DataFrame) -> Outcome:
    pieces = table.sort_by("number").column("data").to_pylist()
    if not pieces:
        raise RuntimeError("the barrier job returned no result")
    return Outcome(*_Unpickler(b"".join(pieces), frame).load())
