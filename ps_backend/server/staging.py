"""How a server runs a sweep call whose inputs are not all aligned.

Runs of blocks that find all inputs in place are computed from there, in one go. The others are
staged, batch by batch: what they read is copied into scratch memory that fits the cache, while what
the next batch reads is on its way from other servers. A kernel sees no difference. A sweep that
stores its inputs as they are needs no kernel: they are copied to where they are stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ps_backend.kernels import Kernel
from ps_backend.kernels.kernel import thread_count
from ps_backend.program import partials
from ps_backend.program.sweep import SweepCall
from ps_backend.program.views import INDEX_DTYPES, Span
from ps_backend.server.inputs import (
    Aligned,
    Array,
    Finish,
    GatherInput,
    Look,
    Scratch,
    Source,
    ViewInput,
    copy,
)
from ps_backend.server.peers import Asked, Neighbours
from ps_backend.server.sessions import ServerSession
from ps_backend.server.state.memory import Memory
from ps_backend.server.state.store import Buffer, Part
from ps_backend.wire import ps_pb2 as pb

_BATCH_BYTES = 2 << 20
"""What is staged for a batch by each thread, unless one block has more: it stays in the cache."""
_FETCHED_BYTES = 8 << 20
"""The same where some of it comes from other servers: fewer messages, larger ones."""
_SHARE = 32
"""But so much takes at most this part of the budget."""
_SMALL_BYTES = 64 << 20
"""Scratch memory that is counted, but not refused: it must not fail on one of several servers."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive slots that a kernel runs over at once; ``number`` counts those of a call."""

    number: int
    low: int
    high: int

    def is_in_place(self, source: Source) -> bool:
        """Whether all that it reads of ``source`` is."""
        first, last = source.extent
        return first <= self.low and self.high <= last


@dataclass(frozen=True, slots=True)
class _Begun:
    """A run for which other servers were asked, and what is left to do."""

    run: _Run
    inputs: list[Array]
    finishes: list[Finish]


