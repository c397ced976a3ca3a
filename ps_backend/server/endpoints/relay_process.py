"""The server's port, which a process of its own holds: see ``relay.py``."""

from __future__ import annotations

import errno
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ps_backend.server.endpoints.framed_server import SILENT_SECONDS, listen
from ps_backend.server.endpoints.relay import CLOSE, RENEW
from ps_backend.server.endpoints.tokens import Tokens
from ps_backend.transport.framed import keep_alive
from ps_backend.transport.tls import proof_of_token

_LOG = logging.getLogger(__name__)

MOST_STRANGERS = 256
"""Who have not shown yet that they have the token; of more, one is sent away."""

MOST_CONNECTIONS = 4096
"""Of those who have."""

_RUN = "from ps_backend.server.endpoints.relay import main; main()"
"""Not ``-m``, which imports as much as that."""

_BACKLOG = 1024
_START_SECONDS, _END_SECONDS = 30.0, 5.0
_LONGEST_PATH = 60
"""Of a folder in which a socket can be: with the names below it, a system takes 107."""


class RelayProcess:
    """Takes connections for the gRPC server of this process, and leads in who shows the proof."""

    def __init__(self, tokens: Tokens, host: str, port: int) -> None:
        """Take ``port``; 0 lets the system choose. Without ``tokens`` all are let in.

        Raises ``OSError`` if the address cannot be had.
        """
        self._tokens = tokens
        self._listener = _listener(host, port)
        self.port: int = self._listener.getsockname()[1]
        self._inner, self._held = "", -1
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ending, self._lock = False, threading.Lock()

    def bind(self, bind: Callable[[str], int]) -> None:
        """Let gRPC ``bind`` an address that other users and hosts cannot reach.

        It is that of a socket whose file is gone when this returns, where the system has a way
        to it all the same; so nothing is left of it either, however the process ends.
        """
        folder = tempfile.gettempdir()
        held = tempfile.TemporaryDirectory(
            prefix="distvec-", dir=folder if len(folder) < _LONGEST_PATH else "/tmp"
        )
        path = os.path.join(held.name, "grpc")
        try:
            if not bind(f"unix:{path}"):
                raise OSError(f"gRPC cannot listen at {path}")
            if not hasattr(os, "O_PATH"):
                self._inner, self._folder = path, held
                return
            self._held = os.open(path, os.O_PATH)
            self._inner = f"/proc/self/fd/{self._held}"
        finally:
            if self._folder is None:
                held.cleanup()

    def start(self) -> None:
        """Begin to take connections; returns when the process does. Raises ``OSError``."""
        self._control, its = socket.socketpair()
        with its:
            command = [sys.executable, "-S", "-P", "-c", _RUN]
            command += [str(self._listener.fileno()), self._inner]
            command += map(str, (MOST_STRANGERS, SILENT_SECONDS, MOST_CONNECTIONS))
            kept = [self._listener.fileno(), self._held]
            self._process = subprocess.Popen(
                command,
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])},
                pass_fds=[number for number in kept if number >= 0],
                process_group=0,  # Ctrl-C in the terminal is for the server alone
            )
        self._control.settimeout(_START_SECONDS)
        self._control.sendall(self._proofs())
        if not self._control.recv(1):
            raise ConnectionResetError(f"the process for port {self.port} ended as it began")
        self._control.settimeout(_END_SECONDS)

    def look_after(self) -> None:
        """Start the process again if it has ended; to be called about once a second."""
        with self._lock:
            if self._ending or self._process is None or self._process.poll() is None:
                return
            _LOG.error("the process at port %s has ended; another one begins", self.port)
            self._close_control()
            with suppress(OSError):  # the next look tries again
                self.start()

    def renew(self) -> None:
        """Let in by the tokens of now; who is in stays."""
        with self._lock:
            if self._control is None or self._ending:
                return
            with suppress(OSError):  # it has ended; the next one begins with the tokens of then
                self._control.sendall(RENEW + self._proofs())
                self._control.recv(1)

    def close(self) -> None:
        """Take no more connections; those that are there stay."""
        with self._lock:
            self._ending = True
        self._listener.close()
        if self._control is not None:
            with suppress(OSError):  # it has ended
                self._control.sendall(CLOSE)
                self._control.recv(1)

    def end(self) -> None:
        """End those that are left, and the process. Idempotent, as is ``close``, which it calls."""
        self.close()
        self._close_control()
        if self._process is not None:
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._held >= 0:
            os.close(self._held)
            self._held = -1
        if self._folder is not None:
            self._folder.cleanup()

    def _proofs(self) -> bytes:
        return " ".join(map(proof_of_token, self._tokens)).encode() + b"\n"

    def _close_control(self) -> None:
        if self._control is not None:
            with suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)
            self._control.close()
            self._control = None


def _listener(host: str, port: int) -> socket.socket:
    try:
        listener = listen(host, port, _BACKLOG)
    except socket.gaierror as error:
        raise OSError(f"{host} is not a known host name: {error}") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OSError(
                errno.EADDRINUSE,
                f"port {port} on {host} is in use; choose another with --port, or --port 0 to let "
                f"the system choose",
            ) from None
        raise OSError(f"cannot listen on port {port} of {host}: {error.strerror}") from None
    keep_alive(listener)  # and what it accepts
    return listener
