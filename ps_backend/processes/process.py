"""One server as a sub-process that ends when the process that started it does."""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ps_backend.arguments import NO_EXTENSIONS, Extensions
from ps_backend.errors import PSError

_THREAD_VARIABLES = (
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)
_LOG_TAIL = 4000


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signs the certificates of servers; all PEM."""

    authority: str
    """The certificate of who signs."""
    sign: Callable[[str], str]
    """Makes a certificate of a request for one; raises ``OSError`` or ``ValueError``."""


class ServerProcess:
    """A server process: started at once, up when ``wait_until_up`` returns, ended by ``stop``.

    What it writes goes to a temporary file without a name: nothing of it is left when both
    processes have ended, however they end.
    """

    def __init__(
        self,
        name: str,
        *,
        token: str,
        threads: int,
        memory: int | None = None,
        host: str = "127.0.0.1",
        signer: Signer | None = None,
        life: int = 0,
        until: float = math.inf,
        extensions: Extensions = NO_EXTENSIONS,
    ) -> None:
        """``name`` is for messages; ``memory``: budget in bytes, 80 % of the machine's if None.

        It listens on a port of ``host`` that the system chooses and computes with ``threads``
        threads, with TLS if there is a ``signer``. ``life``: the number of the server's life that
        it is, which answers no more after ``until`` (``time.monotonic``), unless ``answers`` says
        another moment. Modules of ``extensions`` are looked for where this process would.
        """
        self.name, self.address = name, ""
        self._signer = signer
        self._asked = False
        self._line = b""
        """What has come of the line that it tells next."""
        command = [sys.executable, "-P", "-m", "ps_backend", "serve", "--supervised"]
        command += ["--host", host, "--port", "0"]
        command += [] if memory is None else ["--memory", str(memory)]
        for plugin in extensions.plugins:
            command += ["--plugin", plugin]
        self._log = tempfile.TemporaryFile(prefix="distvec-log-", buffering=0)  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=_environment(threads, extensions),
            bufsize=0,
            process_group=0,  # Ctrl-C in the terminal is for the parent alone
        )
        self._tell(
            {
                "token": token,
                "parent": os.getpid(),
                "authority": "" if signer is None else signer.authority,
                "life": life,
                "until": until,
            }
        )

    @property
    def _output(self) -> int:
        """The descriptor of where it tells the address; -1 once it was asked to end."""
        pipe = self._process.stdout
        return -1 if pipe is None or pipe.closed else pipe.fileno()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def wait_until_up(self, deadline: float, *, unless: int | None = None) -> str:
        """Wait, until ``deadline`` by the monotonic clock, for the address at which it answers.

        Raises ``PSError`` with what the process wrote if it ended, is not up in time, or the file
        ``unless`` became readable before.
        """
        if not self.comes_up(deadline, unless=unless):
            raise self._failed("did not come up in time")
        return self.address

    def comes_up(self, deadline: float, *, unless: int | None = None) -> bool:
        """Wait in the same way; False if it is not up in time, and it may be asked again."""
        while not self.address:
            told = self._next_line(deadline, unless)
            if told is None:
                return False
            if "request" in told and self._signer is not None:
                self._tell({"certificate": self._signer.sign(str(told["request"]))})
            else:
                self.address = str(told["address"])
        return True

    def _tell(self, message: dict[str, object]) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it ended already: `wait_until_up` will say why
                self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def _next_line(self, deadline: float, unless: int | None) -> dict[str, object] | None:
        """What it tells; None if it does not in time."""
        others = [] if unless is None else [unless]
        stdout = self._output
        while not self._line.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([stdout, *others], [], [], left)
            if stdout not in readable:
                return None
            piece = os.read(stdout, 4096)
            if not piece:
                raise self._failed("ended")
            self._line += piece
        line, self._line = self._line, b""
        told: dict[str, object] = json.loads(line)
        return told

    def _failed(self, how: str) -> PSError:
        return PSError(f"{self.name} {how}; it wrote:\n{self.log_tail() or '(nothing)'}")

    def death(self) -> str | None:
        """How the process ended, or None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"its process {self.pid} {how}"

    def wait_for_death(self, seconds: float, *, unless: int) -> None:
        """Wait until it ends, so many seconds at most, or the file ``unless`` is readable."""
        try:
            ends = ends_of(self.pid)
        except ProcessLookupError:
            return
        try:
            select.select([*ends, unless], [], [], seconds)
        finally:
            for end in ends:
                os.close(end)

    def answers(self, until: float = math.inf) -> bool:
        """Ask it for a sign; False while that asked for before has not come. Never waits.

        A thread of its own gives the sign, so a server at work answers, but not a stopped one.
        ``until``: it may answer clients until then.
        """
        ask, signs = self._process.stdin, self._process.stdout
        if ask is None or signs is None:
            return False
        if self._asked and not (select.select([signs], [], [], 0.0)[0] and signs.read(4096)):
            return False
        with suppress(BrokenPipeError):  # it ended: see `death`
            ask.write(f"{until!r}\n".encode())
        self._asked = True
        return True

    def log_tail(self) -> str:
        """The end of what the process wrote; nothing after ``stop``."""
        if self._log.closed:
            return ""
        handle = self._log.fileno()  # its place is the server's as well, and stays
        start = max(0, os.fstat(handle).st_size - _LOG_TAIL)
        return os.pread(handle, _LOG_TAIL, start).decode(errors="replace")

    def ask_to_end(self) -> None:
        """Close its standard input, the sign to end; returns at once."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def stop(self, deadline: float) -> None:
        """End the process, by force at ``deadline`` by the monotonic clock. Idempotent."""
        self.ask_to_end()
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def _environment(threads: int, extensions: Extensions) -> dict[str, str]:
    package = str(Path(__file__).resolve().parents[2])
    here = [one or os.getcwd() for one in sys.path] if extensions.plugins else []
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"), *here)))
    return os.environ | dict.fromkeys(_THREAD_VARIABLES, str(threads)) | {"PYTHONPATH": path}


def ends_of(process: int) -> list[int]:
    """A file that is readable when the process has ended; none where the system has no such.

    Raises ``ProcessLookupError``.
    """
    try:
        return [os.pidfd_open(process)]
    except ProcessLookupError:
        raise
    except OSError:  # as on Linux before 5.3, or where a container forbids the call
        return []
