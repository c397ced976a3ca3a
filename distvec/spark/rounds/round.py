"""Rounds: tasks contribute to arrays, and each partition counts once, whatever Spark repeats.

    with ps.round(g) as r:
        rdd.foreachPartition(lambda rows: r.push(*gradient_of(rows)))

A task's contributions wait on the servers, under a number that no other run of a task has; see
``contribute`` for how the driver learns which count. At the end of the block one commit combines
them with the arrays, in the order of the partitions: the bits do not depend on who came first.
"""

from __future__ import annotations

import threading
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn, TypeAlias, TypeVar

from distvec import DistArray
from distvec.array.core.handle import Handle, lock_in_order
from distvec.diagnostics.profile import measured
from distvec.keyed.array import KeyedArray
from distvec.keyed.space import KeyedSpace
from distvec.spark.rounds.contribute import Contributor, KeyedContributor, Sender
from distvec.spark.task_session import Report, TaskSession
from ps_backend.client import OPERATIONS, Client, Total, Winner, defer_signals
from ps_backend.errors import PSError, RoundLost, ServerLost

T = TypeVar("T")


class Block(AbstractContextManager[T]):
    """A context manager that tells who uses it without ``with`` what to type."""

    def __init__(self, manager: AbstractContextManager[T], example: str) -> None:
        self._manager, self._example = manager, example

    def __enter__(self) -> T:
        return self._manager.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._manager.__exit__(kind, error, trace)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name!r} is available inside of the block only: {self._example}")

    def __reduce__(self) -> Any:
        raise TypeError(f"tasks need the object that the block yields: {self._example}")


_NO_TASK = (
    "no task contributed to the round, so its arrays are unchanged; Spark runs a "
    "mapPartitions(...) only when an action needs it: call rdd.foreachPartition(...), or another "
    "action, inside of 'with ps.round(...)'"
)


class RanInStages(RuntimeError):
    """A function that contributes ran in several stages, which nothing tells from a repetition."""


Contributes: TypeAlias = Contributor | KeyedContributor
Shared: TypeAlias = DistArray | KeyedArray


@dataclass(frozen=True)
class Slots:
    """Which slot of a round is for what: one for each plain array, one for each keyed space."""

    arrays: Mapping[int, DistArray]
    spaces: Mapping[int, KeyedSpace]

    @classmethod
    def of(cls, arrays: Sequence[Shared]) -> tuple[Slots, list[int]]:
        """Of the arrays of a round; and the slot of each of them."""
        plain: dict[int, DistArray] = {}
        spaces: dict[Any, int] = {}
        chosen = []
        for one in arrays:
            slot = len(plain) + len(spaces)
            if isinstance(one, KeyedArray):
                slot = spaces.setdefault(one.space, slot)
            else:
                plain[slot] = one
            chosen.append(slot)
        return cls(plain, {slot: space for space, slot in spaces.items()}), chosen


@contextmanager
def open_round(
    ps: TaskSession, arrays: Sequence[Shared], op: str
) -> Iterator[Contributes | tuple[Contributes, ...]]:
    """A round over ``arrays``: the contributor of one or those of several; see PSContext.round."""
    if op not in OPERATIONS:
        raise ValueError(f"op={op!r}; allowed are {', '.join(map(repr, OPERATIONS))}")
    if not arrays:
        raise TypeError("a round needs at least one array: ps.round(g)")
    check_arrays(ps, [one for one in arrays if not isinstance(one, KeyedArray)])
    for one in arrays:
        if isinstance(one, KeyedArray):
            check_keyed(ps, one)
    if len({id(array) for array in arrays}) != len(arrays):
        raise ValueError("an array is given twice; give each array once")
    slots, chosen = Slots.of(arrays)
    count = len(slots.arrays) + len(slots.spaces)
    sender = Sender(ps.access, str(ps.client.new_id()), count, ps.reports)
    with ps._at_work("a round"):
        try:
            contributors = tuple(
                KeyedContributor(sender, slot, one, op)
                if isinstance(one, KeyedArray)
                else Contributor(sender, slot, one.type)
                for one, slot in zip(arrays, chosen, strict=True)
            )
            yield contributors[0] if len(arrays) == 1 else contributors
            sender.is_over = True
            reports = ps.reports.value.pop(sender.name, None)
            commit(ps, slots, op, sender.name, winning_reports(reports or []))
        except BaseException as error:
            sender.is_over = True
            ps.reports.value.pop(sender.name, None)
            abandon(ps.client, sender.name, error)
            if isinstance(error, ServerLost):
                raise _round_lost(error) from error
            raise
    if reports is None:
        warnings.warn(_NO_TASK, stacklevel=4)  # the end of the user's block


