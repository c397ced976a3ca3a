"""The task side of ``ps.accumulate``: contribute what a function returns for a partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext

from distvec.spark.jobs.failures import Failure
from distvec.spark.rounds.contribute import Contributor
from distvec.spark.rounds.keyed import KeyedContributor
from ps_backend.errors import ServerLost

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
        f"the function returned {what}; return a tuple of {len(keys)}, with what is added to each "
        "array, or None"
    )
