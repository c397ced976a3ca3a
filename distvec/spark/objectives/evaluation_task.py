"""The task side of an evaluation: keep the rows, and evaluate whenever the driver asks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from pyspark import TaskContext

from distvec.losses.loss import Arrays, Loss, LossError, PhasedLoss, StatefulLoss, loss_error
from distvec.losses.rows import Ints, Rows, column_squares, column_sums
from distvec.spark.data.blocks import BlockMissing
from distvec.spark.data.build import Descriptor
from distvec.spark.objectives.partition import (
    CoordinateTransfer,
    HeldOut,
    Part,
    Partition,
    RowSubset,
    Sample,
    Selection,
    Span,
    Values,
    is_most,
)
from distvec.spark.task_session import SessionTicket, join, singleton
from ps_backend.client import Change, Client, Mailbox, Question, StoredArray
from ps_backend.errors import MailboxClosed, PSError, ServerLost, SessionUnknown
from ps_backend.program.types import ArrayType

SUMS, SUMMARY, PRODUCTS = "sums", "summary", "products"
"""What may be asked of a partition: value and gradients; what it tells in a phase of a
``PhasedLoss``; the Hessian of its value times directions."""

COLUMN_SUMS, COLUMN_SQUARES = "column sums", "column squares"
"""And of its features, whatever the loss is: sums, and the weight of rows where columns are; what
``column_squares`` gives about the means, which come as parameters."""

PhaseInput = tuple[tuple[float, ...], ...]
"""What a partition was told, by phase."""


@dataclass(frozen=True)
class LossSpec:
    """What is evaluated. It travels in closures, as a loss may be a user's function."""

    loss: Loss
    intercept: bool

    def with_options(self, options: Mapping[str, float]) -> LossSpec:
        """The same with other values of some fields of the loss."""
        loss: Any = self.loss
        return replace(self, loss=replace(loss, **options)) if options else self


@dataclass(frozen=True)
class Evaluation:
    """One evaluation, as plain data: what of, where its parameters are."""

    parameters: tuple[StoredArray, ...]
    asked: str = SUMS
    directions: tuple[StoredArray, ...] = ()
    coordinates: StoredArray | None = None
    """The array with the coordinates that the spaces consist of; None if they have all."""
    part: RowSubset | None = None
    """Of each partition's rows; None: all."""
    round: str = ""
    """Where gradients are staged; empty where they go with the answer to a mailbox."""
    told: Mapping[int, PhaseInput] = field(default_factory=dict)
    """By partition."""
    like: StoredArray | None = None
    """What sums are like, if not like the parameters."""
    options: Mapping[str, float] = field(default_factory=dict)
    """Other values of fields of the loss."""

    @property
    def changes(self) -> tuple[StoredArray, ...]:
        """The arrays like which the sums of contributions are."""
        if self.like is not None:
            return (self.like,)
        return () if self.asked == SUMMARY else self.parameters


class PartitionResult(NamedTuple):
    """What a task says of a partition, besides its part of the gradient.

    ``error`` is the name of an exception, and ``details`` are its arguments; they travel as values,
    for Spark would repeat a raised error and bury it in a Java trace.
    """

    partition: int
    attempt: int
    value: float = 0.0
    weight: float = 0.0
    summary: Sequence[float] = ()
    error: str = ""
    details: Sequence[str] = ()


Contribute = Callable[[PartitionResult, Sequence[Change]], None]
"""Sends a partition's parts of the gradients, with what is said of it."""


class LoadedPartitions:
    """The mapped rows that a process has, and its memory for arrays."""

    def __init__(self) -> None:
        self._vectors: dict[int, CoordinateTransfer] = {}
        self._by_path: dict[str, Partition] = {}

    def vectors(self, slot: int = 0) -> CoordinateTransfer:
        """The memory for one of the arrays that an evaluation needs."""
        return self._vectors.setdefault(slot, CoordinateTransfer())

    def get(self, path: str) -> Partition:
        """Those of ``path``, or BlockMissing; others whose files are gone are let go, or their disk
        stays taken."""
        if path not in self._by_path:
            for other in [known for known in self._by_path if not os.path.isdir(known)]:
                del self._by_path[other]
            self._by_path[path] = Partition(path)
        return self._by_path[path]

    def clear(self) -> None:
        """Forget them all."""
        self._by_path.clear()


