"""From what a caller asks to the messages for each server. Checks arguments; sends nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.client.server_link import Message
from ps_backend.program.spaces import Space
from ps_backend.program.types import ArrayType, dtype_of, stored_type
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import encode_array
from ps_backend.wire.protocol import CLIENT_BITS, PROTOCOL, Total, byte_view

Indices = npt.NDArray[np.int64]
Selection = slice | npt.NDArray[np.bool_]
"""Picks a server's entries out of a list, keeping their order."""


def check_indices(indices: npt.ArrayLike, length: int) -> Indices:
    """``indices`` as contiguous int64 of shape ``(k,)``.

    Raises ``TypeError`` unless they are integers, ``ValueError`` unless they are one list,
    ``IndexError`` if one is outside ``0 .. length-1``.
    """
    array = np.asarray(indices)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"indices must be integers, got {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"indices must have one dimension, got shape {array.shape}")
    result = np.ascontiguousarray(array, dtype=np.int64)
    if result.size and not (result.min() >= 0 and result.max() < length):
        bad = result[(result < 0) | (result >= length)][0]
        raise IndexError(f"index {bad} is out of range for length {length}")
    return result


def split(indices: Indices, space: Space, servers: int) -> Iterator[tuple[int, Selection]]:
    """``(server, selection)`` for each server that holds some of the space, even if it has none.

    In the order of the slots. Sorted indices are cut into slices, others are picked by a mask;
    either keeps the order.
    """
    holders = space.holders(servers)
    if len(holders) == 1:
        yield holders[0], slice(0, len(indices))
        return
    ranges = [space.range_of(server, servers) for server in holders]
    if bool(np.all(indices[1:] >= indices[:-1])):
        cuts = [*np.searchsorted(indices, [low for low, _ in ranges]).tolist(), len(indices)]
        for server, first, last in zip(holders, cuts, cuts[1:], strict=False):
            yield server, slice(first, last)
    else:
        for server, (low, high) in zip(holders, ranges, strict=True):
            yield server, (indices >= low) & (indices < high)


class StoredArray(NamedTuple):
    """A buffer on the servers: its values never change."""

    buffer: int
    type: ArrayType

    def describe(self) -> pb.Array:
        """The array as it is named in messages."""
        return encode_array(self.buffer, self.type)


class SharedArray(NamedTuple):
    """An array that many add to in place. It is no buffer: no program and no read can name it.

    ``Client.share`` makes one, ``Client.snapshot`` makes a buffer of its values.
    """

    number: int
    type: ArrayType

    def describe(self) -> pb.Array:
        """As it is named in messages."""
        return encode_array(self.number, self.type)


class Change(NamedTuple):
    """What is added to an array: ``values[i]`` at ``indices[i]``, or all values without."""

    indices: Indices | None
    values: npt.NDArray[np.generic]


def stored_values(space: Space, values: npt.ArrayLike) -> tuple[ArrayType, np.ndarray]:
    """Values for all of ``space`` or for a part of it, and the type of such an array."""
    array = np.asarray(values)
    return stored_type(space, dtype_of(array.dtype.name), array.shape[1:]), array


def empty_rows(type: ArrayType, where: Indices | slice | None) -> np.ndarray:
    """Memory for the rows of an array at indices, of a range, or for all."""
    match where:
        case None:
            count = type.space.length
        case slice():
            count = where.stop - where.start
        case _:
            count = len(where)
    return np.empty((count, *type.row), type.dtype)


