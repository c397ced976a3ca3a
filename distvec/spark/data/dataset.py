"""The driver's side of a partitioned data set: build it, check it, know its sums, remove it."""

from __future__ import annotations

import functools
import math
import os
import re
import uuid
import warnings
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext, StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from distvec.losses.labels import LabelRule
from distvec.spark.data.blocks import BlockMissing, remove
from distvec.spark.data.build import DESCRIPTOR_SCHEMA, BuildRequest, Descriptor, Prepare, build
from distvec.spark.data.columns import Columns, join_partitions, select_columns
from distvec.spark.data.rows import sizes_differ
from distvec.spark.jobs.application import (
    executor_ids,
    free_slots_by_executor,
    has_stopped,
    is_local,
    most_slots,
)
from distvec.spark.jobs.failures import describe_failure
from distvec.spark.jobs.interpreter import use_workers_of_sql

T = TypeVar("T")

_LOPSIDED = 2.0
"""So many times the turns that evenly spread blocks would need are too many."""

_CACHED_ON = re.compile(r"executor_[^,|()]*_([^_,|()]+)")


def is_lopsided(context: SparkContext, rdd: RDD[Any]) -> bool:
    """Would tasks over the cached partitions of ``rdd`` run much faster elsewhere?

    A few calls of the JVM.
    """
    places = context._jsc.sc().dagScheduler().getCacheLocs(rdd._jrdd.rdd()).mkString("|")
    found = [match[1] for each in places.split("|") if (match := _CACHED_ON.search(each))]
    return needs_moving(Counter(found), free_slots_by_executor(context))


def needs_moving(blocks: Counter[str], free: dict[str, int]) -> bool:
    """``blocks`` and ``free`` slots by executor: do the tasks take too many turns?"""
    total, slots = blocks.total(), sum(max(0, number) for number in free.values())
    if not total or not slots:
        return False
    if any(free.get(executor, 0) <= 0 for executor in blocks):
        return True
    turns = max(math.ceil(count / free[executor]) for executor, count in blocks.items())
    return turns > _LOPSIDED * math.ceil(total / slots)


_TRIES = 3

_STORE_IT = (
    "Rows that pass through rdd.repartition, rand() or a source that changes are not the same each "
    "time; store them first: df = df.checkpoint(), or write and read a file"
)
_CHANGED = "(other rows than those that were known)"


class LabelMoments(NamedTuple):
    """Sums over all rows."""

    weight: float
    squares: float
    """Of the weights."""
    mean: float
    """Of the labels, weighted."""
    spread: float
    """Weighted squares of the labels' differences from their mean."""

    @classmethod
    def of(cls, known: Sequence[Descriptor]) -> LabelMoments:
        """Merged (Chan, Golub, LeVeque, 1983)."""
        weight = math.fsum(one.weight_sum for one in known)
        mean = math.fsum(one.weight_sum * one.label_mean for one in known) / weight
        spread = math.fsum(
            one.label_squares + one.weight_sum * (one.label_mean - mean) ** 2 for one in known
        )
        return cls(weight, math.fsum(one.weight_squares for one in known), mean, spread)


@dataclass(frozen=True)
class Groups:
    """Partitions shared out among tasks: in the same way in all jobs, and for all attempts."""

    rdd: RDD[Descriptor]
    members: list[list[int]]
    """By task: the numbers of its partitions that have rows, ascending."""

    def run(self, task: Callable[[Iterable[Descriptor]], Iterable[T]]) -> list[T]:
        """One Spark job: ``task`` on the descriptors of each group."""
        return collect(self.rdd.mapPartitions(task))