def evaluate(
    work: LossSpec, request: Evaluation, access: SessionTicket, descriptor: Descriptor
) -> PartitionResult:
    """For ``Dataset.run_on_blocks``: gradients are staged under (round, partition, attempt)."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("evaluate runs inside a Spark task; call the objective on the driver")
    client = join(access)
    contribute = stager(client, request)
    return evaluate_partition(
        client, work, request, descriptor, context.taskAttemptId(), contribute
    )


def stager(client: Client, request: Evaluation) -> Contribute:
    """Stages what is contributed, a message a server for each array."""

    def stage(result: PartitionResult, changes: Sequence[Change]) -> None:
        for slot, change in enumerate(changes):
            space = request.changes[slot].type.space
            place = (request.round, result.partition, result.attempt)
            client.stage(*place, space, *change, slot=slot)

    return stage


def evaluate_partition(
    client: Client,
    work: LossSpec,
    request: Evaluation,
    descriptor: Descriptor,
    attempt: int,
    contribute: Contribute,
) -> PartitionResult:
    """Evaluate one partition, which has rows, in a task attempt. Two messages a server and array.

    Raises BlockMissing.
    """
    partition = descriptor.partition
    loaded = singleton(LoadedPartitions).get(descriptor.path)
    work = work.with_options(request.options)
    try:
        selection = loaded.selection(request.part, partition)
        task = _Task(client, work, request, selection, partition)
        found, gradients = task.run(request.told.get(partition, ()))
        result = found._replace(partition=partition, attempt=attempt)
        contribute(result, task.changes(gradients))
        return result
    except PSError as error:
        return PartitionResult(
            partition, attempt, error=type(error).__name__, details=(str(error),)
        )
    except LossError as error:
        details = error.within(f"partition {partition}").args
        return PartitionResult(partition, attempt, error=type(error).__name__, details=details)


_NOBODY = PartitionResult(-1, -1)


class _Task:
    """One evaluation of some rows."""

    def __init__(
        self,
        client: Client,
        work: LossSpec,
        request: Evaluation,
        selection: Selection,
        partition: int,
    ) -> None:
        self.client, self.work, self.request, self.selection = client, work, request, selection
        self.partition = partition

    def run(self, told: PhaseInput) -> tuple[PartitionResult, Arrays]:
        """What is asked, by nobody yet, and the gradients."""
        loss, rows = self.work.loss, self.selection.rows
        try:
            if self.request.asked in (COLUMN_SUMS, COLUMN_SQUARES):
                return self._run_columns(rows)
            if isinstance(loss, StatefulLoss):
                return _NOBODY, (loss.advance(self._state(loss), _Arrays(self)),)
            if isinstance(loss, PhasedLoss):
                return self._run_phase(loss, [np.array(phase) for phase in told])
            rows = self._spread or rows
            arrays, directions = self._pulled()
            if self.request.asked == PRODUCTS:
                products = loss.products(rows, arrays, directions, intercept=self.work.intercept)
                return _NOBODY._replace(weight=loss.weight(rows)), products
            sums = loss.sums(rows, arrays, intercept=self.work.intercept)
        except (LossError, PSError):
            raise
        except Exception as error:
            raise loss_error(str(loss), f"its {len(rows):,} rows", error) from error
        return _NOBODY._replace(value=sums.value, weight=sums.weight), sums.gradients

    def _run_columns(self, rows: Rows) -> tuple[PartitionResult, Arrays]:
        """Of each column; with sums, the weight of the rows."""
        if self.request.asked == COLUMN_SUMS:
            weight = rows.weight_sum
            sums = column_sums(rows), np.full(rows.columns, weight)
            return _NOBODY._replace(weight=weight), sums
        return _NOBODY, column_squares(rows, self._pull(0, 0, self.request.parameters[0]))

    def _run_phase(
        self, loss: PhasedLoss, told: Sequence[np.ndarray]
    ) -> tuple[PartitionResult, Arrays]:
        rows, intercept = self.selection.rows, self.work.intercept
        prepared = self._prepared(loss, first=not told)
        if self.request.asked == SUMMARY:
            summary = loss.summary(len(told), rows, prepared, told)
            return _NOBODY._replace(summary=summary.tolist()), ()
        if self.request.asked == PRODUCTS:
            products = loss.products_told(rows, prepared, told, intercept=intercept)
            return _NOBODY._replace(weight=loss.weight(rows)), products
        sums = loss.sums_told(rows, prepared, told, intercept=intercept)
        return _NOBODY._replace(value=sums.value, weight=sums.weight), sums.gradients

    def _prepared(self, loss: PhasedLoss, *, first: bool) -> Values:
        """Kept from the first phase on; made anew where that was in another process."""
        request, selection = self.request, self.selection
        key = (loss, request.parameters, request.directions, request.coordinates)
        if first or selection.prepared is None or selection.prepared[0] != key:
            arrays, directions = self._pulled()
            made = loss.prepare(selection.rows, arrays, directions, intercept=self.work.intercept)
            selection.prepared = (key, made)
        return selection.prepared[1]

    def _state(self, loss: StatefulLoss) -> Any:
        """What was kept of the rows; made anew in another process."""
        key = (loss, self.request.parameters[0])
        if self.selection.prepared is None or self.selection.prepared[0] != key:
            self.selection.prepared = key, loss.begin(self.selection.rows, _Arrays(self))
        return self.selection.prepared[1]

    def parameter(self, number: int, places: Ints | None = None) -> Values:
        """As ``TaskArrays`` says."""
        stored = self.request.parameters[number]
        if places is None:
            return self._pull(number, number, stored)
        return singleton(LoadedPartitions).vectors(number).pull(self.client, *stored, places)

    def changes(self, gradients: Arrays) -> list[Change]:
        """What to add to the sums of the gradients."""
        loaded, changes = singleton(LoadedPartitions), []
        if (like := self.request.like) is not None:
            (sums,) = gradients
            if isinstance(sums, np.ndarray):
                return [Change(None, sums)]
            return [loaded.vectors().contribution(like.type, *sums, are_sorted=False)]
        for slot, gradient in enumerate(gradients):
            type = self.request.parameters[slot].type
            values = gradient.astype(type.dtype, copy=False)
            where = None if self._spread else self._coordinates(slot)
            changes.append(loaded.vectors(slot).contribution(type, where, values))
        return changes

    def _pulled(self) -> tuple[Arrays, Arrays]:
        """Parameters and directions, as far as the rows touch them."""
        count = len(self.request.parameters)
        wanted = (*self.request.parameters, *self.request.directions)
        pulled = tuple(self._pull(slot, slot % count, one) for slot, one in enumerate(wanted))
        return pulled[:count], pulled[count:]

    def _pull(self, slot: int, parameter: int, stored: StoredArray) -> Values:
        vectors = singleton(LoadedPartitions).vectors(slot)
        where = None if self._spread else self._coordinates(parameter)
        return vectors.pull(self.client, *stored, where)

    @cached_property
    def _spread(self) -> Rows | None:
        """The rows, numbered like their only parameter, if all its values come and go anyway.

        Then none are picked from it, or put among zeros: half as much work again as the sums.
        """
        loss, (one, *others) = self.work.loss, self.request.parameters
        is_plain = not isinstance(loss, PhasedLoss | StatefulLoss)
        if others or self.request.asked not in (SUMS, PRODUCTS) or not is_plain:
            return None
        is_kept = not isinstance(self.request.part, Sample | Span)
        if not is_kept or isinstance(self.selection.rows.matrix, np.ndarray):
            return None
        where, columns = self._coordinates(0), one.type.space.length
        if where.size == columns or not is_most(where, one.type):
            return None
        has_intercept = loss.parameters[0].has_intercept(self.work.intercept)
        return self.selection.spread(where, columns - has_intercept)

    def _coordinates(self, parameter: int) -> np.ndarray:
        space, intercept = self.request.parameters[parameter].type.space, False
        if self.request.asked not in (COLUMN_SUMS, COLUMN_SQUARES):
            of = self.work.loss.parameters[parameter]
            if not of.is_of_features:
                return np.arange(space.length)
            intercept = of.has_intercept(self.work.intercept)
        return self.selection.coordinates(
            self.client, space, intercept=intercept, kept=self.request.coordinates
        )


class _Arrays(NamedTuple):
    """The ``TaskArrays`` of an evaluation."""

    task: _Task

    @property
    def partition(self) -> int:
        return self.task.partition

    @property
    def features(self) -> Ints:
        return self.task.selection.features

    def __call__(self, number: int, places: Ints | None = None) -> Values:
        return self.task.parameter(number, places)


READY = b""
"""The driver's first question to a new job: which partitions have a task that runs?"""

