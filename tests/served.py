"""``distvec serve`` processes at fixed addresses, and somebody who starts them again."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ps_backend.transport.timeouts import completes_handshake
from tests.waiting import PATIENCE

TOKEN = "a token of tests"
_LOOK_SECONDS, _TRY_SECONDS = 0.1, 1.0


class Served:
    """Servers that may write below ``folder``."""

    def __init__(self, folder: Path, servers: int, *, grace: float = 25.0) -> None:
        token = folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        self._command = [sys.executable, "-m", "ps_backend", "serve", "--memory", "256m"]
        self._command += ["--token-file", str(token), "--store", str(folder)]
        self._command += ["--grace", str(grace)]
        self._ports = [_free_port() for _ in range(servers)]
        self._running = [self._started(k) for k in range(servers)]
        self._over = threading.Event()

    @property
    def addresses(self) -> list[str]:
        """Where they are, whichever processes they are."""
        return [f"127.0.0.1:{port}" for port in self._ports]

    @property
    def pids(self) -> list[int]:
        """Of the processes of now."""
        return [process.pid for process in self._running]

    def again(self, k: int) -> None:
        """Kill the ``k``-th, and start it again; returns once it answers.

        A busy machine takes longer for that than clients repeat what they asked.
        """
        self._running[k].kill()
        self._running[k].wait()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self._running[k].poll() is not None:  # also one that was killed while it started
                self._running[k] = self._started(k)
            if completes_handshake(self.addresses[k], _TRY_SECONDS, token=TOKEN):
                return
        raise AssertionError(f"no server starts at {self.addresses[k]}")

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Start again whichever dies."""

        def look() -> None:
            while not self._over.wait(_LOOK_SECONDS):
                for k, process in enumerate(self._running):
                    if process.poll() is not None:
                        self.again(k)

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def end(self) -> None:
        """Kill all."""
        for process in self._running:
            process.kill()
            process.wait()

    def _started(self, k: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self._command, "--port", str(self._ports[k])],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


@contextmanager
def served(folder: Path, servers: int, *, grace: float = 25.0) -> Iterator[Served]:
    """Servers for the time of a block."""
    running = Served(folder, servers, grace=grace)
    try:
        yield running
    finally:
        running.end()


def _free_port() -> int:
    """Below those that the system gives to connections: one of them could take it for its own end
    while the server that had it is started again.
    """
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