Messages = dict[int, Message]
"""A message for each server that the request concerns."""


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of an array that one server holds, of those that a request is about."""

    array: pb.Array
    selection: Selection
    """Where they are among all of them."""
    count: int
    payload: list[memoryview]
    """Their indices, if they are named so, and then the values if some go along."""
    by_index: bool = False
    first: int | None = None
    """Of rows that follow each other, the index of the first one."""

    def describe(self, rows: pb.Rows) -> None:
        """Name them in a message."""
        rows.array.CopyFrom(self.array)
        if self.by_index:
            rows.indices = self.count
        elif self.first is not None:
            rows.first, rows.count = self.first, self.count


Scattered = list[tuple[Selection, np.ndarray]]
"""Rows that are to be put at the selections beside them, once they have come."""


class Requests:
    """Composes the messages of one client of a session with so many servers."""

    def __init__(
        self,
        session: str,
        client: str,
        servers: int,
        *,
        key: bytes = b"",
        secret: str = "",
        lease: float = 0.0,
        epoch: int = 0,
        first_number: int = 0,
    ) -> None:
        """``key``: of the client; ``secret`` and ``lease`` (0: the server's): of the session.

        ``epoch``: the number of the session's driver, for who joins; 0: not known.
        ``first_number``: all clients of the session get greater ones, or this.
        """
        self.session, self.client, self.servers = session, client, servers
        self._key, self._secret, self._lease, self._epoch = key, secret, lease, epoch
        self._first_number = first_number

    def of_another(self, client: str, key: bytes) -> Requests:
        """Those of another client of the session."""
        other = copy(self)
        other.client, other._key = client, key
        return other

    def request(self, **body: Any) -> pb.Request:
        """A request with this ``body``, as ``name={field: value}``; a field None is not set."""
        return pb.Request(session=self.session, client=self.client, key=self._key, **body)

    def message(self, kind: str, **fields: object) -> Message:
        """One with a body of that kind with these fields, those that are not None."""
        return Message(self.request(**{kind: fields}))

    def each(self, servers: Iterable[int], kind: str, **fields: object) -> Messages:
        """To ``servers``: a body of that kind with these fields, those that are not None."""
        return {server: self.message(kind, **fields) for server in servers}

    def to_all(self, kind: str, **fields: object) -> Messages:
        """As ``each``, to all servers."""
        return self.each(range(self.servers), kind, **fields)

    def open(self, server: int, generation: int, *, create: bool) -> pb.Request:
        """To one server that was replaced so often: join the session.

        ``create``: make it, if that server has it not.
        """
        return self.request(
            open={
                "protocol": PROTOCOL,
                "index": server,
                "servers": self.servers,
                "create": create,
                "first_number": self._first_number + (generation << CLIENT_BITS),
                "secret": self._secret,
                "lease": self._lease,
                "epoch": self._epoch,
            }
        )

    def open_again(self, server: int, generation: int, *, newest: int = 0) -> pb.Request:
        """The same where the session was open on the server that was lost.

        ``newest``: no buffer that this client had made there has an id above that.
        """
        request = self.open(server, generation, create=True)
        request.open.again, request.open.newest = True, newest
        return request

    def attach(self, server: int, generation: int, epoch: int) -> pb.Request:
        """The same for who takes over as driver number ``epoch``; 0: ask for the present one."""
        request = self.open(server, generation, create=False)
        request.open.attach, request.open.epoch = True, epoch
        return request

    # --- rows of arrays ---

    def shares(
        self, buffer: int, type: ArrayType, where: Indices | slice | None
    ) -> Iterator[tuple[int, Share]]:
        """What each server holds of an array, and of its rows ``where``; None: of all.

        Of some rows that follow each other, only for servers that hold some.
        """
        space, array = type.space, encode_array(buffer, type)
        if isinstance(where, np.ndarray):
            for server, selection in split(where, space, self.servers):
                local = where[selection]
                yield server, Share(array, selection, len(local), [byte_view(local)], True)
            return
        for server in space.holders(self.servers):
            low, high = space.range_of(server, self.servers)
            if where is None:
                yield server, Share(array, slice(low, high), high - low, [])
                continue
            first, last = max(low, where.start), min(high, where.stop)
            if first < last:
                selection = slice(first - where.start, last - where.start)
                yield server, Share(array, selection, last - first, [], first=first)

    def filled(
        self,
        buffer: int,
        type: ArrayType,
        indices: npt.ArrayLike | None,
        values: npt.ArrayLike,
    ) -> Iterator[tuple[int, Share]]:
        """The shares of ``values`` at ``indices``, or of all rows, with the values."""
        if indices is None:
            given, where = np.asarray(values), None
            if given.shape != type.shape:
                raise ValueError(f"values must have shape {type.shape}, got {given.shape}")
        else:
            given, where = np.asarray(values), check_indices(indices, type.space.length)
            if given.shape != (len(where), *type.row):
                rows = f" rows of shape {type.row}" if type.row else " values"
                raise ValueError(
                    f"{len(where)} indices need as many{rows}, got shape {given.shape}"
                )
        given = np.ascontiguousarray(given, dtype=type.dtype)
        for server, share in self.shares(buffer, type, where):
            share.payload.append(byte_view(given[share.selection]))
            yield server, share

    def write(
        self,
        buffer: int,
        type: ArrayType,
        indices: npt.ArrayLike | None,
        values: npt.ArrayLike,
        *,
        target: int = 0,
        donate: bool = False,
    ) -> Messages:
        """To each holder of an array: make ``target`` of it by adding the values; or, of no buffer
        (0), of the values alone. Without a target: add to a shared array, if there is anything."""
        messages: Messages = {}
        for server, share in self.filled(buffer, type, indices, values):
            if target or share.count:
                message = self.message("write", target=target, donate=donate)
                share.describe(message.request.write.rows)
                message.payload = share.payload
                messages[server] = message
        return messages

    def read(
        self,
        buffer: int,
        type: ArrayType,
        where: Indices | slice | None,
        out: np.ndarray,
        kind: str = "read",
        least: int = 0,
        **fields: object,
    ) -> tuple[Messages, Scattered]:
        """To each server that holds some of the rows, and to the ``least`` number: send them.

        They come into ``out``, except for those whose places in ``out`` are scattered.
        """
        messages: Messages = {}
        scattered: Scattered = []
        for server, share in self.shares(buffer, type, where):
            if share.by_index and not share.count and len(messages) >= least:
                continue
            if isinstance(share.selection, slice):
                target = out[share.selection]
            else:
                target = np.empty((share.count, *type.row), out.dtype)
                scattered.append((share.selection, target))
            message = self.message(kind, **fields)
            share.describe(getattr(message.request, kind).rows)
            message.payload, message.into = share.payload, byte_view(target)
            messages[server] = message
        return messages, scattered

    def end_round(self, round: str) -> Messages:
        """To all: end a round without a result."""
        return self.to_all("end", barrier={"kind": "round", "name": round})

    def in_two_steps(self, round: str, messages: Messages) -> tuple[Messages, Messages]:
        """Those of ``write`` as messages that stage the rows, and others that add them."""
        staged: Messages = {}
        bare: Messages = {}
        for server, message in messages.items():
            body = message.request.write
            barrier = {"kind": "round", "name": round}
            staged[server] = self.message("contribute", barrier=barrier, rows=[body.rows])
            staged[server].payload = message.payload
            body.round = round
            body.rows.ClearField("indices")
            bare[server] = Message(message.request)
        return staged, bare

    def copy(
        self,
        sources: Iterable[StoredArray | SharedArray],
        targets: Iterable[int],
        **fields: object,
    ) -> Messages:
        """To each server that holds some of ``sources``: make of them what ``targets`` name."""
        messages: Messages = {}
        for source, target in zip(sources, targets, strict=True):
            described = source.describe()
            for server in source.type.space.holders(self.servers):
                if server not in messages:
                    messages[server] = self.message("copy", **fields)
                body = messages[server].request.copy
                body.arrays.append(described)
                body.targets.append(target)
        return messages

    # --- rounds ---

    def commit(self, round: str, totals: Iterable[Total]) -> Messages:
        """To each server that holds some of a total: make it from what the winners staged."""
        messages: Messages = {}
        for total in totals:
            target = encode_array(total.target, total.type)
            for server in total.type.space.holders(self.servers):
                if server not in messages:
                    messages[server] = self.message("release", round=round)
                body = messages[server].request.release
                added = body.totals.add(slot=total.slot, op=total.op, source=total.source)
                added.target.CopyFrom(target)
                for winner in total.winners:
                    added.winners.add(**winner._asdict())
        return messages
