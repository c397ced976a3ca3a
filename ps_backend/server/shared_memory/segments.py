"""The memory that clients share with a server for bulk transfers."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from ps_backend.errors import OutOfBudget
from ps_backend.server.service import Service
from ps_backend.server.session import attachment
from ps_backend.server.state.memory import Reservation
from ps_backend.transport.shared_memory.segment import WHOLE_BYTES, Segment
from ps_backend.wire import ps_pb2 as pb

_SHARE = 4
"""Segments take at most this part of the budget, so that a small one is left to arrays."""


@dataclass(frozen=True, slots=True)
class _Attached:
    path: str
    segment: Segment
    kept: Reservation

    def is_dead(self) -> bool:
        return not os.path.lexists(self.path)


class Segments:
    """One segment for each client that has one, and for each server that fetches in its name.

    They go when the client does, or their process. Thread-safe.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()

    def get(self, request: pb.Request) -> Segment | None:
        """The segment that the sender describes; None if it, or room for it, cannot be had.

        Raises ``SessionUnknown`` for a sender that has not joined, ``AuthenticationError`` for one
        that names another client: it shares nothing.
        """
        attached = self._service.attached(request)
        there, memory = request.segment, self._service.memory
        name = attachment(request.client, there.pid)
        known = attached.get(name)
        if isinstance(known, _Attached) and known.segment.is_of(there):
            return known.segment
        self.forget_dead()
        most = memory.budget // _SHARE // WHOLE_BYTES
        segment = Segment.attach(there) if most else None
        if segment is None:
            return None
        with self._lock:
            attached.pop(name, None)
            if sum(map(len, self._service.all_attached())) >= most:
                return None
            try:
                kept = memory.reserve(WHOLE_BYTES, "memory shared with a client")
            except OutOfBudget:
                return None
            path = f"/proc/{there.pid}/fd/{there.file}"
            attached[name] = _Attached(path, segment, kept)
        return segment

    def forget_dead(self) -> None:
        """Let go the memory of processes that are gone, which none else holds."""
        with self._lock:
            for attached in self._service.all_attached():
                for client, one in list(attached.items()):
                    if isinstance(one, _Attached) and one.is_dead():
                        attached.pop(client, None)
