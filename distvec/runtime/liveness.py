"""Who holds values: arrays, the evaluation under way, and requests that may yet have failed. And so
which vectors a program may overwrite: those that have no holder any more once it has run.

A program that is sent without waiting gives its nodes their buffers as it leaves, so that the graph
does not grow meanwhile. Should it fail, they are pending again, with what they were computed from:
it was not asked for, so its failure is no error yet, and who asks for such a node hears of it.

``x = x - 0.1 * g`` makes a new vector while the old one dies. Where all the vectors that a program
stores can take over the memory of such dying ones (*donors*), it needs no memory of its own, and
the servers write in place. Only then: a program that gives memory away cannot be undone, and so
must not be one that fails on some server for want of memory.

The rule: A buffer never changes; the program that reads it last may only end it, and take over its
memory, if then no holder needs it. A holder needs the buffer it stands for, or those that it is
still to be computed from: a node that gets its value by the program at hand needs no other any
more. Who reads a buffer by its id has an array that stands for it, and an array gets the value of
another only under the holders' lock, under which it is decided here. What is written in place is no
buffer but a shared array of the servers, which no program can name.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from distvec.graph.node import Buffer, Graph, Node, NodeSnapshot, topological
from distvec.planner.plan import Plan, PlannedProgram
from ps_backend.program.row_ops import TABLE


class InFlightProgram:
    """One request under way, and the nodes that have values already which it is to make."""

    __slots__ = ("_before", "_failed", "_landed", "sending")

    def __init__(self) -> None:
        self.sending: Any = None
        """A lock that who changes an array holds until the end, for others that want its node."""
        self._landed = False
        self._failed = False
        self._before: list[tuple[Node, NodeSnapshot]] = []

    def end(self, error: Exception | None) -> None:
        """It was answered. Called by whichever thread waits for the answer."""
        self._failed, self._landed = error is not None, True
        if error is None:
            self._before.clear()  # now, so that what they were computed from is freed

    def remember(self, node: Node, snapshot: NodeSnapshot) -> None:
        """``node``, which gets its value now, is to be so again if the request fails."""
        self._before.append((node, snapshot))

    def snapshots(self) -> list[NodeSnapshot]:
        """What its nodes become if it fails."""
        return [snapshot for _, snapshot in list(self._before)]

    def take_back(self, graph: Graph) -> list[Node]:
        """If it failed, or never left, make its nodes what they were; returns these."""
        if self._landed and not self._failed:
            self._before.clear()
        nodes = []
        while self._before:
            node, snapshot = self._before.pop()
            graph.restore(node, snapshot)
            nodes.append(node)
        return nodes


class Holder(Protocol):
    """What stands for a node as long as somebody holds it: an array."""

    node: Node

    def rebind(self, node: Node) -> object:
        """Stand for another node."""


_FEW = 1024
"""So many may be noted of which nobody knows how many are gone."""

_Arrays = dict[int, weakref.ref[Holder]]


class LiveValues:
    """The arrays of one session, and what else must find its values again. Thread-safe.

    What an array holds is asked of the array when it matters, so that nothing has to be noted when
    it changes.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.lock: Any = threading.RLock()
        """Held by who makes an array of what another one stands for, and by who decides that memory
        is given away: so nobody has read a value then without holding it yet. Only for a moment:
        under it neither a program is waited for nor the end of an evaluation."""
        self.asked: Sequence[Node] = ()
        """What the evaluation under way is to compute."""
        self.flights: list[InFlightProgram] = []
        """Requests whose answers nobody has waited for yet."""
        self._changes: dict[Node, InFlightProgram] = {}
        """By the node that each makes: requests that a thread is sending, to change an array."""
        # Weak, since what nobody holds need never be computed.
        self._arrays: _Arrays = {}
        self._crowded = _FEW
        self._pending: _Arrays = {}

    def add(self, array: Holder) -> None:
        """Note an array, and whether a later evaluation may take along what it stands for."""
        key, reference = id(array), weakref.ref(array)
        arrays, pending = self._arrays, self._pending
        arrays[key] = reference
        if array.node.value is None and (known := pending.get(key)) is not reference:
            if known is not None:
                pending.pop(key, None)  # of an array that is gone
            pending[key] = reference
        if len(arrays) > self._crowded:
            self._crowded = _FEW + 2 * len(self._alive(self._arrays))
            self._alive(self._pending)

    def keep(self, holder: Holder) -> None:
        """Note what needs a node, but does not want its value to be stored along with others."""
        self._arrays[id(holder)] = weakref.ref(holder)

    def _alive(self, arrays: _Arrays) -> list[Holder]:
        """Those that somebody has still. The others are forgotten, as finalizers cost too much."""
        found = []
        with self.lock:
            for key, reference in list(arrays.items()):
                array = reference()
                if array is not None:
                    found.append(array)
                    continue
                now = arrays.pop(key, None)
                if now is not None and now() is not None:  # another thread's, made here since
                    arrays[key] = now
        return found

    def arrays(self) -> list[Holder]:
        """All arrays that somebody holds."""
        return self._alive(self._arrays)

    def pending(self) -> list[Node]:
        """Nodes without a value of arrays that a user holds, oldest first."""
        found = []
        for array in self._alive(self._pending):
            node = array.node
            if node.value is None:
                found.append(node)
            elif not self.flights:  # else it may be pending again
                self._pending.pop(id(array), None)
        return found

    @property
    def is_interrupted(self) -> bool:
        """Whether this thread has the lock already: a handler of a signal runs, and what it has
        interrupted may have read a value without holding it yet. Then none is to be given away."""
        return bool(self.lock._is_owned())

    def held(self, settled: Container[Node] = (), but: Holder | None = None) -> set[int]:
        """Ids of the buffers that somebody needs once the nodes ``settled`` have their values.

        A holder needs the buffer it stands for, or those that this is still to be computed from;
        ``but`` is a holder that does not count. Only under ``lock``.
        """
        roots = [array.node for array in self._alive(self._arrays) if array is not but]
        roots += self.asked
        found = set()
        for flight in [*self.flights, *self._changes.values()]:
            for before in flight.snapshots():
                roots += before.args if before.direct is None else (*before.args, before.direct)
                if before.op == "buffer":
                    found.add(before.value.id)
        unknown = []
        for node in roots:
            if not node.known:
                unknown.append(node)
            elif not node.on_client:
                found.add(node.value.id)
        below = topological(unknown, lambda node: node.known or node in settled)
        found.update(node.value.id for node in below if node.known and not node.on_client)
        return found

    def buffers(self) -> dict[int, Buffer]:
        """By id: those that arrays stand for, or are still to be computed from."""
        with self.lock:
            roots = [array.node for array in self._alive(self._arrays)]
            nodes = topological(roots, lambda node: node.known)
            return {node.value.id: node.value for node in nodes if isinstance(node.value, Buffer)}

    def forget_products(self) -> None:
        """Of buffers that arrays stand for: what is known of their inner products.

        What is known decides how later ones are computed, and so their last bits. Where a run may
        begin again nothing is known, so that it takes the same steps whatever was computed before.
        """
        for buffer in self.buffers().values():
            buffer.products.clear()

    @contextmanager
    def changing(self, array: Holder, leaf: Node, flight: InFlightProgram) -> Iterator[bool]:
        """In this block a request makes of the buffer that ``array`` is the one of ``leaf``.

        Gives whether nobody else holds the former, so that the request may write over it. The array
        is ``leaf`` at once; who evaluates that waits for the end of the block (``wait_for``). What
        fails is taken back. Only in the array's turn.
        """
        flight.sending = threading.RLock()
        with flight.sending:
            may_be_read = self.is_interrupted
            with self.lock:
                is_alone = not may_be_read and array.node.value.id not in self.held(but=array)
                flight.remember(leaf, self._graph.snapshot(leaf)._replace(value=array.node.value))
                self._changes[leaf] = flight
                array.rebind(leaf)
            try:
                yield is_alone
            except KeyboardInterrupt:  # broken off: the next evaluation asks how it ended
                self.flights.append(flight)
                raise
            except BaseException:
                flight.take_back(self._graph)
                raise
            finally:
                del self._changes[leaf]

    def wait_for(self, nodes: Iterable[Node | None]) -> None:
        """Until other threads have made those of ``nodes`` that they are about to make."""
        if not self._changes:
            return
        for node in nodes:
            flight = self._changes.get(node) if node is not None else None
            if flight is not None:
                with flight.sending:
                    pass