class PartitionedRows(ABC):
    """Labelled rows that tasks keep by partition: what is known of them, and tasks over them."""

    def __init__(self, known: list[Descriptor], rule: LabelRule) -> None:
        """``ValueError`` for bad rows, as ``check_descriptors``."""
        self.labels = check_descriptors(known, rule)
        """The distinct labels, as they are in the data, if the rule gathers them."""
        self.held_out = sum(one.held_out for one in known)
        """How many rows do not train; ``rows`` are the others."""
        self.rows = sum(one.rows for one in known) - self.held_out
        self.nnz = sum(one.nnz for one in known)
        self.size = known[0].features
        self.weight_sum = float(sum(one.weight_sum for one in known))
        self._known = known
        self._describe(known)

    @property
    def label_moments(self) -> LabelMoments:
        """Of the labels of all rows, which were summed when the rows were read."""
        return LabelMoments.of(self._known)

    def _describe(self, known: list[Descriptor]) -> None:
        self.filled = len(known)
        """How many partitions have rows."""
        self.layouts = {one.partition: one.layout for one in known}
        """By partition that has rows: in which order products take its elements, and why."""

    @abstractmethod
    def run_on_blocks(self, task: Callable[[Descriptor], T]) -> list[T]:
        """``task`` on the descriptor of each partition with rows, in their order."""

    @abstractmethod
    def retry_missing(self, attempt: Callable[[], T]) -> T:
        """What ``attempt`` returns, once all rows are there."""

    @abstractmethod
    def settle(self, servers: object) -> None:
        """Move rows to where tasks can run, if executors or ``servers`` came or went."""

    def waiting_tasks(self, work: Any) -> Any:
        """Those of the tasks that keep the rows which wait for evaluations of a loss."""
        raise TypeError(f"{type(self).__name__} has no tasks that wait")

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Did ``close`` remove it?"""

    @abstractmethod
    def close(self) -> None:
        """Remove the rows; twice is harmless."""


class FrameStandIn(ABC):
    """Takes the place of a DataFrame where its rows are read by other means."""

    context: Any = None
    """The ``PSContext`` of its rows."""

    @property
    @abstractmethod
    def sparkSession(self) -> Any:
        """Takes the place of the session."""

    @abstractmethod
    def read(
        self, columns: Columns, rule: LabelRule, dtype: str, order: str, *, compact: bool
    ) -> PartitionedRows:
        """The rows; arguments as of ``Dataset``."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotImplementedError(
            f"DataFrame.{name} is not available in a fit through Spark Connect, which runs in "
            "tasks; use a classic SparkSession"
        )


