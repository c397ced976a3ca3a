"""The task side of resident evaluation: keep the rows, and evaluate whenever the driver asks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyspark import TaskContext

from distvec.spark.access import Access, join
from distvec.spark.data.blocks import BlockMissing
from distvec.spark.data.build import Descriptor
from distvec.spark.kept import kept
from distvec.spark.objectives.evaluate import (
    Evaluation,
    LoadedPartitions,
    PartitionResult,
    result_of,
)
from ps_backend.client import Change, Client, Mailbox, Question
from ps_backend.errors import MailboxClosed, PSError, ServerLost, SessionUnknown
from ps_backend.program.spaces import Space
from ps_backend.program.types import ArrayType

READY = b""
"""The driver's first question to a new job: which partitions have a task that runs?"""

BLOCK_MISSING = BlockMissing.__name__

_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Orders:
    """What each resident task is told: how to join the session, where questions are asked, and by
    task the partitions that it must have."""

    access: Access
    mailbox: str
    groups: list[list[int]]


def encode_request(request: Evaluation) -> bytes:
    """An evaluation as it is asked for."""
    kept = request.coordinates and (request.coordinates[0], request.coordinates[1].plain)
    return json.dumps((request.weights, request.type.plain, request.intercept, kept)).encode()


def _decode_request(question: bytes) -> Evaluation:
    weights, type, intercept, kept = json.loads(question)
    coordinates = kept and (kept[0], ArrayType.from_plain(kept[1]))
    return Evaluation(weights, ArrayType.from_plain(type), intercept, coordinates)


def decode_results(answers: Mapping[int, bytes]) -> list[PartitionResult]:
    """What tasks answered, in the order of the partitions. Numbers arrive bit for bit."""
    return [PartitionResult(**json.loads(answers[partition])) for partition in sorted(answers)]


def serve(orders: Orders, descriptors: Iterable[Descriptor]) -> Iterator[int]:
    """For ``mapPartitions`` over descriptors: answer whatever is asked, until the mailbox closes.

    A task that takes the place of a lost one answers the question under way first. RuntimeError if
    it has not all of its partitions.
    """
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("serve runs inside a Spark task; call the loss on the driver")
    filled = sorted(one for one in descriptors if one.rows)
    _check_complete(filled, orders.groups[context.partitionId()])
    if filled:
        # The driver wants no more of this task, or the mailbox went with its server.
        with suppress(MailboxClosed, SessionUnknown, ServerLost):
            client = join(orders.access)
            answer_all(client, client.mailbox(orders.mailbox), filled, context.taskAttemptId())
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


def answer_all(
    client: Client, mailbox: Mailbox, filled: Sequence[Descriptor], attempt: int
) -> None:
    """Answer each question: two messages a server and one more where weights do not come along."""
    number = 0
    while True:
        question = _next_question(client, mailbox, number)
        if question is None:
            continue
        number = question.number
        if question.value == READY:
            for one in filled:
                mailbox.answer(number, *_as_answer(PartitionResult(one.partition, attempt, 0.0)))
            continue
        request = _decode_request(question.value)

        def contribute(
            result: PartitionResult,
            change: Change | None,
            number: int = number,
            space: Space = request.type.space,
        ) -> None:
            mailbox.answer(number, *_as_answer(result), space, change)

        for one in filled:
            try:
                result = result_of(client, request, one, attempt, contribute)
            except BlockMissing:
                result = PartitionResult(one.partition, attempt, 0.0, BLOCK_MISSING, one.path)
            if result.error:
                contribute(result, None)


def _next_question(client: Client, mailbox: Mailbox, after: int) -> Question | None:
    """The next question, with the weights that it is about if such were pulled as a whole before.

    Then the first evaluation of it finds them here.
    """
    vectors = kept(LoadedPartitions).vectors
    if after and (place := vectors.give_way()) is not None:
        with suppress(PSError):  # what is wrong with the weights is said where they are needed
            question = mailbox.question(after, _WAIT_SECONDS, place)
            if question is not None:
                vectors.came(client, _decode_request(question.value).weights)
                return question
    return mailbox.question(after, _WAIT_SECONDS)


def _as_answer(result: PartitionResult) -> tuple[int, bytes]:
    return result.partition, json.dumps(result._asdict()).encode()
