"""A keyed space of the session as a client sees it: keys in batches, and row programs on them.

Memory for results, which are let go of again: the next one comes into the same.

To fill fresh memory takes longer than what fills it: the system hands it out page by page. So what
an array leaves behind, when nobody holds it or a view of it any more, serves the next one.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.client.counters import Counters
from ps_backend.client.fan_out import Replies, Send
from ps_backend.client.files import Source, saved_on
from ps_backend.client.requests import Messages, Requests, Selection, StoredArray
from ps_backend.client.server_link import Message
from ps_backend.errors import OutOfBudget, PSError
from ps_backend.kernels.keyed import group_by_key
from ps_backend.kernels.numpy_loops import address_of
from ps_backend.program.initializers import Fill
from ps_backend.program.keys import Partition, check_keys
from ps_backend.program.row_program import RowProgram
from ps_backend.program.sweep import Scalar
from ps_backend.program.types import ValueType
from ps_backend.program.user_signatures import Signature
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import encode_type
from ps_backend.wire.keyed import (
    SpaceState,
    add_structure,
    decode_state,
    encode_fill,
    encode_keys,
    encode_row_program,
    encode_state,
    padded,
    unknown_plugin,
)
from ps_backend.wire.protocol import Key, Parts, byte_view
from ps_backend.wire.quantize import narrowed, travelling, widened

_LEAST, _MOST = 1 << 18, 1 << 26
"""Bytes of an array that memory is lent to, and that a thread keeps."""
_waiting: deque[npt.NDArray[np.uint8]] = deque(maxlen=2)
"""What came back. Appending and popping are one step each: arrays end in any thread, any time."""


class _Loan:
    """Memory that an array and its views hold; it comes back with the last one of them."""

    def __init__(self, memory: npt.NDArray[np.uint8], size: int) -> None:
        self._memory = memory
        self.__array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (address_of(memory), False),
        }

    def __del__(self, waiting: deque[npt.NDArray[np.uint8]] = _waiting) -> None:
        waiting.append(self._memory)


def pooled(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """An array with any values; of memory that was lent before, where there is some."""
    size = prod(shape) * np.dtype(dtype).itemsize
    if not _LEAST <= size <= _MOST:
        return np.empty(shape, dtype)
    try:
        memory = _waiting.pop()
    except IndexError:
        memory = fresh(size)
    if not size <= len(memory) <= 2 * size:
        memory = fresh(size)
    found: npt.NDArray[Any] = np.asarray(_Loan(memory, size)).view(dtype).reshape(shape)
    return found


def fresh(size: int) -> npt.NDArray[np.uint8]:
    """So many bytes that nobody had."""
    return np.empty(size, np.uint8)


class Scratch(threading.local):
    """Memory for what a thread receives and copies from at once: what it had serves again."""

    _bytes = np.empty(0, np.uint8)

    def take(self, size: int) -> npt.NDArray[np.uint8]:
        """So many bytes, until the next call."""
        if size > _MOST:
            return fresh(size)
        if size > self._bytes.size:
            self._bytes = fresh(size)
        return self._bytes[:size]


Keys = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeyBatch:
    """The different ones of some keys. ``keys[inverse]`` are those that were given."""

    keys: Keys
    inverse: npt.NDArray[np.int64] | None
    """None where the given ones are ``keys`` themselves."""
    count: int
    """How many were given."""

    @classmethod
    def of(cls, given: npt.ArrayLike) -> KeyBatch:
        """Of integers of shape ``(n,)``; ``TypeError``, ``ValueError`` for what are no keys."""
        keys = check_keys(given)
        if np.all(keys[1:] > keys[:-1]):
            return cls(keys, None, len(keys))
        different, inverse = group_by_key.unique_keys(keys)
        return cls(different, inverse, len(keys))

    def combined(self, rows: npt.NDArray[np.generic], op: str) -> npt.NDArray[np.generic]:
        """A row for each different key: those of a repeated one are joined, in their order.

        ``rows``: one for each key as it was given. Of ``"replace"`` the last one stays.
        """
        if self.inverse is None:
            return rows
        return group_by_key.join_rows(self.inverse, len(self.keys), rows, op)

    def expanded(self, rows: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """A row for each key as it was given, of those for the different ones."""
        if self.inverse is None:
            return rows
        out: npt.NDArray[np.generic] = pooled((self.count, *rows.shape[1:]), rows.dtype)
        return np.take(rows, self.inverse, axis=0, out=out, mode="clip")  # "raise" copies first

    def shares(self, servers: int, partition: Partition) -> Mapping[int, Selection]:
        """Which of ``keys`` each server holds, of those that hold any.

        ``IndexError`` for keys that are not in the range that ``partition`` is of.
        """
        partition.check(self.keys)
        if servers == 1:
            return {0: slice(None)} if len(self.keys) else {}
        holders = partition.server_of(self.keys, servers)
        masks = {server: holders == server for server in range(servers)}
        return {server: mask for server, mask in masks.items() if mask.any()}


Array = npt.NDArray[Any]

_PADDING = memoryview(bytes(8))


class KeyView:
    """Keys that servers keep, so that they need not be sent again."""

    def __init__(self, number: int, keys: KeyBatch) -> None:
        self.number = number
        self.keys = keys
        self.servers: set[int] = set()
        """Those that have them."""


class RowCall:
    """What one server is asked to do."""

    def __init__(
        self,
        program: RowProgram,
        body: pb.RowCall,
        keys: npt.NDArray[np.int64],
        rows: Sequence[Array],
        known: bool,
        take: Callable[[int], npt.NDArray[np.uint8]],
    ) -> None:
        """``body``: what is the same for all servers; ``rows``: of ``keys``, as they travel;
        ``known``: this server has the keys. ``take`` gives memory for the answer.
        """
        self._program, self._body, self.keys, self._known = program, body, keys, known
        self._rows = [part for one in rows for part in _pad(byte_view(_contiguous(one)))]
        self._types = [travelling(type, body.returns_as) for type in program.returned]
        row_bytes = [1] * body.find + [type.row_bytes for some in self._types for type in some]
        self._sizes = [len(keys) * size for size in row_bytes]
        self._answer = take(sum(map(padded, self._sizes)))

    def message(self, request: pb.Request, place: str) -> Message:
        """The call as a part of a request: of its body, or of a field of that."""
        find = attrgetter(place)
        body: pb.RowCall = find(request)
        body.CopyFrom(self._body)
        body.keys.count = len(self.keys)

        def complete(request: pb.Request) -> Parts:
            body: pb.RowCall = find(request)
            add_structure(body, self._program)
            return self._payload(body)

        payload = self._rows if self._known else self._payload(body)
        into = byte_view(self._answer) if place == "look_up" else None
        return Message(request, payload, into, complete)

    def _payload(self, body: pb.RowCall) -> Parts:
        keys = encode_keys(self.keys)
        body.keys.bytes = len(keys)
        return [*_pad(keys), *self._rows]

    def answer(self, reply: pb.Reply) -> list[Array]:
        """Whether each key is there, as bytes (none if that was not asked), and what it returns."""
        parts: list[Array] = []
        if reply.partials:
            parts = [np.frombuffer(part, np.uint8) for part in reply.partials]
        else:
            at = 0
            for size in self._sizes:
                parts.append(self._answer[at : at + size])
                at += padded(size)
        found = parts.pop(0) if self._body.find else np.empty(0, np.uint8)
        rows = []
        for type, types in zip(self._program.returned, self._types, strict=True):
            some = [parts.pop(0).view(one.dtype).reshape(len(self.keys), *one.row) for one in types]
            rows.append(widened(some, type, self._body.returns_as))
        return [found, *rows]


def _contiguous(rows: Array) -> Array:
    return np.ascontiguousarray(rows)


def _pad(part: memoryview) -> list[memoryview]:
    """The part, and what brings it to the length that it takes."""
    missing = padded(len(part)) - len(part)
    return [part, _PADDING[:missing]] if missing else [part]


KEYS = 0
"""What ``freeze`` calls the keys, among the numbers of arrays."""


class KeySpace:
    """Keys, and arrays of rows over them, by their numbers. Thread-safe.

    What is sent goes to all servers that hold one of the keys, at once. Errors: ``BufferLost`` if
    the space or an array was freed, ``ServerLost`` if it was on a server that is gone, and what
    each method names.
    """

    def __init__(
        self,
        number: int,
        requests: Requests,
        send: Send,
        new_id: Callable[[], int],
        counters: Counters,
        partition: Partition,
    ) -> None:
        self.number = number
        self.partition = partition
        """How the keys are shared out."""
        self._requests, self._send = requests, send
        self._new_id, self._counters = new_id, counters
        self._known: set[str] = set()
        """Digests of the sweeps that servers have seen whole."""
        self._plugins: dict[str, Signature] = {}
        self._room = Scratch()

    @property
    def servers(self) -> int:
        """How many servers share the keys."""
        return self._requests.servers

    def make(self, *, most_bytes: int = 0, admit: int = 0, sketch: int = 0) -> None:
        """Make it, without keys. One message a server.

        ``most_bytes``: of all servers together, 0 for what their budgets allow. ``admit``: with how
        many changes a key is inserted; ``sketch``: bytes of all servers for counting these, 0 to
        count exactly. ``OutOfBudget``.
        """
        fields = self._described(most_bytes, admit, sketch)
        self._send(self._requests.to_all("make_keys", **fields))

    def _described(self, most_bytes: int, admit: int, sketch: int) -> dict[str, int]:
        shares = [-(-size // self.servers) for size in (most_bytes, sketch)]
        fields = {"most_bytes": shares[0], "admit": admit, "sketch": shares[1]}
        return {"space": self.number, "length": self.partition.length, **fields}

    def add_array(self, number: int, type: ValueType, fill: Fill) -> None:
        """Add an array that begins as ``rule`` says. One message a server. ``OutOfBudget``."""
        self._send(self._requests.to_all("make_rows", **self._rows_described(number, type, fill)))

    def _rows_described(self, number: int, type: ValueType, fill: Fill) -> dict[str, Any]:
        named = {"space": self.number, "array": number}
        return {**named, "type": encode_type(type), **encode_fill(fill)}

    def restore(
        self,
        keys: Source,
        arrays: Sequence[tuple[Source, Fill]],
        waiting: Source | None,
        states: Sequence[SpaceState],
        *,
        most_bytes: int = 0,
        admit: int = 0,
        sketch: int = 0,
    ) -> list[int]:
        """Let it be as it was saved: keys, arrays under their numbers, counters of keys that wait.

        It is made, as of ``make``, on servers that have it not; what it has on others, and arrays
        that are not named, go. ``states``: by server, what had happened to its keys. Returns the
        mark of its content on each server. One message a server. Raises ``StoreFailed``,
        ``Corrupted``, and ``OutOfBudget`` where there is no room for it beside what is there.
        """
        made = self._described(most_bytes, admit, sketch)
        rows = [
            self._rows_described(source.buffer, source.type.value, fill) for source, fill in arrays
        ]
        messages: Messages = {}
        for server in range(self.servers):
            saved = partial(saved_on, server, self.servers)
            messages[server] = self._requests.message(
                "restore_keys",
                space=made,
                arrays=rows,
                keys=saved(keys),
                rows=[saved(source) for source, _ in arrays],
                waiting=None if waiting is None else saved(waiting),
                state=encode_state(states[server]),
            )
        replies = self._send(messages)
        return [replies[server].pinned.spaces[0].mark for server in range(self.servers)]

    def run(
        self,
        program: RowProgram,
        arrays: Sequence[int],
        keys: KeyBatch,
        given: Sequence[Array] = (),
        scalars: Sequence[Scalar] = (),
        *,
        find: bool = False,
        view: KeyView | None = None,
        wire: str = "",
        spaces: Sequence[int] = (),
    ) -> tuple[list[Array], npt.NDArray[np.bool_] | None]:
        """Run a row program on ``arrays``, by number. One message to each server with a key.

        ``spaces``: of each array, where some are of other spaces, whose keys are shared out alike.
        ``given``: rows of the types of ``program.given``, one for each of ``keys.keys``. Returns
        what the program returns, a row for each key; and with ``find`` (of a program that writes
        nothing) which keys are there; of keys that were not given in order both last until this
        thread's next call, as who gets them puts them in order. ``view``: of these keys, which then
        travel once only.
        ``wire``: how rows of floats travel, one of ``narrow.KINDS`` or as they are.
        ``OutOfBudget``: a server has no room for new keys; ``refused`` are those that are on such,
        of which nothing was changed.
        """
        count = len(keys.keys)
        out = [np.empty((count, *type.row), type.dtype) for type in program.returned]
        found = np.zeros(count, np.bool_) if find else None
        rows = [
            np.ascontiguousarray(one, type.dtype)
            for one, type in zip(given, program.given, strict=True)
        ]
        kind = "change_rows" if program.changes else "look_up"
        whole = program.sweep.digest not in self._known
        body = encode_row_program(program, arrays, scalars, full=whole, spaces=spaces)
        body.find, body.keys.space = find, self.number
        body.given_as = body.returns_as = wire
        whole_bytes = sum(one.nbytes for one in (*rows, *out))
        if wire and rows:  # a repeat has the same bits, as they are drawn here
            rows = _narrow(rows, program, wire, self._new_id())
        known = frozenset[int]()
        if view is not None:
            body.keys.view, known = view.number, frozenset(view.servers)
        shares = keys.shares(self.servers, self.partition)
        alone = len(shares) == 1 and not program.changes
        take = self._room.take if alone and keys.inverse is not None else fresh
        calls = {
            server: RowCall(
                program, body, keys.keys[some], [one[some] for one in rows], server in known, take
            )
            for server, some in shares.items()
        }
        messages = {
            server: call.message(self._requests.request(), kind) for server, call in calls.items()
        }
        replies: Replies = {}
        try:
            self._send(messages, recorded=program.changes, answered=replies.update)
        except OutOfBudget as error:
            others = [calls[server].keys for server in calls.keys() - replies.keys()]
            error.refused = np.sort(np.concatenate(others))
            raise
        self._known.add(program.sweep.digest)
        if view is not None:
            view.servers.update(messages)
        if wire:
            returned = [part for type in program.returned for part in travelling(type, wire)]
            sent = sum(one.nbytes for one in rows) + count * sum(one.row_bytes for one in returned)
            self._counters.count_saved(whole_bytes - sent)
        for server, some in shares.items():
            there, *answers = calls[server].answer(replies[server])
            if alone:
                return answers, there.view(np.bool_) if find else None  # as they came: no copy
            if found is not None:
                found[some] = there.view(np.bool_)
            for target, rows_here in zip(out, answers, strict=True):
                target[some] = rows_here
        return out, found

    def plugin(self, name: str) -> Signature:
        """The signature of a plug-in. One message a server, the first time.

        ``PSError`` that says what the servers' operator has to type where it is not loaded.
        """
        if name not in self._plugins:
            replies = self._send(self._requests.to_all("status"), recorded=False)
            loaded = [
                {one.name: one.signature for one in replies[k].status.plugins}
                for k in range(self.servers)
            ]
            for server, one in enumerate(loaded):
                if name not in one:
                    raise PSError(unknown_plugin(name, one, f"server {server}"))
            if len(found := {one[name] for one in loaded}) > 1:
                raise PSError(
                    f"the servers have different plug-ins {name}: {' and '.join(sorted(found))}; "
                    f"start all of them with the same module"
                )
            self._plugins[name] = Signature.parsed(found.pop())
        return self._plugins[name]

    def stage(
        self,
        round: str,
        key: Key,
        program: RowProgram,
        arrays: Sequence[int],
        keys: KeyBatch,
        given: Sequence[Array] = (),
        scalars: Sequence[Scalar] = (),
        wire: str = "",
        spaces: Sequence[int] = (),
    ) -> None:
        """Keep a row program for ``round`` until it is committed, under ``key``, as of ``run``.

        It returns nothing. Rows that are narrowed are rounded by round and ``key``, whatever the
        attempt. One message to each server, also where it has no key. ``RoundClosed``.
        """
        digest = program.sweep.digest
        whole = digest not in self._known
        body = encode_row_program(program, arrays, scalars, full=whole, spaces=spaces)
        body.keys.space = self.number
        body.given_as = wire
        shares = keys.shares(self.servers, self.partition)
        rows = [
            np.ascontiguousarray(one, type.dtype)
            for one, type in zip(given, program.given, strict=True)
        ]
        if wire and rows:
            whole_bytes = sum(one.nbytes for one in rows)
            rows = _narrow(rows, program, wire, _round_key(round, key))
            self._counters.count_saved(whole_bytes - sum(one.nbytes for one in rows))
        messages: Messages = {}
        for server in range(self.servers):
            some = shares.get(server, slice(0))
            call = RowCall(
                program, body, keys.keys[some], [one[some] for one in rows], False, fresh
            )
            message = self._requests.message(
                "contribute",
                barrier={"kind": "round", "name": round},
                member=key.partition,
                attempt=key.attempt,
                slot=key.slot,
                number=key.number,
            )
            messages[server] = call.message(message.request, "contribute.call")
        self._send(messages)
        self._known.add(digest)

    def remove(self, keys: KeyBatch) -> None:
        """Remove keys; those that are not there are none. One message to each holder."""
        messages: Messages = {}
        for server, selection in keys.shares(self.servers, self.partition).items():
            data = encode_keys(keys.keys[selection])
            count = len(keys.keys[selection])
            named = pb.Keys(space=self.number, count=count, bytes=len(data))
            messages[server] = self._requests.message("remove_keys", keys=named)
            messages[server].payload = [data]
        self._send(messages)

    def layout(self) -> list[SpaceState]:
        """What each server has, in order of the servers. One message a server."""
        messages = self._requests.to_all("read_keys", space=self.number)
        replies = self._send(messages, recorded=False)
        return [decode_state(replies[server].keyed) for server in range(self.servers)]

    def read_keys(self, server: int, version: int, first: int, count: int) -> npt.NDArray[np.int64]:
        """Keys of one server, in the order of its layout. ``LayoutChanged``."""
        message = self._requests.message(
            "read_keys", space=self.number, version=version, first=first, count=count
        )
        keys = np.empty(count, np.int64)
        message.into = byte_view(keys)
        self._send({server: message}, recorded=False)
        return keys

    def freeze(
        self, versions: Sequence[int], sources: Sequence[int], targets: Sequence[StoredArray]
    ) -> None:
        """Make buffers of arrays, or of ``KEYS``. One message a server. ``LayoutChanged``."""
        messages = self._copied(versions, sources, targets)
        self._send(messages, made=[target.buffer for target in targets])

    def thaw(
        self, versions: Sequence[int], sources: Sequence[StoredArray], targets: Sequence[int]
    ) -> None:
        """Let arrays have the rows of buffers. One message a server. ``LayoutChanged``."""
        self._send(self._copied(versions, targets, sources, thaw=True))

    def adopt(
        self, keys: StoredArray, sources: Sequence[StoredArray], targets: Sequence[int]
    ) -> None:
        """Fill the empty space from buffers that lie as servers share keys. One message a server.

        ``OutOfBudget``; ``InvalidProgram`` where these are no keys in the order of a layout.
        """
        versions = [0] * self.servers
        self._send(self._copied(versions, [KEYS, *targets], [keys, *sources], thaw=True))

    def _copied(
        self,
        versions: Sequence[int],
        rows: Sequence[int],
        buffers: Sequence[StoredArray],
        *,
        thaw: bool = False,
    ) -> Messages:
        described = [one.describe() for one in buffers]
        fields = {"space": self.number, "rows": rows, "buffers": described, "thaw": thaw}
        return {
            server: self._requests.message("copy_rows", version=version, **fields)
            for server, version in enumerate(versions)
        }

    def keep(self, versions: Sequence[int], mask: StoredArray) -> None:
        """Remove the keys where ``mask`` is false. One message a server. ``LayoutChanged``."""
        described, keys = mask.describe(), pb.Keys(space=self.number)
        messages = {
            server: self._requests.message(
                "remove_keys", keys=keys, version=version, mask=described
            )
            for server, version in enumerate(versions)
        }
        self._send(messages)


def _narrow(rows: Sequence[Array], program: RowProgram, wire: str, key: int) -> list[Array]:
    """What travels for rows of the types of ``program.given``, rounded by the bits of ``key``."""
    return [
        part
        for k, (one, type) in enumerate(zip(rows, program.given, strict=True))
        for part in narrowed(one, type, wire, key + (k << 64))
    ]


def _round_key(round: str, key: Key) -> int:
    """64 bits for one call of a partition in a round; those of all its attempts are equal."""
    named = repr((round, key._replace(attempt=0))).encode()
    return int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "little")
