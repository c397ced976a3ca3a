"""A proxy that forgets connections: what is sent over them arrives no more, and new ones work."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TO_SERVER, TO_CLIENT = "to the server", "to the client"
DIRECTIONS = ((TO_SERVER,), (TO_CLIENT,), (TO_SERVER, TO_CLIENT))

Address = tuple[str, int] | bytes
"""Of TCP, or of a Unix socket without a file."""


class Proxy:
    """Listens at ``address``, and passes everything on to ``target``."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._listener = _socket(target)
        self._listener.bind(("127.0.0.1", 0) if isinstance(target, tuple) else b"")
        self._listener.listen()
        self.address: Address = self._listener.getsockname()
        self._open: list[socket.socket] = []
        self._forgotten: dict[str, set[int]] = {TO_SERVER: set(), TO_CLIENT: set()}
        self._go_on = threading.Event()
        """Who passes nothing on looks here, so that nothing of a hung proxy is closed."""
        self.least_pause = 0.0
        """Seconds between two pieces: of a slow link."""
        self.passed = {TO_SERVER: 0, TO_CLIENT: 0}
        """Bytes."""
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def forget(self, directions: tuple[str, ...]) -> None:
        """All connections of now, in these directions."""
        for direction in directions:
            self._forgotten[direction] = set(range(self.accepted))

    def close(self) -> None:
        """End all."""
        self._go_on.set()
        for one in [self._listener, *self._open]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = _socket(self._target)
                self._open += [client, server]
                server.connect(self._target)
                number, self.accepted = self.accepted, self.accepted + 1
                for direction, source, sink in (
                    (TO_SERVER, client, server),
                    (TO_CLIENT, server, client),
                ):
                    arguments = (number, direction, source, sink)
                    threading.Thread(target=self._pass_on, args=arguments, daemon=True).start()

    def _pass_on(
        self, number: int, direction: str, source: socket.socket, sink: socket.socket
    ) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if number in self._forgotten[direction]:
                    self._go_on.wait()
                    return
                if self.least_pause:
                    self._go_on.wait(self.least_pause)
                sink.sendall(data)
                self.passed[direction] += len(data)
        with suppress(OSError):
            if number not in self._forgotten[direction]:
                sink.shutdown(socket.SHUT_WR)


def _socket(target: Address) -> socket.socket:
    return socket.socket(socket.AF_INET if isinstance(target, tuple) else socket.AF_UNIX)


@contextmanager
def proxy_to(target: Address) -> Iterator[Proxy]:
    """Until the end of the block."""
    made = Proxy(target)
    try:
        yield made
    finally:
        made.close()