class Dataset(PartitionedRows):
    """Labelled rows as blocks on the executors, ``size`` features each.

    Making one runs one Spark job, which reads the data once and checks every row. ``rows``,
    ``size`` and ``weight_sum`` are then known. The data must give the same rows if Spark computes
    it again, in any order: the blocks, and what is summed over them, are then the same to the bit.
    Should the rows move between partitions, all is read again, with a warning; should there be
    others, that is an error.
    """

    def __init__(
        self,
        data: DataFrame,
        columns: Columns,
        rule: LabelRule,
        dtype: str = "float64",
        order: str = "",
        *,
        compact: bool = False,
        prepare: Prepare | None = None,
    ) -> None:
        """``prepare`` makes the columns of all rows of a partition, in the task that reads them."""
        self.spark: SparkSession = data.sparkSession
        self._is_local = is_local(self.spark.sparkContext.master)
        self._name = f"distvec-{uuid.uuid4().hex}"
        self._directories: set[str] = set()
        self._rdd: RDD[Any] | None = None
        self._grouped_by = 0
        """Tasks that the partitions were last shared out among, as there were fewer."""
        self._digests: dict[int, int] | None = None
        """By partition that has rows."""
        self._has_warned = False
        self._paths: list[str] = []
        self._settled: tuple[object, str] | None = None
        features = columns.feature_names, columns.with_missing, columns.as_table
        request = BuildRequest(self._name, rule, dtype, order, compact, *features, prepare)
        rows = select_columns(data, columns, order) if prepare is None else data
        joined = join_partitions(rows, most_slots(self.spark.sparkContext))
        self._source = joined.mapInArrow(functools.partial(build, request), DESCRIPTOR_SCHEMA)
        try:
            known = self._materialise()
            super().__init__(known, rule)
        except BaseException:
            self.close()
            raise
        self._learn(known)
        if self._is_local:
            # No call to Spark from a finalizer: it may run in the midst of another.
            weakref.finalize(self, remove, sorted(self._directories))

    def run(self, task: Callable[[Iterable[Descriptor]], Iterable[T]]) -> list[T]:
        """One Spark job: ``task`` on the descriptors of the partitions that were read together."""
        return collect(self.check_usable().mapPartitions(task))

    def run_on_blocks(self, task: Callable[[Descriptor], T]) -> list[T]:
        """One Spark job: ``task`` on the descriptor of each partition with rows, in their order.

        Raises BlockMissing if one did.
        """
        results = self.run(functools.partial(_on_blocks, task))
        missing = [one.path for _, one in results if isinstance(one, _Missing)]
        if missing:
            raise BlockMissing(missing[0])
        results.sort(key=itemgetter(0))
        return [one for _, one in results if not isinstance(one, _Missing)]

    @property
    def tasks(self) -> int:
        """How many tasks read the rows, each those of one partition or of several."""
        return 0 if self._rdd is None else self._rdd.getNumPartitions()

    def group(self, tasks: int) -> Groups:
        """The partitions shared out among ``tasks`` tasks at most. One Spark job, or none.

        On a cluster it is a job so that Spark reads again what was lost before tasks that stay need
        it: they hold the slots which that takes.
        """
        fewer = tasks < self.tasks
        self._grouped_by = tasks if fewer else 0
        rdd = self._numbered(tasks if fewer else None)
        if self._is_local and not fewer:
            return Groups(rdd, [list(members) for members in self._members])
        return Groups(rdd, collect(rdd.mapPartitions(_numbers)))

    @property
    def is_closed(self) -> bool:
        """Did ``close`` remove it?"""
        return self._rdd is None

    def check_usable(self) -> RDD[Descriptor]:
        """The descriptors; ValueError or RuntimeError that says why they cannot be had."""
        return self._numbered(None)

    def _numbered(self, tasks: int | None) -> RDD[Descriptor]:
        if self._rdd is None:
            raise ValueError("the data was closed; make a new objective from the DataFrame")
        if has_stopped(self.spark.sparkContext):
            raise RuntimeError("the SparkContext of the data was stopped; make a new objective")
        rdd = self._rdd if tasks is None else self._rdd.coalesce(tasks)
        return rdd.mapPartitions(functools.partial(_as_known, self._digests or {}))

    def retry_missing(self, attempt: Callable[[], T]) -> T:
        """What ``attempt`` returns, once it raises BlockMissing no more.

        In between the data is read again; RuntimeError if that helps nothing.
        """
        for _ in range(_TRIES):
            try:
                return attempt()
            except BlockMissing:
                self.rebuild()
        raise RuntimeError(
            f"blocks were missing on their executors after {_TRIES} rebuilds; the executors seem "
            "to be lost faster than they read the data"
        )

    def rebuild(self) -> None:
        """Read the data again: a block was not where its task ran, or not the one that was known.

        Where tasks have several partitions, Spark may give one those of several hosts. So each
        group's are read by one task then, and stay together. RuntimeError if there are other rows
        than before.
        """
        # Wait until the old descriptors are dropped, or they would be found again.
        self._unpersist(wait=True)
        before, self._digests = self._digests or {}, None
        try:
            known = self._materialise()
        except BaseException:
            self._digests = before
            raise
        self._compare(before, known)
        old, self._paths = self._paths, []
        self._learn(known)
        self._remove(old)

    def settle(self, servers: object) -> None:
        """Read the data again where tasks can run, if executors or ``servers`` came or went since
        the last call, so that blocks are now on executors without a free slot, or on few of them.

        ``servers`` is anything that differs once a server was replaced. Two calls of the JVM.
        """
        if self._is_local or self._rdd is None or has_stopped(self.spark.sparkContext):
            return
        now = servers, executor_ids(self.spark.sparkContext)
        if self._settled is None or self._settled == now:
            self._settled = now
            return
        self._settled = now
        if is_lopsided(self.spark.sparkContext, self._rdd):
            self.rebuild()

    def close(self) -> None:
        """Remove the files and the cached descriptors; twice is harmless."""
        self._unpersist(wait=False)
        directories = sorted(self._directories)
        self._directories.clear()
        self._remove(directories)

    def _remove(self, directories: list[str]) -> None:
        if self._is_local:
            remove(directories)
        elif directories and not has_stopped(self.spark.sparkContext):
            # Each task removes what its machine has. What is missed goes when Spark stops.
            context = self.spark.sparkContext
            tasks = 2 * context.defaultParallelism
            context.parallelize(range(tasks), tasks).foreach(
                functools.partial(_remove_here, directories)
            )

    def _materialise(self) -> list[Descriptor]:
        rdd: RDD[Any] = self._source.rdd
        if self._grouped_by and not self._is_local:
            rdd = rdd.coalesce(self._grouped_by)
        self._rdd = rdd.persist(StorageLevel.MEMORY_AND_DISK)
        known = [Descriptor.decode(text) for (text,) in collect(self._rdd)]
        self._directories.update(os.path.dirname(one.path) for one in known if one.path)
        return sorted(known)

    def _learn(self, known: list[Descriptor]) -> None:
        self._digests = {one.partition: one.digest for one in known}
        self._paths = [one.path for one in known]
        self._members: list[list[int]] = [[] for _ in range(self.tasks)]
        for one in known:
            self._members[one.task].append(one.partition)
        self._describe(known)

    def _compare(self, before: dict[int, int], known: list[Descriptor]) -> None:
        """Warn once if rows are elsewhere than before; RuntimeError if they are others."""
        now = {one.partition: one.digest for one in known}
        if (sum(now.values()) - sum(before.values())) % 2**64:
            self._digests = before
            raise RuntimeError(
                f"the data changed when Spark recomputed it: {sum(one.rows for one in known)} "
                f"rows, not the same {self.rows + self.held_out} as at first. {_STORE_IT}"
            )
        if now != before and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                "Spark computed the data again and put its rows in other partitions, so sums over "
                f"them may differ from those before in the last bits. {_STORE_IT}",
                RuntimeWarning,
                stacklevel=2,
            )

    def _unpersist(self, *, wait: bool) -> None:
        if self._rdd is not None and not has_stopped(self.spark.sparkContext):
            self._rdd.unpersist(blocking=wait)
        self._rdd = None