BLOCK_MISSING = BlockMissing.__name__

_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class TaskSpec:
    """What each resident task is told: how to join the session, where questions are asked, and by
    task the partitions that it must have."""

    access: SessionTicket
    mailbox: str
    groups: list[list[int]]
    work: LossSpec


_PARTS: Mapping[str, Any] = MappingProxyType(
    {one.__name__: one for one in (Part, Sample, Span, HeldOut)}
)


def encode_request(request: Evaluation) -> bytes:
    """An evaluation as it is asked for."""
    said = {
        "parameters": [_plain(one) for one in request.parameters],
        "asked": request.asked,
        "directions": [_plain(one) for one in request.directions],
        "coordinates": request.coordinates and _plain(request.coordinates),
        "part": None if request.part is None else [type(request.part).__name__, *request.part],
        "round": request.round,
        "told": [*request.told.items()],
        "like": request.like and _plain(request.like),
        "options": {**request.options},
    }
    return json.dumps({key: value for key, value in said.items() if value}).encode()


def _decode_request(question: bytes) -> Evaluation:
    said = json.loads(question)
    coordinates, part, like = (said.get(one) for one in ("coordinates", "part", "like"))
    return Evaluation(
        tuple(map(_as_stored, said["parameters"])),
        said["asked"],
        tuple(map(_as_stored, said.get("directions", ()))),
        coordinates and _as_stored(coordinates),
        part and _PARTS[part[0]](*part[1:]),
        said.get("round", ""),
        dict(said.get("told", ())),
        like and _as_stored(like),
        said.get("options", {}),
    )