LEAST_BYTES = 1 << 20
"""Two copies of smaller vectors cost less than finding out whether one would do."""


def find_donors(holders: LiveValues, plan: Plan) -> dict[int, int]:
    """Per vector that the last program stores, the dying input whose memory it takes over.

    All as positions in ``plan.nodes``. Empty if the memory of dying inputs is not enough for all,
    or if the plan might have to be run again.
    """
    program = plan.template.programs[-1]
    planned = plan.template.values
    wanted = [position for sweep in program.sweeps for position in sweep.stores]
    if not wanted or min([planned[k].type.nbytes for k in wanted]) < LEAST_BYTES:
        return {}
    if program.before or program.after:
        return {}  # other servers may still fail
    for position in program.scalars:
        if planned[position].is_expanded:
            return {}  # an expanded inner product may cancel, and then its vectors are needed
    views = [view for sweep in program.sweeps for view in sweep.views if view is not None]
    by_index = any(view.index is not None for view in views)
    if by_index or any(sweep.structure.may_fail for sweep in program.sweeps):
        return {}  # an index may be out of range, on one server only
    # What two sweeps of the program read, the first must not write over.
    reads = Counter(position for sweep in program.sweeps for position in sweep.inputs)
    shared = {position for position, count in reads.items() if count > 1}
    dying = _find_dying(holders, plan) - _fetched_inputs(program) - shared
    donors: dict[int, int] = {}
    for sweep in program.sweeps:
        free = [position for position in sweep.inputs if position in dying]
        for position in sweep.stores:
            type = planned[position].type
            fitting = [donor for donor in free if planned[donor].type == type]
            if not fitting:
                return {}
            donors[position] = _best(plan, position, fitting)
            free.remove(donors[position])
    return donors


