"""``ps.accumulate``: a round with its job, run again by itself where that heals what broke it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from distvec import DistArray
from distvec.graph.node import NodeSnapshot
from distvec.keyed.array import KeyedArray
from distvec.spark.jobs.application import is_local
from distvec.spark.jobs.failures import Failure, describe_failure, tasks_were_lost, user_stacklevel
from distvec.spark.jobs.interpreter import use_driver_python
from distvec.spark.rounds.contribute import Contributor, KeyedContributor
from distvec.spark.rounds.round import RanInStages, Shared, check_arrays, check_keyed, open_round
from distvec.spark.task_session import TaskSession
from ps_backend.errors import PSError, ServerLost

Function = Callable[[Iterator[Any]], Any]
"""Of the rows of a partition: what it adds."""

Key = int | str
"""Of an array among several: its place, or its name in a dict."""


@dataclass(frozen=True)
class Accumulation:
    """A task: ``function`` of the rows, contributed to several arrays by their keys, or ``alone``
    to one."""

    function: Function
    contributors: Mapping[Key, Contributor | KeyedContributor]
    alone: bool
    attempts: int
    """Spark tries a task so often before it gives up the job."""

    def __call__(self, rows: Iterable[Any]) -> Iterator[Failure]:
        """For ``mapPartitions``: a failure if there is one.

        Exceptions that Spark will try again are left to it.
        """
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("this runs inside a Spark task; call ps.accumulate on the driver")
        try:
            self._contribute(self.function(iter(rows)))
        except ServerLost as error:
            yield Failure.of(context.partitionId(), error)  # the round has to begin anew
        except Exception as error:
            if context.attemptNumber() + 1 < self.attempts:
                raise
            yield Failure.of(context.partitionId(), error)

    def _contribute(self, result: Any) -> None:
        if isinstance(result, Iterator):
            for one in result:
                self._contribute(one)
        elif result is not None:
            keys = list(self.contributors)
            for key, one in ({keys[0]: result} if self.alone else _by_key(result, keys)).items():
                if one is not None:
                    _push(self.contributors[key], one)


def _push(contributor: Contributor | KeyedContributor, given: Any) -> None:
    """Contribute a pair of indices or keys and values, or values for all of a plain array."""
    if isinstance(contributor, KeyedContributor):
        if not isinstance(given, tuple) or len(given) != 2:
            size = f" of {len(given)}" if isinstance(given, tuple) else ""
            what = f"{type(given).__name__}{size}"
            raise TypeError(
                f"the function returned a {what}; to a keyed array return (keys, values)"
            )
        contributor.push(*given)
    elif not isinstance(given, tuple):
        contributor.push(None, given)
    elif len(given) == 2:
        contributor.push(*given)
    else:
        raise TypeError(
            f"the function returned a tuple of {len(given)}; return (indices, values), or an array "
            "of values for all"
        )


def _by_key(result: Any, keys: Sequence[Key]) -> dict[Any, Any]:
    """What is contributed to each of several arrays."""
    if isinstance(keys[0], str):
        if isinstance(result, Mapping) and set(result) <= set(keys):
            return dict(result)
        what = sorted(result) if isinstance(result, Mapping) else type(result).__name__
        raise TypeError(f"the function returned {what}; return a dict with some of {keys}")
    if isinstance(result, tuple) and len(result) == len(keys):
        return dict(enumerate(result))
    what = f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
    raise TypeError(
        f"the function returned {what}; return a tuple of {len(keys)}, with the contribution to "
        "each array, or None"
    )


RERUNS = 3
"""A round that breaks is run again so often."""

Into: TypeAlias = Shared | Sequence[Shared] | Mapping[str, Shared]

_LOCAL_FAILURES = re.compile(r"local\[[^,]*,\s*(\d+)\s*\]")
_CLUSTER_FAILURES = 4


class JobLost(RuntimeError):
    """A Spark job was given up because processes were lost."""


@dataclass(frozen=True)
class Target:
    """An array to add to, and what it is before."""

    key: Key
    name: str
    """In messages."""
    array: DistArray
    before: NodeSnapshot
    params: tuple[Any, ...]

    @classmethod
    def of(cls, key: Key, name: str, array: DistArray) -> Target:
        """To be made before anything runs."""
        with array.session.holders.lock:
            node = array.node
            return cls(key, name, array, array.session.graph.snapshot(node), node.params)

    def renew(self) -> None:
        """Let the array stand for its old value once more, where a server was lost meanwhile.

        What had not been computed is computed again. ServerLost if a part of the value is gone.
        """
        array, old, graph = self.array, self.before, self.array.session.graph
        if old.value is None:
            with array.write_lock, array.session.holders.lock:
                array.rebind(graph.make(old.op, old.args, array.node.type, self.params))
        try:
            array.session.evaluate(array.sum())
        except PSError as error:
            raise ServerLost(
                f"a server was lost with a part of {self.name}, so the round cannot be repeated; "
                f"create the array again, and call accumulate with it ({error})"
            ) from error


@dataclass(frozen=True)
class KeyedTarget:
    """A keyed array to add to."""

    key: Key
    name: str
    """In messages."""
    array: KeyedArray

    def renew(self) -> None:
        """After a server was lost: each of them holds some of the keys, so there is no old value.

        ServerLost, always.
        """
        raise ServerLost(
            f"a server was lost with some keys of {self.name}, so the round cannot be repeated; "
            "restore the keyed space (ps.restore(path) or ps.load(path)) or create it again, and "
            "call accumulate with its arrays"
        )


def accumulate(
    ps: TaskSession, data: RDD[Any] | DataFrame, function: Function, into: Into, op: str
) -> None:
    """See ``PSContext.accumulate``."""
    targets = _targets(ps, into)
    rdd = _rows(ps.spark_context, data)
    if rdd.getNumPartitions() == 0:
        return
    for left in reversed(range(RERUNS + 1)):
        known = ps.generations
        try:
            _run(ps, rdd, function, targets, op)
            return
        except (PSError, RanInStages, JobLost) as error:
            lost = isinstance(error, ServerLost) or ps.generations != known
            if not left or (isinstance(error, PSError) and not (lost and ps.generations)):
                raise
            reason = str(error)
        if lost:
            for target in targets:
                target.renew()
        warnings.warn(
            f"the round of accumulate failed and is repeated: {reason}",
            RuntimeWarning,
            stacklevel=user_stacklevel(),
        )


def _run(
    ps: TaskSession,
    rdd: RDD[Any],
    function: Function,
    targets: Sequence[Target | KeyedTarget],
    op: str,
) -> None:
    """One round with one action."""
    with open_round(ps, [target.array for target in targets], op) as given:
        several = given if isinstance(given, tuple) else (given,)
        contributors = {
            target.key: contributor for target, contributor in zip(targets, several, strict=True)
        }
        alone = targets[0].name == "into"
        task = Accumulation(function, contributors, alone, _attempts(ps.spark_context))
        failures = _collect(rdd.mapPartitions(task))
        if failures:
            _raise(min(failures))


def _collect(rdd: RDD[Failure]) -> list[Failure]:
    """What the tasks say. RuntimeError with the reason in a line if the job fails."""
    try:
        return [Failure(*one) for one in rdd.collect()]
    except (PySparkException, Py4JJavaError) as error:
        kind = JobLost if tasks_were_lost(error) else RuntimeError
        failed = kind(f"the Spark job of accumulate failed: {describe_failure(error)}")
    raise failed  # outside of the block, or Java's trace would go along


def _raise(failure: Failure) -> None:
    """Raise what a task raised."""
    where = f"in the task of partition {failure.partition}"
    if failure.lost:
        raise ServerLost(f"{where}: {failure.summary}")
    failure.throw(where, "into keeps its value.")


def _targets(ps: TaskSession, into: Into) -> list[Target | KeyedTarget]:
    """The arrays with their keys. TypeError or ValueError if they cannot be added to."""
    alone = isinstance(into, DistArray | KeyedArray)
    if isinstance(into, Mapping):
        pairs: list[tuple[Key, Shared]] = list(into.items())
    else:
        pairs = list(enumerate(into if isinstance(into, Sequence) else [into]))
    if not pairs:
        raise TypeError("accumulate needs at least one array: ps.accumulate(rdd, f, into=g)")
    check_arrays(ps, [array for _, array in pairs if not isinstance(array, KeyedArray)])
    found: list[Target | KeyedTarget] = []
    for key, array in pairs:
        name = "into" if alone else f"into[{key!r}]"
        if isinstance(array, KeyedArray):
            check_keyed(ps, array)
            found.append(KeyedTarget(key, name, array))
        else:
            found.append(Target.of(key, name, array))
    return found


def _rows(context: SparkContext, data: RDD[Any] | DataFrame) -> RDD[Any]:
    """The rows as an RDD; those of a DataFrame are of class Row."""
    if not isinstance(data, (RDD, DataFrame)):
        raise TypeError(
            f"accumulate needs an RDD or a DataFrame, got {type(data).__name__}; make one: "
            "spark.sparkContext.parallelize(rows)"
        )
    use_driver_python(data)
    rdd = data.rdd if isinstance(data, DataFrame) else data
    if rdd.context is not context:
        raise ValueError("the data belongs to another SparkContext than the PSContext")
    return rdd


def _attempts(context: SparkContext) -> int:
    """How often Spark tries a task that fails."""
    if is_local(context.master):
        named = _LOCAL_FAILURES.fullmatch(context.master or "")
        return int(named[1]) if named else 1
    return int(context.getConf().get("spark.task.maxFailures") or _CLUSTER_FAILURES)
