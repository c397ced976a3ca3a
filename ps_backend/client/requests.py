"""From what a caller asks to the messages for each server. Checks arguments; sends nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.client.server_link import Message
from ps_backend.program.spaces import Space
from ps_backend.program.types import ArrayType, dtype_of, stored_type
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.barriers import Total
from ps_backend.wire.chunks import Parts, byte_view
from ps_backend.wire.codec import encode_array, encode_space
from ps_backend.wire.protocol import CLIENT_BITS, PROTOCOL

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


Messages = dict[int, Message]
"""A message for each server that the request concerns."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one server gets of some values: ``count`` of them after their indices; None: all."""

    type: pb.Array
    """Of the array that they are of, as it is named in messages."""
    count: int | None
    payload: Parts

    def describe(self, body: pb.Stage | pb.Answer | pb.Push) -> None:
        """Say in ``body`` what the payload is."""
        body.count, body.dense = self.count or 0, self.count is None


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
    ) -> None:
        """``key``: of the client; ``secret`` and ``lease`` (0: the server's): of the session.

        ``epoch``: the number of the session's driver, for who joins; 0: not known.
        """
        self.session, self.client, self.servers = session, client, servers
        self._key, self._secret, self._lease, self._epoch = key, secret, lease, epoch

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
                "first_number": generation << CLIENT_BITS,
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

    # --- dense ---

    def write(self, buffer: int, space: Space, values: npt.ArrayLike) -> Messages:
        """To each holder: its part of ``values``, which must have the length of the space."""
        given = np.asarray(values)
        array = np.ascontiguousarray(given, dtype=dtype_of(given.dtype.name))
        if given.ndim == 0 or len(array) != space.length:
            raise ValueError(f"values must have length {space.length}, got shape {given.shape}")
        target = encode_array(buffer, stored_type(space, array.dtype, array.shape[1:]))
        messages = self.each(space.holders(self.servers), "write", target=target)
        for server, message in messages.items():
            low, high = space.range_of(server, self.servers)
            message.payload = [byte_view(array[low:high])]
        return messages

    def read(
        self, buffer: int, type: ArrayType, out: np.ndarray, *, shared: bool = False
    ) -> Messages:
        """To each holder: send your part, into ``out``."""
        space, array = type.space, encode_array(buffer, type)
        messages = self.each(space.holders(self.servers), "read", array=array, shared=shared)
        for server, message in messages.items():
            low, high = space.range_of(server, self.servers)
            message.into = byte_view(out[low:high])
        return messages

    def read_rows(
        self, buffer: int, type: ArrayType, start: int, stop: int, out: np.ndarray
    ) -> Messages:
        """To each server that holds some of the rows ``start:stop``: send them, into ``out``."""
        messages: Messages = {}
        array = encode_array(buffer, type)
        for server in type.space.holders(self.servers):
            low, high = type.space.range_of(server, self.servers)
            low, high = max(low, start), min(high, stop)
            if low < high:
                message = self.message("read", array=array, first=low, count=high - low)
                message.into = byte_view(out[low - start : high - start])
                messages[server] = message
        return messages

    # --- sparse ---

    def gather(
        self,
        buffer: int,
        type: ArrayType,
        wanted: Indices,
        out: np.ndarray,
        *,
        shared: bool = False,
    ) -> tuple[Messages, list[tuple[Selection, np.ndarray]]]:
        """To each server that holds some of ``wanted``: send the rows there.

        They come into ``out``, except for those whose places in ``out`` are scattered: these come
        into the arrays returned, to be put at the selection beside them.
        """
        messages: Messages = {}
        scattered: list[tuple[Selection, np.ndarray]] = []
        array = encode_array(buffer, type)
        for server, selection in split(wanted, type.space, self.servers):
            local = wanted[selection]
            if not len(local):
                continue
            if isinstance(selection, slice):
                target = out[selection]
            else:
                target = np.empty((len(local), *type.row), out.dtype)
                scattered.append((selection, target))
            message = self.message("gather", array=array, count=len(local), shared=shared)
            message.payload, message.into = [byte_view(local)], byte_view(target)
            messages[server] = message
        return messages, scattered

    def scatter_add(
        self,
        source: int,
        target: int,
        type: ArrayType,
        indices: npt.ArrayLike,
        values: npt.ArrayLike,
        donate: bool,
    ) -> Messages:
        """To each holder: add its part of the pairs."""
        wanted, given = _pairs(indices, values, type)
        array = encode_array(source, type)
        messages: Messages = {}
        for server, selection in split(wanted, type.space, self.servers):
            message = self.message("scatter_add", array=array, target=target, donate=donate)
            count, message.payload = _select(wanted, given, selection)
            message.request.scatter_add.count = count
            messages[server] = message
        return messages

    def by_mask(
        self, kind: str, source: int, type: ArrayType, mask: int, chosen: Space, **fields: object
    ) -> Messages:
        """To each holder of the source: choose its rows by the mask, or put others there."""
        servers = type.space.holders(self.servers)
        array, space = encode_array(source, type), encode_space(chosen)
        return self.each(servers, kind, array=array, mask=mask, chosen=space, **fields)

    def in_two_steps(self, round: str, messages: Messages) -> tuple[Messages, Messages]:
        """Those of ``scatter_add`` as messages that stage the pairs, and others that add them."""
        staged: Messages = {}
        bare: Messages = {}
        for server, message in messages.items():
            body = message.request.scatter_add
            staged[server] = self.message("stage", round=round, count=body.count, type=body.array)
            staged[server].payload = message.payload
            body.round, body.count = round, 0
            bare[server] = Message(message.request)
        return staged, bare

    # --- shared arrays ---

    def update(self, array: SharedArray, indices: npt.ArrayLike, values: npt.ArrayLike) -> Messages:
        """To each server that holds some of ``indices``: add its part of the pairs in place."""
        wanted, given = _pairs(indices, values, array.type)
        described = array.describe()
        messages: Messages = {}
        for server, selection in split(wanted, array.type.space, self.servers):
            count, payload = _select(wanted, given, selection)
            if count:
                messages[server] = self.message("update", array=described, count=count)
                messages[server].payload = payload
        return messages

    def copies(
        self,
        kind: str,
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
                    messages[server] = self.message(kind, **fields)
                body = getattr(messages[server].request, kind)
                body.arrays.append(described)
                body.targets.append(target)
        return messages

    # --- rounds ---

    def shares(
        self, space: Space, indices: npt.ArrayLike | None, values: npt.ArrayLike
    ) -> Iterator[tuple[int, Share]]:
        """For each holder its share of ``values`` at ``indices``, or in all the space without."""
        array = np.asarray(values)
        type = stored_type(space, array.dtype, array.shape[1:])
        described = encode_array(0, type)
        if indices is not None:
            wanted, given = _pairs(indices, array, type)
            for server, selection in split(wanted, space, self.servers):
                yield server, Share(described, *_select(wanted, given, selection))
            return
        if array.shape != type.shape:
            raise ValueError(f"values must have shape {type.shape}, got {array.shape}")
        array = np.ascontiguousarray(array, dtype=type.dtype)
        for server in space.holders(self.servers):
            low, high = space.range_of(server, self.servers)
            yield server, Share(described, None, [byte_view(array[low:high])])

    def commit(self, round: str, totals: Iterable[Total]) -> Messages:
        """To each server that holds some of a total: make it from what the winners staged."""
        messages: Messages = {}
        for total in totals:
            target = encode_array(total.target, total.type)
            for server in total.type.space.holders(self.servers):
                if server not in messages:
                    messages[server] = self.message("commit", round=round)
                body = messages[server].request.commit
                added = body.totals.add(slot=total.slot, op=total.op, source=total.source)
                added.target.CopyFrom(target)
                for winner in total.winners:
                    added.winners.add(**winner._asdict())
        return messages


def _pairs(
    indices: npt.ArrayLike, values: npt.ArrayLike, type: ArrayType
) -> tuple[Indices, np.ndarray]:
    wanted = check_indices(indices, type.space.length)
    shape = (len(wanted), *type.row)
    if np.shape(values) != shape:
        rows = f" rows of shape {type.row}" if type.row else " values"
        raise ValueError(f"{len(wanted)} indices need as many{rows}, got shape {np.shape(values)}")
    return wanted, np.ascontiguousarray(values, dtype=type.dtype)


def _select(indices: Indices, values: np.ndarray, selection: Selection) -> tuple[int, Parts]:
    chosen = indices[selection]
    return len(chosen), [byte_view(chosen), byte_view(values[selection])]
