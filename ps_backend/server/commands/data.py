"""What a server does for each kind of request that concerns a session's data.

Each command takes the session, the request and its payload. It checks first and changes the store
last, so a command that raises has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from ps_backend.limits import MOST_FORCED_BYTES
from ps_backend.server.session import Session
from ps_backend.server.state.memory import Block, Memory
from ps_backend.server.state.rounds import Contribution
from ps_backend.server.state.store import Buffer, Part
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import Parts, byte_view, copy_chunks
from ps_backend.wire.errors import PayloadBroken
from ps_backend.wire.rounds import OPERATIONS, Key, Winner

INDEX_BYTES = 8


def _wanted() -> bool:
    return True


@dataclass(slots=True)
class Payload:
    """The bulk data that comes with a request: ``size`` bytes in ``chunks``, to be read once."""

    size: int
    chunks: Iterable[memoryview]
    wanted: Callable[[], bool] = _wanted
    """Whether the sender still waits for the answer."""

    def expect(self, size: int) -> None:
        """Raise ``PayloadBroken`` if another size was announced; wait for the first of it.

        Asked before memory is taken: what is announced, and does not come, must take none.
        """
        if self.size != size:
            raise PayloadBroken(f"{self.size} bytes of payload announced, {size} expected")
        if size:
            chunks = iter(self.chunks)
            first = next(chunks, None)
            if first is None:
                raise PayloadBroken(f"0 of {size} bytes of payload came")
            self.chunks = chain((first,), chunks)

    def into(self, target: memoryview) -> None:
        """Copy into ``target``, of the size that was expected; ``PayloadBroken`` if less comes."""
        copy_chunks(self.chunks, target)


@dataclass(slots=True)
class Outcome:
    """A reply, with bulk data that lies in memory which ``keep`` holds until it is sent."""

    reply: pb.Reply
    parts: Parts = ()
    keep: Sequence[Buffer | Block] = field(default=())


Command = Callable[[Session, pb.Request, Payload], Outcome]


# --- dense ----------------------------------------------------------------------------------------


def write(session: Session, request: pb.Request, payload: Payload) -> Outcome:
    """A new buffer with the values that came along."""
    part = session.part(request.write.array)
    payload.expect(part.nbytes)
    (buffer,) = session.store.new([part], "writing an array")
    payload.into(byte_view(buffer.array))
    session.store.put({request.write.array.buffer: buffer})
    return Outcome(pb.Reply())


def read(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """All values of a buffer, straight from its memory."""
    array = request.read.array
    buffer = session.store.get(array.buffer, session.part(array))
    parts = [byte_view(buffer.array)]
    return Outcome(pb.Reply(payload=len(parts[0])), parts, [buffer])


# --- sparse ---------------------------------------------------------------------------------------


def loose_rows(part: Part, count: int) -> Part:
    """The type of ``count`` loose rows of an array."""
    return Part(part.space, part.type, 0, count)


def _pairs(
    memory: Memory, part: Part, count: int, payload: Payload, what: str, *, force: bool = False
) -> Contribution:
    """Indices and rows from the payload, the indices checked and made local."""
    rows = loose_rows(part, count)
    cut = count * INDEX_BYTES
    payload.expect(cut + rows.nbytes)
    (block,) = memory.allocate([cut + rows.nbytes], what, force=force)
    payload.into(byte_view(block.bytes))
    indices = block.bytes[:cut].view(np.int64)
    localize(indices, part)
    values = block.bytes[cut:].view(np.dtype(part.type.dtype)).reshape(rows.shape)
    return Contribution(part.space.length, indices, values, block)


def localize(indices: np.ndarray, part: Part) -> None:
    """Make global ``indices`` count from the part's first row; ``IndexError`` if one is outside."""
    if indices.size and not (part.low <= indices.min() and indices.max() < part.high):
        raise IndexError(
            f"indices {indices.min()} .. {indices.max()} are not all in {part.low} .. "
            f"{part.high - 1}, which this server holds of a space of length {part.space.length}"
        )
    indices -= part.low


def gather(session: Session, request: pb.Request, payload: Payload) -> Outcome:
    """The rows at the indices that came along, in their order."""
    body = request.gather
    part = session.part(body.array)
    buffer = session.store.get(body.array.buffer, part)
    rows = loose_rows(part, body.count)
    payload.expect(body.count * INDEX_BYTES)
    blocks = session.store.memory.allocate(
        [body.count * INDEX_BYTES, rows.nbytes], "gathering from an array"
    )
    payload.into(byte_view(blocks[0].bytes))
    indices = blocks[0].array(np.dtype(np.int64), (body.count,))
    localize(indices, part)
    found = blocks[1].array(np.dtype(part.type.dtype), rows.shape)
    np.take(buffer.array, indices, axis=0, out=found, mode="clip")  # "raise" would copy first
    return Outcome(pb.Reply(payload=rows.nbytes), [byte_view(found)], blocks)


