"""The task side of resident evaluation: keep the rows, and evaluate whenever the driver asks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext

from distvec.spark.access import Access, join
from distvec.spark.data.build import Descriptor
from distvec.spark.objective.evaluate import Evaluation, Outcome, outcome_of
from ps_backend.errors import SessionUnknown, TopicClosed
from ps_backend.topic import Topic

READY = b""
"""The driver's first question to a new job: which partitions have a task that runs?"""

_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Orders:
    """What each resident task is told: how to join the session, and where questions are posted."""

    access: Access
    topic: str


def encode_request(request: Evaluation) -> bytes:
    """An evaluation as it is posted; how to join the session is no part of it."""
    fields = (request.round, request.weights, request.length, request.dtype, request.intercept)
    return json.dumps(fields).encode()


def decode_outcomes(answers: Iterable[bytes]) -> list[Outcome]:
    """What tasks answered, in the order of the partitions. Numbers arrive bit for bit."""
    return sorted(Outcome(*json.loads(answer)) for answer in answers)


def serve(orders: Orders, rows: Iterable[Any]) -> Iterator[int]:
    """For ``mapPartitions`` over descriptors: evaluate whatever is posted, until the topic ends.

    A task that takes the place of a lost one answers the question under way first.
    """
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("serve runs inside a Spark task; call the loss on the driver")
    filled = [one for one in (Descriptor(*row) for row in rows) if one.rows]
    if filled:
        try:
            topic = join(orders.access).topic(orders.topic)
            _answer(topic, orders.access, filled, context.taskAttemptId())
        except (TopicClosed, SessionUnknown):
            pass  # the driver wants no more of this task
    return iter(())


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
