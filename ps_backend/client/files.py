"""Arrays that outlive their servers or their driver: pinned, saved, loaded, named for others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from ps_backend.client.connection import Connection
from ps_backend.client.journal import Journal
from ps_backend.client.requests import Messages, StoredArray
from ps_backend.durability.file_checksums import FileRange
from ps_backend.errors import OutOfBudget, PSError
from ps_backend.program.types import ArrayType, dtype_of, stored_type
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import decode_piece, encode_array, encode_piece, space_of
from ps_backend.wire.keyed import SpaceCopy, decode_copy

_ALL: Mapping[int, Collection[int]] = MappingProxyType({})
_MOST_AT_ONCE = 256
"""Arrays in one message: their checksums take some KiB each."""


@dataclass(frozen=True, slots=True)
class Source:
    """A buffer that is to be made of rows in files of one store."""

    buffer: int
    type: ArrayType
    store: str
    pieces: Sequence[FileRange]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a server writes to."""

    file: str
    head: bytes
    """What the file begins with: another one of its name, on another machine, does not."""
    offsets: Mapping[int, int]
    """By id: of the first row that the server has."""


class WantedSpace(NamedTuple):
    """A keyed space of which a copy is to be kept."""

    number: int
    waiting: int
    """What its counters of keys that are not admitted yet are called."""
    known: Sequence[int]
    """By server: where this is the mark of its content still, no copy is needed."""


class Pinned(NamedTuple):
    """What is kept."""

    arrays: dict[int, ArrayType]
    """By their ids."""
    spaces: dict[int, list[SpaceCopy]]
    """Keyed ones that all servers have, by number: by server."""


