"""The tasks of a barrier job: each one keeps rows and perhaps a server; the first one solves.

The tasks exchange addresses by ``allGather`` of Spark, and then talk through a mailbox on the
servers. All waits have a deadline, after which an error names who is missing.
"""

from __future__ import annotations

import hmac
import io
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa
from pyspark import BarrierTaskContext, cloudpickle

from distvec.graph.node import Buffer
from distvec.losses.labels import LabelRule
from distvec.spark.barrier.settings import Settings
from distvec.spark.cluster.registry import ServerDirectory, serve_registry
from distvec.spark.cluster.supervise import RegistryClient
from distvec.spark.cluster.supervised_servers import authority_for
from distvec.spark.context import FinalizerQueue, FittedModels, PSContext, SessionStandIn
from distvec.spark.data.blocks import remove
from distvec.spark.data.build import BuildRequest, Descriptor, build
from distvec.spark.data.columns import Columns
from distvec.spark.data.dataset import FrameStandIn, PartitionedRows
from distvec.spark.jobs.failures import Failure
from distvec.spark.objectives.evaluation_task import Evaluation, LossSpec, answer_all
from distvec.spark.objectives.evaluator import Answers, Questions
from distvec.spark.task_session import (
    CollectReports,
    Reports,
    SessionTicket,
    TaskSession,
    join,
    leave,
    singleton,
)
from ps_backend.arguments import default_budget
from ps_backend.client import Client, StoredArray, Tls
from ps_backend.errors import MailboxClosed, PSError, ServerLost, SessionUnknown
from ps_backend.machine import usable_cores
from ps_backend.processes.server_process import START_SECONDS, ServerProcess, Signer
from ps_backend.program.types import ArrayType

T = TypeVar("T")

_POLL_SECONDS = 0.5
_STOP_SECONDS = 5.0
_READ = b"read?"
"""The first question: have you read your rows?"""