def collect(rdd: RDD[T]) -> list[T]:
    """``rdd.collect()``; RuntimeError with the reason in a line if its job fails."""
    try:
        use_workers_of_sql(rdd)
        return rdd.collect()
    except (PySparkException, Py4JJavaError) as error:
        raise RuntimeError(f"a Spark job failed: {describe_failure(error)}") from error


def check_descriptors(known: list[Descriptor], rule: LabelRule) -> list[float]:
    """The distinct labels that the rule gathers.

    ValueError for the first bad row, or for partitions that do not go together.
    """
    for one in known:
        if one.error:
            raise ValueError(one.error)
    if not known:
        raise ValueError("the data has no rows; a loss needs at least one")
    if all(one.held_out == one.rows for one in known):
        raise ValueError("all rows are held out; a loss needs at least one to train")
    for one in known:
        if one.features != known[0].features:
            reason = sizes_differ(one.features, known[0].features)
            raise ValueError(f"partition {one.partition}, row 0: {reason}")
    labels = rule.check_all({one.partition: one.labels for one in known})
    if not sum(one.weight_sum for one in known) > 0.0:
        raise ValueError("the weights sum to 0; at least one must be positive")
    return labels


@dataclass(frozen=True)
class _Missing:
    """The block of that path was not where its task ran. No exception: Spark would repeat it."""

    path: str


def _on_blocks(
    task: Callable[[Descriptor], T], descriptors: Iterable[Descriptor]
) -> Iterator[tuple[int, T | _Missing]]:
    for one in descriptors:
        try:
            yield one.partition, task(one)
        except BlockMissing:
            yield one.partition, _Missing(one.path)


def _as_known(digests: dict[int, int], rows: Iterable[Any]) -> Iterator[Descriptor]:
    """One whose rows are others than those known has no files, so that all is read again."""
    for (text,) in rows:
        descriptor = Descriptor.decode(text)
        is_known = descriptor.digest == digests.get(descriptor.partition)
        yield descriptor if is_known else descriptor._replace(path=_CHANGED, rows=1)


def _numbers(group: Iterable[Descriptor]) -> list[list[int]]:
    return [sorted(one.partition for one in group)]


def _remove_here(directories: list[str], _: int) -> None:
    remove(directories)