def scatter_add(session: Session, request: pb.Request, payload: Payload) -> Outcome:
    """A new buffer: the source with rows added at indices, in the order given."""
    body = request.scatter_add
    store, part = session.store, session.part(body.array)
    source = store.get(body.array.buffer, part)
    store.refuse_taken([body.target])
    if body.round:
        (pairs,) = session.rounds.winners(body.round, 0, [Winner(0, 0)], part.space.length)
    else:
        # Where the other servers gave the source away, this one must not refuse for so little.
        force = body.donate and payload.size <= MOST_FORCED_BYTES
        pairs = _pairs(store.memory, part, body.count, payload, "adding to an array", force=force)
    if body.donate:
        target = source
    else:
        (target,) = store.new([part], "adding to an array")
        np.copyto(target.array, source.array)
    pairs.combine_into(target.array, np.add)
    if body.round:
        session.rounds.drop(body.round)
    store.put({body.target: target}, instead_of=[body.array.buffer] if body.donate else [])
    return Outcome(pb.Reply())


def update(session: Session, request: pb.Request, payload: Payload) -> Outcome:
    """Add rows to a buffer in place, one request at a time: it is one that programs never read."""
    body = request.update
    store, part = session.store, session.part(body.array)
    buffer = store.get(body.array.buffer, part)
    pairs = _pairs(store.memory, part, body.count, payload, "adding to an array")
    with store.updating:
        pairs.combine_into(buffer.array, np.add)
    return Outcome(pb.Reply())


# --- rounds ---------------------------------------------------------------------------------------


def stage(session: Session, request: pb.Request, payload: Payload) -> Outcome:
    """Keep a contribution to a round until it is committed or dropped."""
    body = request.stage
    memory, part = session.store.memory, session.part(body.array)
    if body.dense:
        contribution = _all_rows(memory, part, payload)
    else:
        contribution = _pairs(memory, part, body.count, payload, "staging to a round")
    key = Key(body.partition, body.attempt, body.slot, body.number)
    session.rounds.stage(body.round, key, contribution)
    return Outcome(pb.Reply())


def _all_rows(memory: Memory, part: Part, payload: Payload) -> Contribution:
    payload.expect(part.nbytes)
    (block,) = memory.allocate([part.nbytes], "staging to a round")
    payload.into(byte_view(block.bytes))
    values = block.array(np.dtype(part.type.dtype), part.shape)
    return Contribution(part.space.length, None, values, block)


def commit(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """New buffers: zeros or the sources, combined with what the winners staged."""
    body, store = request.commit, session.store
    staged = [_staged(session, body.round, total) for total in body.totals]
    parts = [session.part(total.target) for total in body.totals]
    sources = [
        store.get(total.source, part) if total.HasField("source") else None
        for total, part in zip(body.totals, parts, strict=True)
    ]
    numbers = [total.target.buffer for total in body.totals]
    store.refuse_taken(numbers)
    targets = store.new(parts, "committing a round")
    for total, target, source, winners in zip(body.totals, targets, sources, staged, strict=True):
        np.copyto(target.array, 0 if source is None else source.array)
        for winner in winners:
            winner.combine_into(target.array, OPERATIONS[total.op])
    store.put(dict(zip(numbers, targets, strict=True)))
    # Another server may refuse, and then this one has to take it back.
    kept = session.rounds.close(body.round, undo=session.servers > 1)
    return Outcome(pb.Reply(kept=kept))


def _staged(session: Session, round: str, total: pb.Total) -> list[Contribution]:
    if total.op not in OPERATIONS:
        raise ValueError(f"op={total.op!r}; a round combines by one of {', '.join(OPERATIONS)}")
    winners = [Winner(one.partition, one.attempt, one.contributions) for one in total.winners]
    return session.rounds.winners(round, total.slot, winners, total.target.length)


def reopen(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """Take back a commit that another server refused."""
    session.store.free(request.reopen.targets)
    session.rounds.reopen(request.reopen.round)
    return Outcome(pb.Reply())


def drop_round(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """End a round without a result."""
    session.rounds.drop(request.drop_round.round)
    return Outcome(pb.Reply())


def nothing(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """The frees that came along were all that was wanted."""
    return Outcome(pb.Reply())


# --- the board ------------------------------------------------------------------------------------


def post(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """A new value of a topic."""
    version = session.board.post(request.post.topic, request.post.value)
    return Outcome(pb.Reply(posted=pb.Posted(version=version)))


def await_post(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """A topic's value, as soon as there is a new one."""
    body = request.await_post
    found = session.board.wait(body.topic, body.after, body.seconds)
    posted = pb.Posted() if found is None else pb.Posted(version=found.version, value=found.value)
    return Outcome(pb.Reply(posted=posted))


def answer(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """Answers to a topic's value; repeating this changes nothing."""
    body = request.answer
    session.board.answer(body.topic, body.version, body.answers)
    return Outcome(pb.Reply())


def await_answers(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """The answers to a topic's value, as soon as there are enough."""
    body = request.await_answers
    answers = session.board.answers(body.topic, body.version, body.count, body.seconds)
    return Outcome(pb.Reply(posted=pb.Posted(version=body.version, answers=answers)))


def close_topic(session: Session, request: pb.Request, _: Payload) -> Outcome:
    """End a topic and all waits on it."""
    session.board.close_topic(request.close_topic.topic)
    return Outcome(pb.Reply())