def _best(plan: Plan, position: int, fitting: list[int]) -> int:
    """Of arrays that are alike; one of which most stays as it is had best stay where it is."""
    planned = plan.template.values[position]
    if planned.op in TABLE and TABLE[planned.op].over:
        own = [donor for donor in fitting if donor == planned.args[0]]
        return (own or fitting)[0]
    return fitting[0]


def _fetched_inputs(program: PlannedProgram) -> set[int]:
    """What servers take from each other meanwhile, by its positions."""
    found = set()
    for sweep in program.sweeps:
        for position, view in zip(sweep.inputs, sweep.views, strict=True):
            if view is not None:
                found.add(position)
    return found


def _find_dying(holders: LiveValues, plan: Plan) -> set[int]:
    """Positions of the known vectors that nobody holds once ``plan`` has run.

    A buffer that two nodes stand for stays: the program would read it by the one while it writes
    over the other.
    """
    values = enumerate(plan.values)
    buffers = {position: value.id for position, value in values if isinstance(value, Buffer)}
    uses = Counter(buffers.values())
    if holders.is_interrupted:
        return set()
    with holders.lock:
        held = holders.held(settled=_nodes_settled_by(plan))
    return {position for position, id in buffers.items() if id not in held and uses[id] == 1}


def _nodes_settled_by(plan: Plan) -> set[Node]:
    """The nodes that have their values once ``plan`` has run."""
    positions = set(plan.template.before)
    for program in plan.template.programs:
        positions.update(program.scalars)
        positions.update(program.made)
        for sweep in program.sweeps:
            positions.update(sweep.stores)
            positions.update(sweep.reductions)
    settled = {node for position in positions if (node := plan.nodes[position]) is not None}
    settled.update(
        node
        for node, position in plan.aliases
        if plan.values[position] is not None or position in positions
    )
    return settled
