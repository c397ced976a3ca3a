"""The task side of resident evaluation: keep the rows, and evaluate whenever the driver asks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext

from distvec.spark.access import Access, join
from distvec.spark.data.blocks import BlockMissing
from distvec.spark.data.build import Descriptor
from distvec.spark.kept import kept
from distvec.spark.objectives.evaluate import (
    SUMS,
    Evaluation,
    LoadedPartitions,
    PartitionResult,
    Work,
    result_of,
    stager,
)
from distvec.spark.objectives.partition import Part
from ps_backend.client import Change, Client, Mailbox, Question, StoredArray
from ps_backend.errors import MailboxClosed, PSError, ServerLost, SessionUnknown
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
    work: Work


def encode_request(request: Evaluation) -> bytes:
    """An evaluation as it is asked for."""
    said = {
        "parameters": [_plain(one) for one in request.parameters],
        "asked": request.asked,
        "directions": [_plain(one) for one in request.directions],
        "coordinates": request.coordinates and _plain(request.coordinates),
        "part": request.part,
        "round": request.round,
        "told": [*request.told.items()],
    }
    return json.dumps({key: value for key, value in said.items() if value}).encode()


def _decode_request(question: bytes) -> Evaluation:
    said = json.loads(question)
    coordinates, part = said.get("coordinates"), said.get("part")
    return Evaluation(
        tuple(map(_stored, said["parameters"])),
        said["asked"],
        tuple(map(_stored, said.get("directions", ()))),
        coordinates and _stored(coordinates),
        part and Part(*part),
        said.get("round", ""),
        dict(said.get("told", ())),
    )


def _plain(array: StoredArray) -> tuple[int, Any]:
    return array.buffer, array.type.plain


def _stored(plain: Sequence[Any]) -> StoredArray:
    return StoredArray(plain[0], ArrayType.from_plain(plain[1]))


def decode_results(answers: Mapping[int, bytes]) -> list[PartitionResult]:
    """What tasks answered, in the order of the partitions. Numbers arrive bit for bit."""
    return [_decoded(answers[partition]) for partition in sorted(answers)]


def _decoded(answer: bytes) -> PartitionResult:
    said: dict[str, Any] = json.loads(answer)
    result = PartitionResult(**said)
    return result._replace(summary=tuple(result.summary), details=tuple(result.details))


def serve(orders: Orders, descriptors: Iterable[Descriptor]) -> Iterator[int]:
    """For ``mapPartitions`` over descriptors: answer whatever is asked, until the mailbox closes.

    A task that takes the place of a lost one answers the question under way first. RuntimeError if
    it has not all of its partitions.
    """
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("serve runs inside a Spark task; call the objective on the driver")
    filled = sorted(one for one in descriptors if one.rows)
    _check_complete(filled, orders.groups[context.partitionId()])
    if filled:
        # The driver wants no more of this task, or the mailbox went with its server.
        with suppress(MailboxClosed, SessionUnknown, ServerLost):
            client = join(orders.access)
            mailbox, attempt = client.mailbox(orders.mailbox), context.taskAttemptId()
            answer_all(client, mailbox, orders.work, filled, attempt)
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
    client: Client, mailbox: Mailbox, work: Work, filled: Sequence[Descriptor], attempt: int
) -> None:
    """Answer each question: two messages a server and one more where weights do not come along."""
    number, along = 0, False
    while True:
        question = _next_question(client, mailbox, number, along=along)
        if question is None:
            continue
        number = question.number
        if question.value == READY:
            for one in filled:
                mailbox.answer(number, *_as_answer(PartitionResult(one.partition, attempt)))
            continue
        request = _decode_request(question.value)
        along = comes_along(request)
        for one in filled:
            _answer(client, mailbox, number, work, request, one, attempt)


def comes_along(request: Evaluation) -> bool:
    """Do the values of its one parameter come with the question, and with the next one?

    Those who want values wait on all servers that hold some, and only questions about a gradient
    are asked there: not those of a phase, which may come next after one with something told.
    """
    return len(request.parameters) == 1 and request.asked == SUMS and not request.told


def _answer(
    client: Client,
    mailbox: Mailbox,
    number: int,
    work: Work,
    request: Evaluation,
    one: Descriptor,
    attempt: int,
) -> None:
    """Evaluate a partition, and send what is found."""
    stage = stager(client, request)
    space = request.changes[0].type.space if request.changes and not request.round else None

    def contribute(result: PartitionResult, changes: Sequence[Change]) -> None:
        if request.round:
            stage(result, changes)
        change = changes[0] if space is not None and changes else None
        mailbox.answer(number, *_as_answer(result), space, change)

    try:
        result = result_of(client, work, request, one, attempt, contribute)
    except BlockMissing:
        missing = PartitionResult(one.partition, attempt)
        result = missing._replace(error=BLOCK_MISSING, details=(one.path,))
    if result.error:
        mailbox.answer(number, *_as_answer(result), space)


def _next_question(client: Client, mailbox: Mailbox, after: int, *, along: bool) -> Question | None:
    """The next one, or None after some time; with the values that it is about, if so it was last.

    Then the first evaluation of it finds them here.
    """
    vectors = kept(LoadedPartitions).vectors()
    if along and (place := vectors.give_way()) is not None:
        with suppress(PSError):  # what is wrong with the weights is said where they are needed
            question = mailbox.question(after, _WAIT_SECONDS, place)
            if question is not None:
                vectors.came(client, _decode_request(question.value).parameters[0].buffer)
                return question
    return mailbox.question(after, _WAIT_SECONDS)


def _as_answer(result: PartitionResult) -> tuple[int, bytes]:
    return result.partition, json.dumps(result._asdict()).encode()
