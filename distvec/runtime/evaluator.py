"""When arrays are evaluated, what comes along, and what becomes of programs that fail."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from numpy.linalg import LinAlgError

from distvec.diagnostics.profile import call_site, measured
from distvec.graph.node import Buffer, Graph, Node, depending, refuse_variables
from distvec.planner import Plan, Planner, Reason, Template
from distvec.runtime.execute import Cancelled, Executor
from distvec.runtime.liveness import Holder, LiveValues
from ps_backend.client import Client, Counters, defer_signals, hold_lock
from ps_backend.errors import NothingToReduce, OutOfBudget, PSError
from ps_backend.program.spaces import RaggedSpace
from ps_backend.program.types import NodeType

_CANCELLED = (
    "{} programs of an earlier plan ran before: {} expanded inner products lost digits "
    "(cancellation_limit)"
)


class Evaluator:
    """The expressions of one session and their evaluation. Thread-safe."""

    pending_depth = 512
    """A chain of this many operations is sent off without waiting for an answer."""
    pending_nodes = 4096
    """So are this many pending operations in all."""
    upload_limit = 2**26
    """The most bytes of a NumPy array that an operation with ``x`` copies to the servers itself."""
    journal_limit = 2**28
    """With ``durability="replay"`` a checkpoint begins after requests of so many bytes."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.graph = Graph()
        self.planner = Planner(self.graph)
        self.implicit_evaluations = 0
        """How often ordinary Python, as in ``if s > 0``, needed a value that was not there."""
        self.implicit_transfers = 0
        """How often ordinary Python, as in ``np.asarray(x)``, brought elements of a vector here."""
        self.implicit_uploads = 0
        """How often an operation copied an array of the client to the servers, as in
        ``x + np.ones(n)``."""
        self.uploads: weakref.WeakSet[Node] = weakref.WeakSet()
        """The nodes of these arrays."""
        self.cancellations = 0
        """How often an expanded inner product lost digits and was computed anew, directly."""
        self.holders = LiveValues(self.graph)
        """Who holds the values of nodes."""
        self.sites: dict[int, str] | None = None
        """By id of an array the line that made it, if somebody wants to see it."""
        self.counts: weakref.WeakKeyDictionary[Node, Node] = weakref.WeakKeyDictionary()
        """By node of a mask, how many of its elements are true, where that is known already."""
        self.chosen: weakref.WeakKeyDictionary[Node, RaggedSpace] = weakref.WeakKeyDictionary()
        """The same by server, where elements that it selects were put together."""
        self.extremes: weakref.WeakKeyDictionary[Node, tuple[Any, Any]]
        self.extremes = weakref.WeakKeyDictionary()
        """By node of a stored array its least and greatest element, where they were asked for."""
        self.bounds: weakref.WeakKeyDictionary[Node, tuple[int, int]]
        self.bounds = weakref.WeakKeyDictionary()
        """By node of integers two numbers that these are between, where they were needed."""
        self.make_room: Callable[[], None] | None = None
        """Begins a checkpoint where one is due, before a request that changes arrays."""
        self._executor = Executor(client, self.graph, self.holders)
        self._strict = False
        self._tracing = 0
        self.overdue = False
        """Whether so much is pending that it is to be sent off: see ``flush_overdue``."""
        self._slack = 1  # times the limits of what may be pending, while sending it off fails
        self._evaluating = threading.RLock()  # threads may build at will, but evaluate in turn
        self.turns = threading.RLock()
        """Held for a moment by who makes the ``turn`` of an array."""
        self._refused: set[weakref.ref[Node]] = set()
        """Nodes that could not be computed when nobody had asked: not tried again until asked."""

    @property
    def counters(self) -> Counters:
        """Return the counts of requests, bytes and passes of this session.

        Returns
        -------
        Counters
            Counts since the session opened or ``counters.reset()``. ``messages`` counts requests
            and their replies: one message is one request to one server.
        """
        return self.client.counters

    def new_buffer(self, type: NodeType) -> Buffer:
        """Allocate an ID for an array on the servers, freed with its last reference.

        Parameters
        ----------
        type : NodeType
            Shape, dtype and index set of the array.

        Returns
        -------
        Buffer
            The buffer; no request is sent.
        """
        return self._executor.new_buffer(type)

    def track(self, array: Holder) -> None:
        """Register an array that was created or now represents another node.

        Parameters
        ----------
        array : Handle
            The array.
        """
        node = array.node
        if node.value is not None and node.on_client:
            return  # it holds no memory of the servers, and is not to be computed
        self.holders.add(array)
        if self.sites is not None:
            self.sites[id(array)] = call_site()
        if self._tracing:  # what a differentiated function made cannot be computed yet
            return
        slack, most = self._slack, self._slack * self.pending_nodes
        if node.depth >= slack * self.pending_depth or (
            len(self.graph.nodes) >= most and self.graph.holds(most)
        ):
            self.overdue = True

    def flush_overdue(self) -> None:
        """Send off long chains of pending operations, before the next operation is built."""
        self.overdue = False
        # What is not deep waits: it may never be asked for, and then needs no memory.
        few = len(self.graph) < self._slack * self.pending_nodes
        self._send_off(Reason.OVERDUE, self.pending_depth / 2 if few else 0)

    def evaluate(self, *arrays: Holder) -> None:
        """Compute arrays, in as few requests as their dependencies allow.

        Parameters
        ----------
        *arrays : DistArray
            Arrays of this session. Pending expressions that share their passes are computed too.
        """
        self.compute(*arrays)

    def flush(self) -> None:
        """Send all pending operations to the servers without waiting for their replies.

        If an operation fails, it stays pending. It runs again when its value is needed, and raises
        its error there.
        """
        self._send_off(Reason.FLUSHED)

    def plan(self, *arrays: Holder) -> Template:
        """Return the execution plan of arrays without running it.

        Parameters
        ----------
        *arrays : DistArray
            Arrays of this session.

        Returns
        -------
        Template
            The plan with its cost: ``messages``, ``sweeps``. ``str`` describes it.
        """
        return self._plan([array.node for array in arrays]).template

    def evaluate_implicitly(self, array: Holder, what: str, *others: Holder) -> Any:
        """Evaluate an array because ordinary Python needs its value, and count it.

        Parameters
        ----------
        array : Handle
            The array.
        what : str
            The operation that needs the value, for the error.
        *others : Handle
            Arrays to evaluate with it.

        Returns
        -------
        object
            The value of the array.

        Raises
        ------
        RuntimeError
            Within ``strict()``, unless the value is known.
        """
        node = array.node
        if node.value is not None:
            return node.value
        if self._strict:
            raise RuntimeError(
                f"{what} at {call_site()} evaluates an array, which session.strict() forbids; "
                f"call distvec.evaluate(...) or .persist() before"
            )
        self.implicit_evaluations += 1
        return self.compute(array, *others)[0].value

    def transfer_implicitly(self, node: Node, what: str, count: int) -> None:
        """Count a transfer of elements that ordinary Python causes.

        Parameters
        ----------
        node : Node
            The expression that has the elements.
        what : str
            The operation that needs them, for the error.
        count : int
            Number of elements.

        Raises
        ------
        RuntimeError
            Within ``strict()``, unless the client stores the values.
        """
        if node.on_client:
            return  # scalars come with their evaluation
        if self._strict:
            raise RuntimeError(
                f"{what} at {call_site()} transfers {count} elements "
                f"({count * node.dtype.itemsize} "
                f"bytes) from the servers, which session.strict() forbids; write x.numpy() or "
                f"x.pull(indices) if you want that"
            )
        self.implicit_transfers += 1

    def upload_implicitly(self, size: int, what: str) -> None:
        """Count a copy of values to the servers that ordinary Python causes.

        Parameters
        ----------
        size : int
            Number of bytes.
        what : str
            The operation that needs the copy, for the error.

        Raises
        ------
        RuntimeError
            Within ``strict()``.
        ValueError
            If ``size`` exceeds ``upload_limit``.
        """
        if self._strict:
            raise RuntimeError(
                f"{what} at {call_site()} copies {size:,} bytes to the servers, which "
                f"session.strict() forbids; write session.array(values) before"
            )
        if size > self.upload_limit:
            raise ValueError(
                f"{what} at {call_site()} would copy {size:,} bytes to the servers, more than "
                f"session.upload_limit ({self.upload_limit:,}); copy the values once: "
                f"y = session.array(values)"
            )
        self.implicit_uploads += 1

    @contextmanager
    def strict(self) -> Iterator[None]:
        """Return a context in which implicit evaluations and transfers raise an error.

        Use it to find lines that evaluate by accident, such as ``if s > 0`` or ``np.asarray(x)``.

        Yields
        ------
        None
            Within the context such a line raises ``RuntimeError``, which names the line.
        """
        before, self._strict = self._strict, True
        try:
            yield
        finally:
            self._strict = before

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Return a context in which expressions may depend on variables and are not evaluated.

        Yields
        ------
        None
            Within the context a function is traced for its derivative.
        """
        with self.holders.lock:
            self._tracing += 1
        try:
            yield
        finally:
            with self.holders.lock:
                self._tracing -= 1

    @contextmanager
    def quiesce(self) -> Iterator[None]:
        """Return a context in which no program runs and no other thread evaluates.

        Failed programs are undone first: their arrays represent their expressions again.

        Yields
        ------
        None
            Within the context all arrays on the servers stay as they are.
        """
        with hold_lock(self._evaluating):
            with suppress(PSError):  # of what was sent: who asks for it hears of it
                self.client.wait()
            if self.holders.flights:
                self._land()
            yield

    def _plan(self, targets: Sequence[Node], *, alone: bool = False) -> Plan:
        """Plan ``targets``, with pending expressions unless ``alone``."""
        if self._tracing:
            refuse_variables(targets)
        return self.planner.plan(targets, [] if alone else self._computable(self.holders.pending()))

    def _computable(self, nodes: Iterable[Node]) -> list[Node]:
        """Return the nodes that may be computed before they are needed."""
        wanted = list(dict.fromkeys(nodes))
        if self._refused:
            wanted = [node for node in wanted if weakref.ref(node) not in self._refused]
        if self._tracing:
            traced = set(depending(wanted))
            wanted = [node for node in wanted if node not in traced]
        return wanted

    def compute(self, *arrays: Holder) -> list[Node]:
        """Compute arrays, and wait for all programs that are running.

        Parameters
        ----------
        *arrays : DistArray
            Arrays of this session.

        Returns
        -------
        list of Node
            The node of each array at the moment of its evaluation.
        """
        with hold_lock(self._evaluating) as hold:
            if self.make_room is not None:
                self.make_room()
            for array in arrays:
                _ = array.node  # that of a selection may take an evaluation of its own
            with self.holders.lock:
                nodes = [array.node for array in arrays]
                self.holders.asked = targets = list(dict.fromkeys(nodes))
            try:
                self.holders.wait_for(targets)
                unknown = [node for node in targets if node.value is None]
                if unknown or self.holders.flights:
                    self._run(targets, hold, Reason.ASKED)
            finally:
                self.holders.asked = ()
        return nodes

    def _run(
        self, targets: Sequence[Node], hold: defer_signals, reason: Reason, *, wait: bool = True
    ) -> None:
        """Give ``targets`` their values, by one plan, or more where one fails or is taken back."""
        alone, notes = False, list[str]()
        with measured(self.counters):
            while True:
                try:
                    missing = [node for node in targets if node.value is None]
                    plan = self._plan(missing, alone=alone) if missing else None
                    if plan is not None:
                        self.holders.wait_for(plan.nodes)
                    if self.holders.flights and self._land():
                        reason = Reason.TAKEN_BACK
                        continue  # what the plan builds upon was taken back
                    if plan is not None:
                        if notes:  # of this evaluation's plans only the last one is shown
                            plan = replace(plan, template=plan.template.with_notes(notes))
                        self._executor.execute(
                            plan,
                            self.planner.cancellation_limit,
                            reason=reason,
                            wait=wait,
                            between=hold.check,
                        )
                    break
                except Cancelled as cancelled:
                    reason = Reason.CANCELLED
                    notes.append(_CANCELLED.format(cancelled.programs, len(cancelled.products)))
                    self.cancellations += len(cancelled.products)
                    for product in cancelled.products:
                        self.planner.compute_directly(product)
                except (OutOfBudget, NothingToReduce, IndexError, LinAlgError):
                    if alone or not wait:
                        raise
                    # What was taken along must not make fail what was asked for. The error is gone
                    # with this block, and with it what its traceback keeps alive.
                    reason, alone, plan = Reason.ALONE, True, None
        if alone:
            self._refused.update(map(weakref.ref, self.holders.pending()))

    def _send_off(self, reason: Reason, least_depth: float = 0) -> None:
        """Compute what is pending and deep enough: without waiting, and without an error."""
        with hold_lock(self._evaluating) as hold:
            with self.holders.lock:
                pending = self.holders.pending()
                targets = self._computable(node for node in pending if node.depth >= least_depth)
                self.holders.asked = targets
            try:
                if targets:
                    self._run(targets, hold, reason, wait=False)
            except (PSError, NothingToReduce, IndexError, LinAlgError):
                self._refuse(targets)
            finally:
                self.holders.asked = ()

    def _land(self) -> bool:
        """Wait for all programs under way; whether one was taken back."""
        self.client.wait()
        flights = self.holders.flights[:]
        del self.holders.flights[: len(flights)]
        failed = [node for flight in reversed(flights) for node in flight.take_back(self.graph)]
        if failed:
            self._refuse(failed)
        else:
            self._slack = 1
        return bool(failed)

    def _refuse(self, nodes: Sequence[Node]) -> None:
        self._refused.update(map(weakref.ref, nodes))
        self._slack *= 2  # or each further operation would try again