class Staging:
    """One sweep call with views on this server; ``run`` it once."""

    def __init__(
        self, call: SweepCall, sources: Sequence[Source], here: Part, memory: Memory
    ) -> None:
        """Takes the scratch memory; raises ``OutOfBudget``."""
        self._call, self._sources, self._here = call, sources, here
        self._streams = any(source.streams for source in sources)
        self._only_moves = not call.donors and call.sweep.only_moves
        self._unit = 1 if call.sweep.is_by_slots else here.block_size
        self._batch_bytes = _BATCH_BYTES * thread_count()
        if self._streams or self._only_moves:
            most = min(_FETCHED_BYTES, memory.budget // _SHARE)
            self._batch_bytes = max(self._batch_bytes, most)
        self._runs = [_Run(number, *ends) for number, ends in enumerate(self._cut())]
        self._sets = self._scratch(memory)

    @property
    def longest(self) -> int:
        """Slots of the longest run."""
        return max(run.high - run.low for run in self._runs)

    def run(
        self, kernel: Kernel, outputs: Sequence[Buffer], neighbours: Neighbours, pause: Look
    ) -> list[Array]:
        """The partial results, as of one run of ``kernel`` over all blocks."""
        if self._only_moves:
            self._move(outputs, neighbours, pause)
            return []
        call, here = self._call, self._here
        done: list[partials.Run] = []
        begun = self._begin(self._runs[0], neighbours)
        for run in self._runs:
            for finish in begun.finishes:
                finish(pause)
            inputs, following = begun.inputs, self._runs[run.number + 1 : run.number + 2]
            if following and len(self._sets) > 1:  # it is on its way while this one is computed
                begun = self._begin(following[0], neighbours)
            first, last = run.low - here.low, run.high - here.low
            written = [buffer.array[first:last] for buffer in outputs]
            arguments = inputs, call.scalars, written, run.low, last - first, here.block_size
            done.append(partials.Run(run.low, last - first, kernel(*arguments, pause)))
            if following:
                pause()
                if len(self._sets) == 1:
                    begun = self._begin(following[0], neighbours)
        done.sort(key=lambda run: run.first)
        return partials.concatenate(call, done)

    def _move(self, outputs: Sequence[Buffer], neighbours: Neighbours, pause: Look) -> None:
        """Copy the inputs to the outputs; what the next run reads is on its way meanwhile."""
        begun: list[Finish] = []
        for run in self._runs:
            before, begun = begun, []
            for value, buffer in zip(self._call.sweep.outputs, outputs, strict=True):
                begun.append(self._begin_move(run, self._sources[value], buffer, neighbours))
            for finish in before:
                finish(pause)
            pause()
        for finish in begun:
            finish(pause)

    def _begin_move(
        self, run: _Run, source: Source, buffer: Buffer, neighbours: Neighbours
    ) -> Finish:
        first, last = run.low - self._here.low, run.high - self._here.low
        flat = buffer.array[first:last].reshape(-1)
        if first == last:
            return lambda _: None
        if run.is_in_place(source):
            return lambda _: copy(flat, source.take(run.low, run.high))
        return source.begin(run.low, run.high, Scratch(buffer.block, flat), neighbours)

    def _begin(self, run: _Run, neighbours: Neighbours) -> _Begun:
        inputs: list[Array] = []
        finishes: list[Finish] = []
        length = run.high - run.low
        scratches = self._sets[run.number % len(self._sets)]
        for source, scratch in zip(self._sources, scratches, strict=True):
            if not length:
                flat = np.empty(0, source.dtype)
            elif run.is_in_place(source) or scratch is None:
                flat = source.take(run.low, run.high)
            else:
                finishes.append(source.begin(run.low, run.high, scratch, neighbours))
                flat = scratch.flat[: length * source.width]
            inputs.append(flat.reshape(length, *source.row))
        return _Begun(run, inputs, finishes)

    def _cut(self) -> Iterator[tuple[int, int]]:
        """The first slot, and that past the last, of each run: that in place, then batches.

        So what is fetched for the borders has the time of the rest.
        """
        here, size = self._here, self._unit
        low = max([here.low, *(source.extent[0] for source in self._sources)])
        high = min([here.high, *(source.extent[1] for source in self._sources)])
        low = -(-low // size) * size
        if high < here.high:
            high = high // size * size
        if low >= high:
            low = high = here.high
        if low < high or here.low == here.high:  # a run of nothing leaves partial results, too
            yield low, high
        yield from self._batches(here.low, low)
        yield from self._batches(high, here.high)

    def _batches(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        size, whole = self._unit, _Run(0, low, high)
        staged = [source for source in self._sources if not whole.is_in_place(source)]
        block = size * sum(source.row_bytes for source in staged)
        step = max(1, self._batch_bytes // max(1, block)) * size
        for first in range(low, high, step):
            yield first, min(first + step, high)

    def little(self) -> Iterator[tuple[ViewInput, Span]]:
        """What to ask for at the start of the program, as it is so little."""
        for source in self._sources:
            if isinstance(source, ViewInput) and source.has_little:
                for run in self._runs:
                    if not run.is_in_place(source):
                        yield from ((source, one) for one in source.little(run.low, run.high))

    def _scratch(self, memory: Memory) -> list[list[Scratch | None]]:
        """Memory for the inputs that are not always in place, as often as batches are alive."""
        if self._only_moves:
            return []
        sets = 2 if self._streams else 1
        lengths = []
        for source in self._sources:
            staged = [run for run in self._runs if not run.is_in_place(source)]
            longest = max((run.high - run.low for run in staged), default=0)
            lengths.append(longest * source.row_bytes)
        sizes = [size for size in lengths if size] * sets
        small = sum(sizes) <= _SMALL_BYTES
        blocks = iter(memory.allocate(sizes, "staging the views of a program", force=small))
        return [
            [
                Scratch.over(next(blocks), source.dtype) if size else None
                for source, size in zip(self._sources, lengths, strict=True)
            ]
            for _ in range(sets)
        ]


def stage(session: ServerSession, call: SweepCall, inputs: Sequence[Buffer | None]) -> Staging:
    """How ``call`` finds its inputs here; ``inputs``: the aligned ones.

    Raises ``BufferLost``, ``InvalidProgram``, ``IndexError``, ``OutOfBudget``.
    """
    here = session.part_of(call.space, "bool", ())
    sources: list[Source] = []
    arguments = zip(call.inputs, call.sweep.inputs, call.views, inputs, strict=True)
    for number, value, view, buffer in arguments:
        if buffer is not None:
            sources.append(Aligned(value, buffer))
        elif view is not None and view.index:
            parts = (session.part_of(call.space, dtype, ()) for dtype in INDEX_DTYPES)
            index = session.store.get_one_of(view.index, parts)
            sources.append(GatherInput(value, view, number, session, index))
        elif view is not None:
            sources.append(ViewInput(value, view, number, session, here))
    return Staging(call, sources, here, session.store.memory)


def fetch_little(
    stagings: Iterable[Staging], memory: Memory, neighbours: Neighbours
) -> list[Asked]:
    """Ask for the little that they need, by one message to each server that has some of it."""
    wanted: dict[int, list[tuple[ViewInput, Span]]] = defaultdict(list)
    for staging in stagings:
        for source, span in staging.little():
            wanted[span.server].append((source, span))
    asked: list[Asked] = []
    for server, some in wanted.items():
        sizes = [span.size * source.dtype.itemsize for source, span in some]
        what = "reading from another server"
        (block,) = memory.allocate([sum(sizes)], what, force=sum(sizes) <= _SMALL_BYTES)
        body = pb.Fetch(pieces=[source.describe(span) for source, span in some])
        answer = neighbours.ask(server, "fetch", body, block.bytes.data, keep=block)
        low = 0
        for (source, span), size in zip(some, sizes, strict=True):
            source.hold(span, answer, block.bytes[low : low + size])
            low += size
        asked.append(answer)
    return asked