class Files(Connection):
    """What a client can ask that concerns files of arrays, and their names for another driver."""

    _settled = 0
    """The number of the list of names that all servers have; 0: none."""
    _newest = 0
    """The greatest number that a list was given."""

    @property
    def resume_from(self) -> str | None:
        """Where the session has a checkpoint, if it has: ``ServerLost`` says so."""
        return self._fan_out.resume_from

    @resume_from.setter
    def resume_from(self, where: str | None) -> None:
        self._fan_out.resume_from = where

    @property
    def lives(self) -> tuple[int, ...]:
        """How often each server was replaced, as far as known. No message."""
        return tuple(link.transport.generation for link in self._fan_out.links)

    # --- replay -----------------------------------------------------------------------------------

    def keep_journal(self) -> Journal:
        """From now on requests are noted, to be sent again once a server was lost."""
        return self._fan_out.keep_journal()

    @property
    def journal(self) -> Journal | None:
        """The requests since the last checkpoint, if they are noted."""
        return self._fan_out.journal

    def empty(self) -> None:
        """Let no server have anything of the session. One message a server."""
        self._send(self._requests.to_all("custom", name="empty_session"))

    # --- files ------------------------------------------------------------------------------------

    def pin(self, name: str, spaces: Sequence[WantedSpace] = ()) -> Pinned:
        """Keep, under ``name``, all buffers that the session has now, and copies of ``spaces``.

        Programs go on, and write over no buffer; memory that they give up stays taken until
        ``unpin``. Of a keyed space each server copies all rows at one moment. ``save`` finds them
        by the numbers of the arrays, and the keys by that of the space. Waits first for what was
        run with ``wait=False``. One message a server. ``OutOfBudget`` where copies have no room.
        """
        self.wait()
        with suppress(PSError):
            self._unpin_all()
        try:
            messages = self._requests.to_all("pin", name=name)
            for server, message in messages.items():
                message.request.pin.spaces.extend(
                    pb.PinKeys(space=one.number, waiting=one.waiting, known=one.known[server])
                    for one in spaces
                )
            replies = self._send(messages, recorded=False)
        except BaseException:
            self._pinned.add(name)  # some have it
            raise
        found: dict[int, ArrayType] = {}
        counts: dict[int, int] = {}
        for reply in replies.values():
            for array in reply.pinned.arrays:
                counts[array.buffer] = counts.get(array.buffer, 0) + 1
                if array.buffer not in found:
                    found[array.buffer] = type_of(array)
        # One that is being freed, and was on some servers already, is no array any more.
        arrays = {
            number: type
            for number, type in found.items()
            if counts[number] >= len(type.space.holders(self.servers))
        }
        copies: dict[int, list[SpaceCopy]] = {}
        for server in sorted(replies):
            for copy in replies[server].pinned.spaces:
                copies.setdefault(copy.space, []).append(decode_copy(copy))
        whole = {number: some for number, some in copies.items() if len(some) == self.servers}
        return Pinned(arrays, whole)

    def unpin(self, name: str) -> None:
        """Keep them no longer. One message a server; if it fails, the next pin says it again."""
        self._pinned.add(name)
        self._unpin_all()

    def _unpin_all(self) -> None:
        for name in list(self._pinned):
            self._send(self._requests.to_all("pin", name=name, over=True), recorded=False)
            self._pinned.discard(name)

    @cached_property
    def _pinned(self) -> set[str]:
        """What no server needs to keep any more, and some may."""
        return set()

    def save(
        self,
        arrays: Mapping[int, ArrayType],
        names: Mapping[int, str],
        store: str,
        files: Sequence[str],
        *,
        pin: str = "",
        spares: Sequence[str] = (),
        only: Mapping[int, Collection[int]] = _ALL,
    ) -> dict[int, tuple[FileRange, ...]]:
        """Each server writes its rows of ``arrays`` to its file of ``files`` in ``store``.

        The files are new, and durable on return; ``names`` are those in the files. ``pin``: under
        which the arrays are kept; ``spares``: files that nobody needs, of which each server may
        write over one that it wrote. ``only``: of these arrays, by id, only what these servers
        have. Where the rows are, by the ids of the arrays. One message a server. Raises
        ``StoreFailed``, ``BufferLost``.
        """
        held = {}
        for server, mine in self._held(arrays).items():
            if here := [number for number in mine if server in only.get(number, (server,))]:
                held[server] = here
        messages: Messages = {
            server: self._requests.message(
                "save",
                store=store,
                file=files[server],
                arrays=[encode_array(number, arrays[number]) for number in mine],
                names=[names[number] for number in mine],
                pin=pin,
                spares=spares,
            )
            for server, mine in held.items()
        }
        return _pieces(held, arrays, self._send(messages, recorded=False))

    def save_into(
        self, arrays: Mapping[int, ArrayType], store: str, targets: Mapping[int, Target]
    ) -> dict[int, tuple[FileRange, ...]]:
        """Each server writes its rows of ``arrays`` into the file of its target, by server.

        The files are there already, and long enough; all may be one. As ``save``, and
        ``StoreUnseen`` where a server does not find its file, or may not write there.
        """
        held = self._held(arrays)
        messages: Messages = {
            server: self._requests.message(
                "save",
                store=store,
                file=targets[server].file,
                arrays=[encode_array(number, arrays[number]) for number in mine],
                names=[""] * len(mine),
                offsets=[targets[server].offsets[number] for number in mine],
                head=targets[server].head,
            )
            for server, mine in held.items()
        }
        return _pieces(held, arrays, self._send(messages, recorded=False))

    def check_room(self, types: Iterable[ArrayType], what: str) -> None:
        """``OutOfBudget`` where a server has no room for arrays of ``types`` now.

        One message a server, which reserves nothing. ``what`` begins the error.
        """
        needed = [0] * self.servers
        for type in types:
            for server in type.space.holders(self.servers):
                low, high = type.space.range_of(server, self.servers)
                needed[server] += (high - low) * type.width * type.dtype.itemsize
        for server, status in enumerate(self.status()):
            if status.used + needed[server] > status.budget:
                raise OutOfBudget(
                    f"{what} needs {needed[server]} bytes on server {server}, but {status.used} of "
                    f"the allowed {status.budget} are in use; free arrays, use more servers, or "
                    "start them with more --memory"
                )

    def load(self, sources: Iterable[Source]) -> None:
        """Make buffers of what was saved, under their ids; those that are there already stay.

        Each server reads its own rows, and checks them. One message a server for 256 arrays.
        Raises ``StoreFailed``, ``Corrupted``, ``OutOfBudget``.
        """
        rest = list(sources)
        for start in range(0, len(rest), _MOST_AT_ONCE):
            some = rest[start : start + _MOST_AT_ONCE]
            messages: Messages = {}
            for server, mine in self._held({one.buffer: one.type for one in some}).items():
                wanted = [saved_on(server, self.servers, one) for one in some if one.buffer in mine]
                messages[server] = self._requests.message("load", arrays=wanted)
            self._send(messages, recorded=False)

    def _held(self, arrays: Mapping[int, ArrayType]) -> dict[int, list[int]]:
        """By server: which of them it holds some rows of."""
        held: dict[int, list[int]] = {}
        for number, type in arrays.items():
            for server in type.space.holders(self.servers):
                held.setdefault(server, []).append(number)
        return held

    # --- names ------------------------------------------------------------------------------------

    def publish(self, arrays: Mapping[str, StoredArray]) -> None:
        """Let these be the arrays that have names, in place of those before. One message a server.

        They must not be freed until another list has been published. Either all servers have the
        new list then, or the one before counts.
        """
        self._publish(arrays, only=False)

    def take_published(self) -> dict[str, StoredArray]:
        """The arrays to which the driver before has given names; all others are freed.

        To be asked once, by who has taken over the session, before anything else. Two messages a
        server.
        """
        replies = self._send(self._requests.to_all("publish"))
        lists = [{one.number: one for one in replies[k].publications} for k in replies]
        common = set.intersection(*(set(one) for one in lists))
        self._settled = max(common, default=0)
        self._newest = max((number for one in lists for number in one), default=0)
        found = lists[0].get(self._settled, pb.Publication())
        pairs = zip(found.names, found.arrays, strict=True)
        arrays = {name: StoredArray(one.buffer, type_of(one)) for name, one in pairs}
        self._publish(arrays, only=True)
        return arrays

    def _publish(self, arrays: Mapping[str, StoredArray], *, only: bool) -> None:
        self._newest += 1  # also where it fails: no two lists have one number
        given = pb.Publication(
            number=self._newest,
            names=list(arrays),
            arrays=[one.describe() for one in arrays.values()],
        )
        settled = self._settled
        self._send(self._requests.to_all("publish", given=given, settled=settled, only=only))
        self._settled = given.number


def saved_on(server: int, servers: int, source: Source) -> pb.Saved:
    """What one of ``servers`` needs to read its rows."""
    low, high = source.type.space.range_of(server, servers)
    pieces = [one for one in source.pieces if one.low < high and low < one.high]
    return pb.Saved(
        array=encode_array(source.buffer, source.type),
        store=source.store,
        pieces=map(encode_piece, pieces),
    )


def _pieces(
    held: Mapping[int, Sequence[int]], arrays: Iterable[int], replies: Mapping[int, pb.Reply]
) -> dict[int, tuple[FileRange, ...]]:
    found: dict[int, list[FileRange]] = {number: [] for number in arrays}
    for server, mine in sorted(held.items()):
        for number, saved in zip(mine, replies[server].saved, strict=True):
            found[number].append(decode_piece(saved))
    return {number: tuple(pieces) for number, pieces in found.items()}


def type_of(array: pb.Array) -> ArrayType:
    """The type of an array that a server names."""
    return stored_type(space_of(array.space), dtype_of(array.dtype), tuple(array.row))
