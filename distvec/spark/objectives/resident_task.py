"""The task side of resident evaluation: keep the rows, and evaluate whenever the driver asks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyspark import TaskContext

from distvec.spark.access import Access, join
from distvec.spark.data.build import Descriptor
from distvec.spark.objectives.evaluate import Evaluation, Outcome, outcome_of
from ps_backend.client import Topic
from ps_backend.errors import ServerLost, SessionUnknown, TopicClosed

READY = b""
"""The driver's first question to a new job: which partitions have a task that runs?"""

_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Orders:
    """What each resident task is told: how to join the session, where questions are posted, and by
    task the partitions that it must have."""

    access: Access
    topic: str
    groups: list[list[int]]


def encode_request(request: Evaluation) -> bytes:
    """An evaluation as it is posted; how to join the session is no part of it."""
    fields = [getattr(request, field.name) for field in dataclasses.fields(request)[1:]]
    return json.dumps(fields).encode()


def decode_outcomes(answers: Iterable[bytes]) -> list[Outcome]:
    """What tasks answered, in the order of the partitions. Numbers arrive bit for bit."""
    return sorted(Outcome(*json.loads(answer)) for answer in answers)


def serve(orders: Orders, descriptors: Iterable[Descriptor]) -> Iterator[int]:
    """For ``mapPartitions`` over descriptors: evaluate whatever is posted, until the topic ends.

    A task that takes the place of a lost one answers the question under way first. RuntimeError if
    it has not all of its partitions.
    """
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("serve runs inside a Spark task; call the loss on the driver")
    filled = sorted(one for one in descriptors if one.rows)
    _check_complete(filled, orders.groups[context.partitionId()])
    if filled:
        try:
            topic = join(orders.access).topic(orders.topic)
        except SessionUnknown:
            return iter(())
        # The driver wants no more of this task, or the topic went with its server.
        with suppress(TopicClosed, SessionUnknown, ServerLost):
            _answer(topic, orders.access, filled, context.taskAttemptId())
    return iter(())


def _check_complete(filled: Sequence[Descriptor], needed: list[int]) -> None:
    """Raise if partitions are missing, upon which Spark raises why, and repairs it.

    Where Spark cannot read what was lost (a shuffle's output went, too), a Python task just sees
    its input end, and Spark says nothing before the task ends. One that stays would never end.
    """
    have = [one.partition for one in filled]
    if have != needed:
        raise RuntimeError(
            f"a resident task got the partitions {have} of {needed}: its input ended early"
        )


def _answer(topic: Topic, access: Access, filled: Sequence[Descriptor], attempt: int) -> None:
    version = 0
    while True:
        post = topic.wait(version, _WAIT_SECONDS)
        if post is None:
            continue
        version = post.version
        if post.value == READY:
            outcomes = [Outcome(one.partition, attempt, 0.0) for one in filled]
        else:
            request = Evaluation(access, *json.loads(post.value))
            outcomes = [outcome_of(request, one, attempt) for one in filled]
        topic.answer(version, {one.partition: json.dumps(one).encode() for one in outcomes})
