"""``run``: a training function in long Spark tasks, each at its own pace within a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark import RDD

from distvec import DistArray
from distvec.array.changing import turns_of
from distvec.keyed.array import KeyedArray
from distvec.spark.context import PSContext
from distvec.spark.interpreter import adopt
from distvec.spark.jobs.application import free_slots
from distvec.spark.loops.driver import Driver
from distvec.spark.loops.rollback import Kept, keeps, survived
from distvec.spark.loops.task import Train
from distvec.spark.loops.view import Progress, screen
from distvec.spark.rounds.round import check_arrays
from distvec.spark.shared_copies import SharedCopies
from ps_backend.client import defer_signals

Trained: TypeAlias = tuple[list[Any], int, Sequence[DistArray]]
"""The results by rank, the clocks that have ended, and what the arrays become."""


def run(
    train: Train,
    rdd: RDD[Any],
    *arrays: DistArray | KeyedArray,
    staleness: int | None = 0,
    patience: float = 60.0,
    progress: Progress = None,
    every: int = 20,
) -> list[Any]:
    """Run ``train(worker, *arrays)`` in long tasks over the partitions of ``rdd``, one a worker.

        def train(worker, w):
            for t in range(worker.now, 100):
                columns, gradient = ...
                w.push(columns, -0.1 * gradient(w.pull(columns)))
                worker.clock()

        results = run(train, rdd, w, staleness=1)

    Each worker counts clocks, which ``worker.clock()`` ends. A pull in clock c contains all that
    others pushed before clock ``c - staleness``, and waits for them if need be: 0 lets all go in
    lockstep (BSP; the same bits in each run), None lets nobody wait (ASP), a number between lets
    the fast run ahead so far (SSP). A worker sees its own pushes at once, others with its clock.
    See ``worker`` for what a training function can do, and docs/loops.md.

    A keyed array comes to ``train`` as it is: what is pushed to it is there for all at once, at
    least once, and stays, whatever ends the loop.

    Returns the results of ``train`` by rank. The ``arrays`` then stand for the trained values; an
    exception leaves them as they were. There are as many workers as free slots at most, so one may
    have the rows of several partitions. What they print arrives here while they run, each line
    after its rank: "[3] loss 0.25".

    A lost task is repeated by Spark, with ``worker.now`` at the clock where it was lost; each clock
    counts once. A worker that is not heard of for ``patience`` seconds is not waited for any more,
    with a warning; it may come back. One that takes more than three times as long as the others for
    its clocks is warned of. ``progress``: True for a bar, which is the default on a terminal, or
    what is called with the clocks of all ranks.

    Where the context has ``durability="rollback"``, the arrays are kept at the start, at the end,
    and after each ``every`` clocks, for which all workers stand still a moment (not while the last
    one is still being written). If a server is lost, alone or with workers, all begin again in new
    tasks, with ``worker.now`` at the clock of the newest checkpoint: each clock counts once, and in
    lockstep the bits are those of a run without a loss.

    Raises what ``train`` raised, with the trace of the task as its cause, once Spark has tried the
    task as often as it is told to; ``RuntimeError`` if the workers get too few slots or Spark gives
    up a task for another reason, and ``ServerLost`` if a server was lost with its part of the
    arrays.
    """
    _check(rdd, staleness, patience, every)
    ps = _session(arrays)
    if len({id(array) for array in arrays}) != len(arrays):
        raise ValueError("an array is given twice; each is trained once")
    own = [array for array in arrays if not isinstance(array, KeyedArray)]
    check_arrays(ps, own)
    if len(own) < len(arrays):
        train = WithKeyed(train, [one if isinstance(one, KeyedArray) else None for one in arrays])
    return _run(train, rdd, own, ps, staleness, patience, progress, every)


def _run(
    train: Train,
    rdd: RDD[Any],
    arrays: Sequence[DistArray],
    ps: PSContext,
    staleness: int | None,
    patience: float,
    progress: Progress,
    every: int,
) -> list[Any]:
    ps.make_way()
    adopt(rdd)
    size = min(rdd.getNumPartitions(), max(1, free_slots(ps.spark_context)))
    if not size:
        return []
    keeper = ps.durability.keeper(ps) if ps.durability.rolls_back else None
    with screen(progress) as shown:

        def attempt(starts: Sequence[DistArray], kept: Kept | None = None) -> Trained:
            copies = SharedCopies(ps, starts)
            began = 0 if kept is None else kept.clock
            running = Driver(ps, copies.arrays, size, staleness, patience, began)
            try:
                if kept is not None:
                    running.keep(every, keeps(kept, copies, every))
                running.start(train, rdd)
                results = running.wait(shown)
                running.close()
                ends = [DistArray(ps, node) for node in copies.snapshot(last=True)]
                return results, running.clock, ends
            except BaseException:
                running.stop()
                raise

        if keeper is None or not arrays:
            results, _, trained = attempt(arrays)
        else:
            kept = Kept(keeper, f"loop {ps.client.new_id()}", arrays)
            results, trained = survived(kept, lambda: attempt(kept.arrays, kept))
    with turns_of(arrays), defer_signals():  # all or none
        for array, end in zip(arrays, trained, strict=True):
            array.become(end.node)
    return results


@dataclass(frozen=True)
class WithKeyed:
    """A training function that gets keyed arrays among the others, each in its place."""

    train: Train
    given: Sequence[KeyedArray | None]
    """By place; None is one of the others."""

    def __call__(self, worker: Any, *arrays: Any) -> Any:
        """Train with all of them."""
        others = iter(arrays)
        return self.train(worker, *(next(others) if k is None else k for k in self.given))


def _session(arrays: Sequence[DistArray | KeyedArray]) -> PSContext:
    """That of the arrays; the active one of none."""
    found: set[Any] = {one.space.session for one in arrays if isinstance(one, KeyedArray)}
    found |= {one.session for one in arrays if isinstance(one, DistArray)}
    if len(found) > 1:
        raise ValueError("the arrays belong to several sessions; make them by one PSContext")
    ps = found.pop() if found else PSContext.active()
    if not isinstance(ps, PSContext):
        raise TypeError("the arrays are not of a PSContext; make them by ps.array(values)")
    return ps


def _check(rdd: RDD[Any], staleness: int | None, patience: float, every: int) -> None:
    if not isinstance(rdd, RDD):
        raise TypeError(f"run takes an RDD, got {type(rdd).__name__}; of a DataFrame pass df.rdd")
    whole = isinstance(staleness, int) and not isinstance(staleness, bool)
    if staleness is not None and (not whole or staleness < 0):
        raise ValueError(
            f"staleness={staleness!r}; allowed are 0 (lockstep), 1, 2, ... and None (no bound)"
        )
    if not patience > 0:
        raise ValueError(f"patience={patience!r}; give seconds, more than 0")
    if not every >= 1:
        raise ValueError(f"every={every!r}; give clocks between checkpoints, 1 or more")