def run_rank(
    settings: Settings,
    request: BuildRequest,
    rule: LabelRule,
    work: Callable[[Any], Any],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The function of the job: all tasks serve, and the first one yields the result of ``work``."""
    rank = _Rank(settings, request)
    try:
        rank.meet()
        if rank.number:
            rank.serve(batches)
        else:
            yield from encode(rank.lead(rule, work, batches))
    finally:
        rank.close()


class _Rank:
    """One task."""

    def __init__(self, settings: Settings, request: BuildRequest) -> None:
        self._settings, self._request = settings, request
        self._context = BarrierTaskContext.get()
        self.number = self._context.partitionId()
        hosts = [info.address.rpartition(":")[0] for info in self._context.getTaskInfos()]
        # On one machine nothing leaves it, so that servers need no TLS.
        alone = len(set(hosts)) == 1
        self._hosts = ["127.0.0.1"] * len(hosts) if alone else [one.strip("[]") for one in hosts]
        self._server: ServerProcess | None = None
        self._registry: Any = None
        self._client: Client | None = None
        self._ticket: SessionTicket
        self._mailbox = ""
        self._directories: set[str] = set()

    # --- start ------------------------------------------------------------------------------------

    def meet(self) -> None:
        """Start the servers, and open or join the session on them."""
        settings = self._settings
        tls, addresses = settings.tls, settings.addresses
        if settings.servers:
            signer, tls = self._signer()
            own = self._start_server(signer) if self.number < settings.servers else ""
            addresses = tuple(filter(None, self._gather(own)))
        secret = ""
        if not self.number:
            self._client = Client.connect(
                addresses, token=settings.token, timeout=START_SECONDS, tls=tls
            )
            secret, self._mailbox = self._client.secret, f"barrier-{self._client.new_id()}"
            self._client.mailbox(self._mailbox).open()
        told = self._gather(json.dumps([secret, self._mailbox]))
        secret, self._mailbox = json.loads(told[0])
        self._ticket = SessionTicket(addresses, settings.token, secret, eager=True, tls=tls)

    def _signer(self) -> tuple[Signer | None, Tls | None]:
        """Who signs the servers' certificates: the first task does, if they need any."""
        host = self._hosts[0]
        if host == "127.0.0.1":
            return None, None
        told = ""
        if not self.number:
            authority = authority_for(None, host)
            if authority is not None:
                none: ServerDirectory = None  # type: ignore[assignment]
                self._registry = serve_registry(none, host, host, self._settings.token, authority)
                pem, name = authority.tls.authority.decode(), authority.tls.name
                told = json.dumps([pem, name, self._registry.address])
        told = self._gather(told)[0]
        if not told:
            return None, None
        pem, name, address = json.loads(told)
        tls = Tls(pem.encode(), name)
        desk = RegistryClient(tuple(address), self._settings.token, tls)
        return Signer(pem, desk.certify), tls

    def _start_server(self, signer: Signer | None) -> str:
        """The address of this task's server."""
        host = self._hosts[self.number]
        beside = self._hosts[: self._settings.servers].count(host)
        memory = self._settings.memory
        self._server = ServerProcess(
            f"server {self.number}",
            token=self._settings.token,
            threads=max(1, usable_cores() // beside),
            memory=default_budget(beside) if memory is None else memory,
            host=host,
            signer=signer,
        )
        return self._server.wait_until_up(time.monotonic() + START_SECONDS)

    def _gather(self, message: str) -> list[str]:
        """The messages of all tasks, in their order; ``TimeoutError`` if some do not come."""
        found: list[Any] = []

        def gather() -> None:
            try:
                found.append(self._context.allGather(message))
            except Exception as error:  # noqa: BLE001 - raised by who waits
                found.append(error)

        thread = threading.Thread(target=gather, daemon=True)
        thread.start()
        thread.join(self._settings.seconds)
        if not found:
            raise TimeoutError(
                f"task {self.number} of a fit waited {self._settings.seconds:g} s for the others, "
                f"of {self._settings.tasks}; raise spark.distvec.timeout if they are slow"
            )
        if isinstance(found[0], Exception):
            raise found[0]
        messages: list[str] = found[0]
        return messages

    # --- rows -------------------------------------------------------------------------------------

    def _read(self, batches: Iterator[pa.RecordBatch]) -> list[Descriptor]:
        known = [
            Descriptor.decode(text)
            for batch in build(self._request, batches)
            for text in batch.column("descriptor").to_pylist()
        ]
        self._directories |= {os.path.dirname(one.path) for one in known if one.path}
        return known

    def _tell(self, own: Sequence[Descriptor]) -> list[Descriptor]:
        """The partitions of all tasks."""
        told = self._gather(json.dumps(own))
        return sorted(Descriptor(*one) for text in told for one in json.loads(text))

    # --- the work of the tasks --------------------------------------------------------------------

    def serve(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Read rows, and answer the first task until the session ends."""
        own = self._read(batches)
        client = join(self._ticket)
        mailbox = client.mailbox(self._mailbox)
        with suppress(MailboxClosed, SessionUnknown, ServerLost):
            asked = mailbox.question(0, self._settings.seconds)
            if asked is None:
                raise TimeoutError(
                    f"task 0 of a fit has not read its rows after {self._settings.seconds:g} s; "
                    "raise spark.distvec.timeout if it is slow"
                )
            mailbox.answer(asked.number, self.number, b"")
            self._tell(own)
            self._answer(own)

    def _answer(self, own: Sequence[Descriptor]) -> None:
        client = join(self._ticket)
        calls = Calls(self._settings.secret, client, self.number, own)
        with suppress(PSError):  # the session ends, or this client is closed
            mailbox = client.mailbox(self._mailbox)
            attempt = self._context.taskAttemptId()
            answer_all(client, mailbox, None, [one for one in own if one.rows], attempt, calls)

    def lead(
        self, rule: LabelRule, work: Callable[[Any], Any], batches: Iterator[pa.RecordBatch]
    ) -> Outcome:
        """Read rows, and run ``work`` beside a thread that answers for them."""
        own = self._read(batches)
        if self._client is None:
            raise RuntimeError("only the first task leads")
        ps = BarrierContext(self._client, self._ticket)
        try:
            tasks = Tasks(ps, self._mailbox, self._settings)
            tasks.ask(_READ, range(1, self._settings.tasks), "have not read their rows")
            known = self._tell(own)
            threading.Thread(target=self._answer, args=(own,), daemon=True).start()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                value, failure = None, None
                try:
                    value = work(RowsInTasks(ps, tasks, known, rule))
                except Exception as error:  # noqa: BLE001 - raised by the client
                    failure = Failure.of(0, error)
            told = [(one.category, str(one.message)) for one in caught]
            return Outcome(value, failure, told)
        finally:
            ps.close()

    def close(self) -> None:
        """Stop the server, and remove the rows."""
        if hasattr(self, "_ticket"):
            leave(self._ticket)
        if self._server is not None:
            self._server.stop(time.monotonic() + _STOP_SECONDS)
        if self._registry is not None:
            self._registry.close()
        remove(sorted(self._directories))


# --- results --------------------------------------------------------------------------------------

_PIECE_BYTES = 1 << 20
_FRAME = "the frame"


class _Pickler(cloudpickle.Pickler):
    def persistent_id(self, value: object) -> str | None:
        return _FRAME if isinstance(value, FrameStandIn) else None


class Outcome(NamedTuple):
    """The result of the first task."""

    value: Any
    failure: Failure | None
    warnings: list[tuple[type[Warning], str]]


def encode(outcome: Outcome) -> Iterator[pa.RecordBatch]:
    """The outcome as rows of at most 1 MiB; stand-ins for the frame become the frame."""
    file = io.BytesIO()
    _Pickler(file).dump(tuple(outcome))  # type: ignore[no-untyped-call]
    data = file.getvalue()
    for number, start in enumerate(range(0, len(data), _PIECE_BYTES)):
        columns = [pa.array([number], pa.int64()), pa.array([data[start : start + _PIECE_BYTES]])]
        yield pa.RecordBatch.from_arrays(columns, ["number", "data"])


# --- functions that the first task has all tasks run ----------------------------------------------

_CALL = b"call "
_SIGNATURE_BYTES = 32
_MOST_BYTES = 48_000
"""Of a message; longer ones are an array on the servers, or several answers."""


class CallReports:
    """Takes the place of Spark's accumulator of reports: they come with the answers."""

    def __init__(self) -> None:
        self.value: Reports = {}

    def add(self, reports: Reports) -> None:
        """Add the reports of a task."""
        CollectReports().addInPlace(self.value, reports)

    def __reduce__(self) -> Any:
        return singleton, (CallReports,)


class Calls:
    """The functions that arrive in a task."""

    def __init__(self, secret: bytes, client: Client, rank: int, own: Sequence[Descriptor]) -> None:
        self.work: LossSpec | None = None
        self._secret, self._client, self._rank, self._own = secret, client, rank, own
        self._answer = b""

    def answer(self, question: bytes) -> tuple[int, bytes] | None:
        """Key and value of the answer; None for another kind of question."""
        if not question.startswith(_CALL):
            return None
        header, signature = question[len(_CALL) :].split(b" ", 1)
        said = json.loads(header)
        if "rest" not in said:
            self._answer = self._run(said, bytes.fromhex(signature.decode()))
        start = int(said.get("rest", 0))
        left = len(self._answer) - start - _MOST_BYTES
        return self._rank, b"%d " % max(0, left) + self._answer[start : start + _MOST_BYTES]

    def _run(self, said: dict[str, Any], signature: bytes) -> bytes:
        try:
            words = self._client.read(said["buffer"], ArrayType.from_plain(said["type"]))
            code = words.tobytes()[: said["bytes"]]
            if not hmac.compare_digest(signature, _sign(self._secret, code)):
                raise PSError("a function has an invalid signature; it was changed on the servers")
            reports = singleton(CallReports)
            reports.value = {}
            function = cloudpickle.loads(code)
            if isinstance(function, LossSpec):
                self.work = function
                return _dumps(([], {}))
            own = [one for one in self._own if one.rows]
            found = [(one.partition, function(one)) for one in own]
            return _dumps((found, reports.value))
        except Exception as error:  # noqa: BLE001 - raised by the first task
            return _dumps(Failure.of(self._rank, error))


def _dumps(value: Any) -> bytes:
    made: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return made


def _sign(secret: bytes, code: bytes) -> bytes:
    return hmac.digest(secret, code, "sha256")


class Tasks(Questions):
    """All tasks of the job, as the first one asks them. One thread."""

    def __init__(self, ps: BarrierContext, mailbox: str, settings: Settings) -> None:
        super().__init__(ps, ps.client.mailbox(mailbox))
        self._barrier, self._settings = ps, settings
        self._work: LossSpec | None = None
        self.partitions: Sequence[int] = ()
        """The numbers of those with rows."""

    def call(self, function: Any) -> list[tuple[int, Any]]:
        """The results of ``function(descriptor)`` by partition, in their order.

        Instead of a function a ``LossSpec``, of which evaluations are from then on.
        """
        code = _dumps(function)
        words = np.frombuffer(code + bytes(-len(code) % 8), np.int64)
        array = self._barrier.array(words)
        self._barrier.evaluate(array)
        said = {"buffer": array.buffer_id, "type": array.type.plain, "bytes": len(code)}
        signature = _sign(self._settings.secret, code).hex().encode()
        found: list[tuple[int, Any]] = []
        for answer in self._complete(said, signature):
            value = cloudpickle.loads(answer)
            if isinstance(value, Failure):
                value.throw(f"in task {value.partition} of a fit", "the trace is that of the task")
            found += value[0]
            self._barrier.reports.add(value[1])
        return sorted(found, key=lambda pair: pair[0])

    def _complete(self, said: dict[str, Any], signature: bytes) -> list[bytes]:
        ranks = range(self._settings.tasks)
        whole = [b""] * len(ranks)
        header = said
        while True:
            question = _CALL + json.dumps(header, separators=(",", ":")).encode()
            answers = self.ask(question + b" " + signature, ranks, "have not answered")
            left = 0
            for rank in ranks:
                more, piece = answers[rank].split(b" ", 1)
                whole[rank] += piece
                left = max(left, int(more))
            if not left:
                return whole
            header = {"rest": header.get("rest", 0) + _MOST_BYTES}

    def ask(self, question: bytes, keys: Sequence[int], missing: str) -> dict[int, bytes]:
        """The answers by key; ``TimeoutError`` names who has not answered in time."""
        if not keys:
            return {}
        return dict(self._await(question, keys, f"tasks {{}} of a fit {missing}")[0])

    def run(self, work: LossSpec, request: Evaluation) -> Answers:
        """The answers of the tasks, as ``StandingTasks`` returns them."""
        if work is not self._work:
            self._work = None
            self.call(work)
            self._work = work
        found = self.evaluate(request)
        if found is None:
            raise RuntimeError("a task has lost its rows")
        return found

    def _ask(
        self,
        question: bytes,
        patience: float,
        about: StoredArray | None = None,
        total: StoredArray | None = None,
    ) -> Sequence[dict[int, bytes]]:
        return self._await(
            question, self.partitions, "partitions {} have not been evaluated", about, total
        )

    def _await(
        self,
        question: bytes,
        keys: Sequence[int],
        missing: str,
        about: StoredArray | None = None,
        total: StoredArray | None = None,
    ) -> Sequence[dict[int, bytes]]:
        asked, seconds = self._mailbox.ask(question, about, total), self._settings.seconds
        since, count = time.monotonic(), 0
        try:
            while (answers := asked.answers(len(keys), _POLL_SECONDS)) is None:
                if asked.count != count:
                    since, count = time.monotonic(), asked.count
                if time.monotonic() - since > seconds:
                    named = ", ".join(map(str, asked.missing(keys)))
                    raise TimeoutError(
                        f"{missing.format(named)} after {seconds:g} s; raise "
                        "spark.distvec.timeout if they are slow"
                    )
        except MailboxClosed as error:
            raise ServerLost(f"a server of the fit was lost: {error}") from error
        return answers


class TasksFor:
    """The tasks, for the evaluations of one loss; takes the place of ``StandingTasks``."""

    def __init__(self, tasks: Tasks, work: LossSpec) -> None:
        self._tasks, self._work = tasks, work

    def run(self, request: Evaluation) -> tuple[list[Any], Buffer | None]:
        """The answers of the tasks, in the order of the partitions, and the gradient."""
        return self._tasks.run(self._work, request)

    def close(self) -> None:
        """The tasks end with the job."""


class BarrierContext(PSContext):
    """The session of the first task."""

    def __init__(self, client: Client, ticket: SessionTicket) -> None:
        # It has no SparkContext.
        TaskSession.__init__(self, cast(Any, None), client, ticket.token, tls=ticket.tls)
        self.finalizers = FinalizerQueue()
        self.fitted = FittedModels()
        self._ticket = ticket

    def _new_reports(self) -> CallReports:
        return CallReports()

    @property
    def access(self) -> SessionTicket:
        """As all tasks have it, so that each process joins once."""
        return self._ticket

    @property
    def is_stopped(self) -> bool:
        """Whether ``close`` has run."""
        return self._closed

    def release_slots(self) -> None:
        """The tasks stay until the job ends."""

    def close(self) -> None:
        """End the session, and so all tasks."""
        self.finalizers.close()
        TaskSession.close(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: servers at {', '.join(self.client.addresses)}>"


class RowsInTasks(FrameStandIn):
    """Takes the place of the frame in the first task."""

    def __init__(
        self, ps: BarrierContext, tasks: Tasks, known: list[Descriptor], rule: LabelRule
    ) -> None:
        self.context = ps
        self._tasks, self._known, self._rule = tasks, known, rule

    @property
    def sparkSession(self) -> SessionStandIn:
        """Takes the place of the session."""
        return SessionStandIn(self.context)

    def read(
        self, columns: Columns, rule: LabelRule, dtype: str, order: str, *, compact: bool
    ) -> PartitionedRows:
        """The rows that the tasks have read."""
        return BarrierRows(self._tasks, self._known, self._rule)


class BarrierRows(PartitionedRows):
    """Rows that tasks of a barrier job keep until it ends."""

    def __init__(self, tasks: Tasks, known: list[Descriptor], rule: LabelRule) -> None:
        super().__init__(known, rule)
        tasks.partitions = [one.partition for one in known]
        self._tasks = tasks
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Did ``close`` run?"""
        return self._closed

    def run_on_blocks(self, task: Callable[[Descriptor], T]) -> list[T]:
        """``task`` on the descriptor of each partition with rows, in their order."""
        return [found for _, found in self._tasks.call(task)]

    def retry_missing(self, attempt: Callable[[], T]) -> T:
        """The result of ``attempt``: rows are not lost without their task."""
        return attempt()

    def settle(self, servers: object) -> None:
        """The rows stay with their tasks."""

    def waiting_tasks(self, work: Any) -> TasksFor:
        """The tasks, for evaluations of this loss."""
        return TasksFor(self._tasks, work)

    def close(self) -> None:
        """The rows stay until the job ends."""
        self._closed = True
