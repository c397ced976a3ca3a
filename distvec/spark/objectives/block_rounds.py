"""Spark jobs over the blocks of a data set, in which each task contributes to an array."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from distvec import DistArray
from distvec.spark.context import PSContext
from distvec.spark.data.build import Descriptor
from distvec.spark.data.dataset import PartitionedRows
from distvec.spark.jobs.failures import Failure, user_stacklevel
from distvec.spark.objectives.evaluation_task import LoadedPartitions
from distvec.spark.objectives.partition import Selection
from distvec.spark.rounds.contribute import Contributor
from distvec.spark.task_session import SessionTicket, join, singleton
from ps_backend.client import Client
from ps_backend.errors import PSError, ServerLost

T = TypeVar("T")

BlockTask = Callable[[Client, Selection, Contributor], T]
"""Of the rows of a partition: it pulls and contributes, and returns a small answer."""

_TRIES = 3


def run_in_round(
    ps: PSContext, rows: PartitionedRows, zeros: Callable[[], DistArray], task: BlockTask[T]
) -> tuple[DistArray, list[T]]:
    """The array that tasks contribute to, and their answers by partition. One Spark job.

    ``zeros`` makes the array. Raises ``ServerLost``, and what ``task`` raises.
    """

    def attempt() -> tuple[DistArray, list[T]]:
        found = zeros()
        with ps.round(found) as r:
            answers = rows.run_on_blocks(partial(_run, ps.access, r, task))
            return found, [_checked(one) for one in answers]

    return rows.retry_missing(attempt)


def _run(
    access: SessionTicket, r: Contributor, task: BlockTask[T], descriptor: Descriptor
) -> T | Failure:
    """The loss of a server is returned: Spark would try the task again."""
    try:
        loaded = singleton(LoadedPartitions).get(descriptor.path)
        return task(join(access), loaded.selection(None, descriptor.partition), r)
    except ServerLost as error:
        return Failure.of(descriptor.partition, error)


def _checked(answer: T | Failure) -> T:
    """Raise what a task raised."""
    if isinstance(answer, Failure):
        answer.throw(f"in the task of partition {answer.partition}", "the arrays are unchanged.")
    return answer


def restart_if_lost(ps: PSContext, attempt: Callable[[], T], name: str) -> T:
    """What ``attempt`` returns, started again with a warning if a server was lost meanwhile."""
    for left in reversed(range(_TRIES)):
        lives = ps.generations
        try:
            return attempt()
        except PSError as error:
            is_lost = isinstance(error, ServerLost) or ps.generations != lives
            if not (left and is_lost and ps.generations):
                raise
            warnings.warn(
                f"{name} starts again: {error}", RuntimeWarning, stacklevel=user_stacklevel()
            )
    raise AssertionError("unreachable")