def _plain(array: StoredArray) -> tuple[int, Any]:
    return array.buffer, array.type.plain


def _as_stored(plain: Sequence[Any]) -> StoredArray:
    return StoredArray(plain[0], ArrayType.from_plain(plain[1]))


def decode_results(answers: Mapping[int, bytes]) -> list[PartitionResult]:
    """What tasks answered, in the order of the partitions. Numbers arrive bit for bit."""
    return [_decode_result(answers[partition]) for partition in sorted(answers)]


def _decode_result(answer: bytes) -> PartitionResult:
    said: dict[str, Any] = json.loads(answer)
    result = PartitionResult(**said)
    return result._replace(summary=tuple(result.summary), details=tuple(result.details))


def serve(orders: TaskSpec, descriptors: Iterable[Descriptor]) -> Iterator[int]:
    """For ``mapPartitions`` over descriptors: answer whatever is asked, until the mailbox closes.

    A task that takes the place of a lost one answers the question under way first. RuntimeError if
    it has not all of its partitions.
    """
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("serve runs inside a Spark task; call the objective on the driver")
    filled = sorted(descriptors)
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


class Calls(Protocol):
    """Answers questions that are no evaluations."""

    work: LossSpec | None
    """The last one that came so."""

    def answer(self, question: bytes) -> tuple[int, bytes] | None:
        """Key and value of the answer; None for evaluations."""


def answer_all(
    client: Client,
    mailbox: Mailbox,
    work: LossSpec | None,
    filled: Sequence[Descriptor],
    attempt: int,
    calls: Calls | None = None,
) -> None:
    """Answer each question: two messages a server and one more where weights do not come along.

    ``work`` None: it comes by ``calls``.
    """
    number, along = 0, False
    while True:
        question = _next_question(client, mailbox, number, along=along)
        if question is None:
            continue
        number = question.number
        if question.value == READY:
            for one in filled:
                mailbox.answer(number, *_encode_result(PartitionResult(one.partition, attempt)))
            continue
        if calls is not None and (answer := calls.answer(question.value)) is not None:
            mailbox.answer(number, *answer)
            work = calls.work
            continue
        if work is None:
            continue
        request = _decode_request(question.value)
        along = weights_come_along(request)
        for one in filled:
            _answer(client, mailbox, number, work, request, one, attempt)


def weights_come_along(request: Evaluation) -> bool:
    """Do the values of its one parameter come with the question, and with the next one?

    Those who want values wait on all servers that hold some, and only questions about a gradient
    are asked there: not those of a phase, which may come next after one with something told.
    """
    return len(request.parameters) == 1 and request.asked == SUMS and not request.told


def _answer(
    client: Client,
    mailbox: Mailbox,
    number: int,
    work: LossSpec,
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
        mailbox.answer(number, *_encode_result(result), space, change)

    try:
        result = evaluate_partition(client, work, request, one, attempt, contribute)
    except BlockMissing:
        missing = PartitionResult(one.partition, attempt)
        result = missing._replace(error=BLOCK_MISSING, details=(one.path,))
    if result.error:
        mailbox.answer(number, *_encode_result(result), space)


def _next_question(client: Client, mailbox: Mailbox, after: int, *, along: bool) -> Question | None:
    """The next one, or None after some time; with the values that it is about, if so it was last.

    Then the first evaluation of it finds them here.
    """
    vectors = singleton(LoadedPartitions).vectors()
    if along and (place := vectors.give_way()) is not None:
        with suppress(PSError):  # what is wrong with the weights is said where they are needed
            question = mailbox.question(after, _WAIT_SECONDS, place)
            if question is not None:
                vectors.came(client, _decode_request(question.value).parameters[0].buffer)
                return question
    return mailbox.question(after, _WAIT_SECONDS)


def _encode_result(result: PartitionResult) -> tuple[int, bytes]:
    return result.partition, json.dumps(result._asdict()).encode()
