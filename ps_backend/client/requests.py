"""From what a caller asks to the messages for each server. Checks arguments; sends nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ps_backend.client.arrays import SharedArray
from ps_backend.client.selection import Indices, Selection, check_indices, split
from ps_backend.client.server_link import Message
from ps_backend.program.spaces import Space
from ps_backend.program.types import ArrayType, array_type, dtype_of
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import Parts, byte_view
from ps_backend.wire.codec import encode_array
from ps_backend.wire.protocol import CLIENT_BITS, PROTOCOL
from ps_backend.wire.rounds import Key, Total

Messages = dict[int, Message]
"""A message for each server that the request concerns."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one server gets of some values: ``count`` of them after their indices; None: all."""

    type: ArrayType
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
    ) -> None:
        """``key``: of the client; ``secret`` and ``lease`` (0: the server's): of the session."""
        self.session, self.client, self.servers = session, client, servers
        self._key, self._secret, self._lease = key, secret, lease

    def request(self) -> pb.Request:
        """A request without a body yet."""
        return pb.Request(session=self.session, client=self.client, key=self._key)

    def renew(self) -> pb.Request:
        """To any server: the session is still in use."""
        request = self.request()
        request.renew.SetInParent()
        return request

    # --- the connection ---

    def open(self, generations: Sequence[int], *, create: bool) -> Messages:
        """To all servers, each replaced so often: make the session, or join it."""
        messages: Messages = {}
        for server, generation in enumerate(generations):
            request = self.reopen_session(server, generation)
            request.open.create = create
            messages[server] = Message(request)
        return messages

    def reopen_session(self, server: int, generation: int) -> pb.Request:
        """To one server: join the session, which is made if that server, a new one, has it not."""
        request = self.request()
        body = request.open
        body.protocol, body.index, body.servers = PROTOCOL, server, self.servers
        body.create, body.first_number = True, generation << CLIENT_BITS
        body.secret, body.lease = self._secret, self._lease
        return request

    def close(self, servers: Iterable[int], *, session: bool) -> Messages:
        """To ``servers``: leave, or end the session."""
        messages = self._to(servers)
        for message in messages.values():
            message.request.close.session = session
        return messages

    def status(self) -> Messages:
        """To all servers: what do you hold?"""
        messages = self._to(range(self.servers))
        for message in messages.values():
            message.request.status.SetInParent()
        return messages

    # --- dense ---

    def write(self, buffer: int, space: Space, values: npt.ArrayLike) -> Messages:
        """To each holder: its part of ``values``, which must have the length of the space."""
        given = np.asarray(values)
        array = np.ascontiguousarray(given, dtype=dtype_of(given.dtype.name))
        if given.ndim == 0 or len(array) != space.length:
            raise ValueError(f"values must have length {space.length}, got shape {given.shape}")
        target = encode_array(buffer, array_type(space, array.dtype, array.shape[1:]))
        messages = self._to(space.holders(self.servers))
        for server, message in messages.items():
            low, high = space.range_of(server, self.servers)
            message.request.write.target.CopyFrom(target)
            message.payload = [byte_view(array[low:high])]
        return messages

    def read(
        self, buffer: int, type: ArrayType, out: np.ndarray, *, shared: bool = False
    ) -> Messages:
        """To each holder: send your part, into ``out``."""
        space, array = type.space, encode_array(buffer, type)
        messages = self._to(space.holders(self.servers))
        for server, message in messages.items():
            low, high = space.range_of(server, self.servers)
            message.request.read.array.CopyFrom(array)
            message.request.read.shared = shared
            message.into = byte_view(out[low:high])
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
            request = self.request()
            request.gather.count, request.gather.shared = len(local), shared
            request.gather.array.CopyFrom(array)
            messages[server] = Message(request, [byte_view(local)], byte_view(target))
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
        messages: Messages = {}
        for server, selection in split(wanted, type.space, self.servers):
            request = self.request()
            body = request.scatter_add
            body.target, body.donate = target, donate
            body.array.CopyFrom(encode_array(source, type))
            body.count, payload = _select(wanted, given, selection)
            messages[server] = Message(request, payload)
        return messages

    def in_two_steps(self, round: str, messages: Messages) -> tuple[Messages, Messages]:
        """Those of ``scatter_add`` as messages that stage the pairs, and others that add them."""
        staged: Messages = {}
        bare: Messages = {}
        for server, message in messages.items():
            body = message.request.scatter_add
            request = self.request()
            request.stage.round, request.stage.count = round, body.count
            request.stage.type.CopyFrom(body.array)
            staged[server] = Message(request, message.payload)
            body.round, body.count = round, 0
            bare[server] = Message(message.request)
        return staged, bare

    # --- shared arrays ---

    def share(self, sources: Iterable[int], arrays: Iterable[SharedArray]) -> Messages:
        """To each server that holds some of the arrays: make them, of the buffers ``sources``."""
        messages: Messages = {}
        for source, array in zip(sources, arrays, strict=True):
            for server in array.type.space.holders(self.servers):
                body = messages.setdefault(server, Message(self.request())).request.share
                body.arrays.append(encode_array(source, array.type))
                body.targets.append(array.number)
        return messages

    def update(self, array: SharedArray, indices: npt.ArrayLike, values: npt.ArrayLike) -> Messages:
        """To each server that holds some of ``indices``: add its part of the pairs in place."""
        wanted, given = _pairs(indices, values, array.type)
        messages: Messages = {}
        for server, selection in split(wanted, array.type.space, self.servers):
            request = self.request()
            request.update.array.CopyFrom(array.describe())
            request.update.count, payload = _select(wanted, given, selection)
            if request.update.count:
                messages[server] = Message(request, payload)
        return messages

    def snapshot(
        self, arrays: Iterable[SharedArray], targets: Iterable[int], *, last: bool
    ) -> Messages:
        """To each server that holds some of the arrays: make buffers of them."""
        messages: Messages = {}
        for array, target in zip(arrays, targets, strict=True):
            for server in array.type.space.holders(self.servers):
                body = messages.setdefault(server, Message(self.request())).request.snapshot
                body.arrays.append(array.describe())
                body.targets.append(target)
                body.last = last
        return messages

    # --- rounds ---

    def stage(
        self,
        round: str,
        key: Key,
        space: Space,
        indices: npt.ArrayLike | None,
        values: npt.ArrayLike,
    ) -> Messages:
        """To each holder, even of none of the indices: its part of the contribution."""
        messages: Messages = {}
        for server, share in self.shares(space, indices, values):
            request = self.request()
            body = request.stage
            body.round = round
            body.partition, body.attempt, body.slot, body.number = key
            body.type.CopyFrom(encode_array(0, share.type))
            share.describe(body)
            messages[server] = Message(request, share.payload)
        return messages

    def shares(
        self, space: Space, indices: npt.ArrayLike | None, values: npt.ArrayLike
    ) -> Iterator[tuple[int, Share]]:
        """For each holder its share of ``values`` at ``indices``, or in all the space without."""
        array = np.asarray(values)
        type = array_type(space, array.dtype, array.shape[1:])
        if indices is not None:
            wanted, given = _pairs(indices, array, type)
            for server, selection in split(wanted, space, self.servers):
                yield server, Share(type, *_select(wanted, given, selection))
            return
        if array.shape != type.shape:
            raise ValueError(f"values must have shape {type.shape}, got {array.shape}")
        array = np.ascontiguousarray(array, dtype=type.dtype)
        for server in space.holders(self.servers):
            low, high = space.range_of(server, self.servers)
            yield server, Share(type, None, [byte_view(array[low:high])])

    def commit(self, round: str, totals: Iterable[Total]) -> Messages:
        """To each server that holds some of a total: make it from what the winners staged."""
        messages: Messages = {}
        for total in totals:
            for server in total.type.space.holders(self.servers):
                message = messages.setdefault(server, Message(self.request()))
                body = message.request.commit
                body.round = round
                added = body.totals.add(slot=total.slot, op=total.op, source=total.source)
                added.target.CopyFrom(encode_array(total.target, total.type))
                for winner in total.winners:
                    added.winners.add(**winner._asdict())
        return messages

    def reopen(self, round: str, targets: Iterable[int], servers: Iterable[int]) -> Messages:
        """To ``servers``: take the commit back."""
        messages = self._to(servers)
        for message in messages.values():
            message.request.reopen.round = round
            message.request.reopen.targets.extend(targets)
        return messages

    def nothing(self, servers: Iterable[int]) -> Messages:
        """To ``servers``: what you did last stands."""
        messages = self._to(servers)
        for message in messages.values():
            message.request.nothing.SetInParent()
        return messages

    def drop_round(self, round: str) -> Messages:
        """To all servers: end the round."""
        messages = self._to(range(self.servers))
        for message in messages.values():
            message.request.drop_round.round = round
        return messages

    # --- commands that a program registered with the servers ---

    def call(self, name: str, body: bytes, arrays: Iterable[tuple[int, ArrayType]]) -> Messages:
        """To all servers: run the command ``name``."""
        given = [encode_array(buffer, type) for buffer, type in arrays]
        messages = self._to(range(self.servers))
        for message in messages.values():
            custom = message.request.custom
            custom.name, custom.body = name, body
            custom.arrays.extend(given)
        return messages

    def each(self, servers: Iterable[int], kind: str, **fields: object) -> Messages:
        """To ``servers``: a body of that kind with these fields, those that are not None."""
        messages = self._to(servers)
        given = {name: value for name, value in fields.items() if value is not None}
        for message in messages.values():
            body = getattr(message.request, kind)
            body.CopyFrom(type(body)(**given))
        return messages

    def _to(self, servers: Iterable[int]) -> Messages:
        return {server: Message(self.request()) for server in servers}


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