def _round_lost(error: ServerLost) -> RoundLost:
    lost = RoundLost(
        f"{error}\nContributions to the round were lost with it, and its arrays are unchanged. "
        "Run the block again once the arrays are restored, or use "
        "ps.accumulate(rdd, function, into=g), which repeats a round itself"
    )
    lost.resume_from = error.resume_from
    return lost


def winning_reports(reports: Iterable[Report]) -> list[Report]:
    """The reports that count, in the order of their closures and partitions.

    Of a partition whose task succeeded several times (a stage before a shuffle may be run again)
    the last attempt counts, as it is the one whose output Spark goes on with. RanInStages if one
    closure ran in several stages: nothing tells a repetition from another use.
    """
    stages: dict[int, set[int]] = defaultdict(set)
    latest: dict[tuple[int, int], int] = defaultdict(lambda: -1)
    known = list(reports)
    for report in known:
        stages[report.closure].add(report.stage)
        key = report.closure, report.partition
        latest[key] = max(latest[key], report.attempt)
    for ran in stages.values():
        if len(ran) > 1:
            raise RanInStages(
                f"a function that contributes to the round ran in stages {sorted(ran)} of Spark: a "
                "later action repeated a lost stage, or several actions evaluated one RDD or UDF; "
                "contribute in an action (rdd.foreachPartition), or run one action in a round"
            )
    winners = [one for one in known if one.attempt == latest[one.closure, one.partition]]
    return sorted(winners, key=lambda one: (one.closure, one.partition))


def commit(ps: TaskSession, slots: Slots, op: str, name: str, winners: Sequence[Report]) -> None:
    """Combine the arrays of ``slots`` with what the ``winners`` staged; all of them or none."""
    arrays = list(slots.arrays.values())

    def ordered(slot: int) -> list[Winner]:
        return [Winner(one.partition, one.run, one.counts[slot]) for one in winners]

    with lock_in_order(arrays):  # from reading them on: another round's thread may end one, too
        ps.evaluate(*arrays)  # at once, in common messages
        sources = [array.buffer for array in arrays]
        buffers = [ps.new_buffer(array.type) for array in arrays]
        totals = [
            Total(buffer.id, buffer.type, ordered(slot), source=source.id, op=op, slot=slot)
            for slot, source, buffer in zip(slots.arrays, sources, buffers, strict=True)
        ]
        # A checkpoint has all of the round or nothing, also where that changes keyed spaces.
        with ps.quiesce(), measured(ps.counters), defer_signals():
            ps.client.commit_totals(name, totals, {slot: ordered(slot) for slot in slots.spaces})
            for array, buffer in zip(arrays, buffers, strict=True):
                array.rebind(ps.graph.leaf(buffer))


def abandon(client: Client, name: str, error: BaseException) -> None:
    """Forget a round that ``error`` ended, which says more than a failure to forget would."""
    if isinstance(error, ServerLost):
        # The driver would wait for that server, too, before it knew that it is lost.
        threading.Thread(target=_drop, args=(client, name), daemon=True).start()
    else:
        _drop(client, name)


def _drop(client: Client, name: str) -> None:
    try:
        client.drop_round(name)
    except PSError:
        return


def check_arrays(ps: TaskSession, arrays: Sequence[DistArray]) -> None:
    """TypeError or ValueError unless all are vectors or tables of ``ps``, for tasks to add to.

    Small ones that the client keeps are on the servers from here on.
    """
    for array in arrays:
        if not isinstance(array, Handle) or array.is_split_by_columns:
            is_table = isinstance(array, Handle)
            hint = "give the table, x.T" if is_table else "create one: ps.array(values)"
            raise TypeError(f"{type(array).__name__} is not a DistArray; {hint}")
        if array.session is not ps:
            raise ValueError(
                "the array was created by another session than this PSContext; copy it: "
                "ps.array(x.numpy())"
            )
        if array.ndim == 0:
            raise TypeError("tasks share vectors and tables; for a number use a vector of length 1")
    for array in arrays:
        array.move_to_servers()


def check_keyed(ps: TaskSession, array: KeyedArray) -> None:
    """ValueError unless a keyed array is of ``ps``."""
    if array.space.session is not ps:
        raise ValueError(
            "the keyed array was created by another session than this PSContext; create it with "
            "this one, or copy it with dv.save and dv.load"
        )
