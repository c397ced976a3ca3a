"""A row program on the keys that one server holds: its message, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.client.key_batch import KeyBatch
from ps_backend.client.server_link import Message
from ps_backend.program.row_program import RowProgram
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import Parts, byte_view
from ps_backend.wire.keyed import add_structure, encode_keys, padded
from ps_backend.wire.narrow import travelling, widened

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
        self._rows = [part for one in rows for part in _padded(byte_view(_contiguous(one)))]
        self._types = [travelling(type, body.returns_as) for type in program.returned]
        row_bytes = [1] * body.find + [type.row_bytes for some in self._types for type in some]
        self._sizes = [len(keys) * size for size in row_bytes]
        self._answer = take(sum(map(padded, self._sizes)))

    def message(self, request: pb.Request, kind: str) -> Message:
        """The call as a request of that ``kind``."""
        body: pb.RowCall = getattr(request, kind)
        body.CopyFrom(self._body)
        body.keys.count = len(self.keys)

        def complete(request: pb.Request) -> Parts:
            body: pb.RowCall = getattr(request, kind)
            add_structure(body, self._program)
            return self._payload(body)

        payload = self._rows if self._known else self._payload(body)
        into = byte_view(self._answer) if kind == "look_up" else None
        return Message(request, payload, into, complete)

    def _payload(self, body: pb.RowCall) -> Parts:
        keys = encode_keys(self.keys)
        body.keys.bytes = len(keys)
        return [*_padded(keys), *self._rows]

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


def _padded(part: memoryview) -> list[memoryview]:
    """The part, and what brings it to the length that it takes."""
    missing = padded(len(part)) - len(part)
    return [part, _PADDING[:missing]] if missing else [part]
