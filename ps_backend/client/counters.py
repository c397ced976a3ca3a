"""What a client has asked of its servers so far."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ps_backend.program.sweep import Program


class Counters:
    """Counts since the session was opened or ``reset``. Thread-safe.

    A message is a request and its reply; a program that runs in this process without them counts as
    the messages that it would take. Vectors are whole ones, however many servers hold them.
    """

    def __init__(self, servers: int) -> None:
        self._lock = threading.RLock()  # also for a handler of a signal that interrupts here
        self._servers = servers
        self.profile: Any = None
        """A ``distvec.diagnostics.profile.Profile`` that measures each call of the session."""
        self.reset()

    def resize(self, servers: int) -> None:
        """Count for so many servers; counts of those that are left out are dropped."""
        with self._lock:
            more = max(0, servers - self._servers)
            self._servers = servers
            self.messages_per_server[:] = [*self.messages_per_server, *[0] * more][:servers]
            self.seconds_per_server[:] = [*self.seconds_per_server, *[0.0] * more][:servers]

    def reset(self) -> None:
        """Count from zero again."""
        with self._lock:
            self.messages_per_server = [0] * self._servers
            self.bytes_sent = 0
            """Bytes of requests to all servers, payload included."""
            self.bytes_received = 0
            """Bytes of replies of all servers, payload included."""
            self.programs = 0
            self.sweeps = 0
            """Traversals of memory."""
            self.phases = 0
            """Phases of collectives."""
            self.vectors_read = 0
            self.vectors_written = 0
            self.vectors_in_place = 0
            """Those of them that took over the memory of a vector that nobody held any more."""
            self.peer_messages = 0
            """Requests of servers to one another, for programs with views or collectives."""
            self.peer_bytes = 0
            """Bytes of elements, and of their indices, in these and their replies."""
            self.bytes_saved = 0
            """Bytes that rows of keys would have taken more, had they not travelled narrowed."""
            self.seconds_waited = 0.0
            """Time in which the client waited for answers."""
            self.seconds_per_server = [0.0] * self._servers
            """Time that each server worked."""

    @property
    def messages(self) -> int:
        """Messages to the busiest server."""
        return max(self.messages_per_server)

    def snapshot(self) -> dict[str, int]:
        """All counts by name."""
        with self._lock:
            return {
                "messages": self.messages,
                "bytes_sent": self.bytes_sent,
                "bytes_received": self.bytes_received,
                "programs": self.programs,
                "sweeps": self.sweeps,
                "phases": self.phases,
                "vectors_read": self.vectors_read,
                "vectors_written": self.vectors_written,
                "vectors_in_place": self.vectors_in_place,
                "peer_messages": self.peer_messages,
                "peer_bytes": self.peer_bytes,
                "bytes_saved": self.bytes_saved,
            }

    def count_run(
        self, program: Program, messages: Sequence[tuple[int, int, int, float]], waited: float
    ) -> None:
        """A program without collectives, its messages (as of ``count_message``), and the wait."""
        with self._lock:
            self.seconds_waited += waited
            for server, sent, received, seconds in messages:
                self.messages_per_server[server] += 1
                self.seconds_per_server[server] += seconds
                self.bytes_sent += sent
                self.bytes_received += received
            self._count_calls(program)

    def _count_calls(self, program: Program) -> None:
        self.programs += 1
        for call in program.calls:
            self.sweeps += 1
            self.vectors_read += len(set(call.inputs))
            self.vectors_written += len(call.outputs)
            self.vectors_in_place += len(call.donors)

    def count_message(self, server: int, sent: int, received: int, seconds: float) -> None:
        """One message to ``server`` and its reply, of so many bytes; it worked so long."""
        with self._lock:
            self.messages_per_server[server] += 1
            self.seconds_per_server[server] += seconds
            self.bytes_sent += sent
            self.bytes_received += received

    def count_program(self, program: Program) -> None:
        """One program, and the vectors that its traversals and collectives read and write."""
        with self._lock:
            self._count_calls(program)
            for collective in (*program.before, *program.after):
                self.phases += 1
                self.vectors_read += len(collective.inputs)
                self.vectors_written += len(collective.made)

    def count_peers(self, messages: int, size: int) -> None:
        """A server sent so many messages to others, with so many bytes both ways."""
        with self._lock:
            self.peer_messages += messages
            self.peer_bytes += size

    def count_saved(self, size: int) -> None:
        """Rows travelled in so many bytes less than they are kept in."""
        with self._lock:
            self.bytes_saved += size

    def count_vectors(self, *, read: int = 0, written: int = 0) -> None:
        """Whole vectors pulled or pushed."""
        with self._lock:
            self.vectors_read += read
            self.vectors_written += written

    def count_wait(self, seconds: float) -> None:
        """The client waited so long for answers."""
        with self._lock:
            self.seconds_waited += seconds

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={count}" for name, count in self.snapshot().items())
        return f"Counters({inside})"

    def __str__(self) -> str:
        rows = [(name.replace("_", " "), f"{count:,}") for name, count in self.snapshot().items()]
        left = max(len(name) for name, _ in rows)
        right = max(len(count) for _, count in rows)
        return "\n".join(f"{name:<{left}}  {count:>{right}}" for name, count in rows)
