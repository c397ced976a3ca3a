"""One server as a sub-process that ends when its starter does, and the next one after it."""

from __future__ import annotations

import json
import logging
import math
import os
import select
import subprocess
import sys
import tempfile
import threading
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
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signs the certificates of servers; all PEM."""

    authority: str
    """The certificate of who signs."""
    sign: Callable[[str], str]
    """Makes a certificate of a request for one; raises ``OSError`` or ``ValueError``."""


class WaitingProcess:
    """A process that is to be a server: it has imported everything, and waits for its orders.

    What it writes goes to a temporary file without a name: nothing of it is left when both
    processes have ended, however they end.
    """

    def __init__(
        self,
        *,
        threads: int = 1,
        memory: int | None = None,
        host: str = "127.0.0.1",
        extensions: Extensions = NO_EXTENSIONS,
    ) -> None:
        """As of ``ServerProcess``."""
        command = [sys.executable, "-P", "-m", "ps_backend", "serve", "--supervised"]
        command += ["--host", host, "--port", "0"]
        command += [] if memory is None else ["--memory", str(memory)]
        command += extensions.as_options()
        self.log = tempfile.TemporaryFile(prefix="distvec-log-", buffering=0)  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=_environment(threads, extensions),
            bufsize=0,
            process_group=0,  # Ctrl-C in the terminal is for the parent alone
        )

    def end(self) -> None:
        """End it by force: it holds no data."""
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.log):
            if file is not None:
                file.close()


class Spares:
    """Waiting processes for servers that die, all alike. Thread-safe."""

    def __init__(self, count: int, start: Callable[[], WaitingProcess] = WaitingProcess) -> None:
        """``start`` starts one; none is started before ``fill``."""
        self._count, self._start = count, start
        self._waiting: list[WaitingProcess] = []
        self._ended = False
        self._lock = threading.RLock()  # whoever ends them may have been collecting garbage

    def fill(self) -> None:
        """Start as many as are missing; returns at once. Servers can start without them, too."""
        with self._lock:
            while not self._ended and len(self._waiting) < self._count:
                try:
                    self._waiting.append(self._start())
                except OSError as error:
                    _LOG.warning("no process waits to replace a server: %s", error)
                    return

    def take(self) -> WaitingProcess | None:
        """The one that has waited longest, if any lives."""
        with self._lock:
            while self._waiting:
                one = self._waiting.pop(0)
                if one.process.poll() is None:
                    return one
                one.end()
        return None

    @property
    def pids(self) -> tuple[int, ...]:
        """Of those that wait."""
        with self._lock:
            return tuple(one.process.pid for one in self._waiting)

    def end(self) -> None:
        """End all, and start no more."""
        with self._lock:
            self._ended = True
            for one in self._waiting:
                one.end()
            self._waiting.clear()


class ServerProcess:
    """A server process: started at once, up when ``wait_until_up`` returns, ended by ``stop``."""

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
        waiting: WaitingProcess | None = None,
    ) -> None:
        """``name`` is for messages; ``memory``: budget in bytes, 80 % of the machine's if None.

        It listens on a port of ``host`` that the system chooses and computes with ``threads``
        threads, with TLS if there is a ``signer``. ``life``: the number of the server's life that
        it is, which answers no more after ``until`` (``time.monotonic``), unless ``answers`` says
        another moment. Modules of ``extensions`` are looked for where this process would.
        ``waiting``: a process that was started for such servers, to be this one.
        """
        self.name, self.address = name, ""
        self._signer = signer
        self._asked = False
        self._line = b""
        """What has come of the line that it tells next."""
        started = waiting or WaitingProcess(
            threads=threads, memory=memory, host=host, extensions=extensions
        )
        self._process, self._log = started.process, started.log
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
            raise self._failed("did not start in time")
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


SILENT_SECONDS = 10.0
"""A server that answers no sign for so long is stopped or wedged: it is killed, and replaced."""

_LOOK_SECONDS = 1.0
"""Between two looks no longer silence is seen: who looks may have been stopped itself."""

START_SECONDS = 30.0
"""A process that does not answer so long after its start is given up."""

_SHORT_LIFE_SECONDS = 10.0
_MOST_SHORT_LIVES = 3
"""In a row; then another life would be no longer."""


class KeptServer:
    """The process of one server, or none, and how the last one ended.

    One thread keeps it; any may ask ``diagnose``.
    """

    def __init__(
        self,
        name: str,
        *,
        token: str,
        threads: int,
        memory: int,
        signer: Signer | None = None,
        extensions: Extensions = NO_EXTENSIONS,
        start_seconds: float = START_SECONDS,
        spares: Spares | None = None,
    ) -> None:
        """Nothing runs until ``begin``. ``name`` is for messages, the rest as ``ServerProcess``.

        A process that does not answer ``start_seconds`` after its start is given up. Another life
        is one of ``spares``, if there are any.
        """
        self.name = name
        self.process: ServerProcess | None = None
        self.life = 0
        """The number of the server's life that the last process was, or is."""
        self.trouble = ""
        """Where the last process was, and how it ended."""
        self._wrote = ""
        self._token, self._threads, self._memory = token, threads, memory
        self._signer, self._extensions = signer, extensions
        self._start_seconds, self._spares = start_seconds, spares or Spares(0)
        self._began = self._looked = self._silence = 0.0
        self._short_lives = 0
        self._lock = threading.RLock()  # whoever stops it may have been collecting garbage

    @property
    def address(self) -> str:
        """Where the process answers; empty while none does."""
        process = self.process
        return "" if process is None else process.address

    @property
    def pid(self) -> int:
        """Of the process; 0 without one."""
        process = self.process
        return 0 if process is None else process.pid

    def begin(
        self, host: str = "127.0.0.1", *, life: int | None = None, until: float = math.inf
    ) -> ServerProcess:
        """Start a process, which is up when its ``wait_until_up`` returns, or ``comes_up`` is true.

        ``life``: its number, the next one if not given. It may answer ``until`` then.
        """
        self._began = self._looked = time.monotonic()
        self._silence = 0.0
        self.life = self.life + 1 if life is None else life
        self.process = ServerProcess(
            self.name,
            token=self._token,
            threads=self._threads,
            memory=self._memory,
            host=host,
            signer=self._signer,
            life=self.life,
            until=until,
            extensions=self._extensions,
            waiting=self._spares.take(),
        )
        return self.process

    def start(self, *, unless: int) -> None:
        """As ``begin``, and wait until it answers; ``PSError`` if it does not, or breaks off.

        It breaks off when the file ``unless`` becomes readable.
        """
        process = self.begin()
        process.wait_until_up(self._began + self._start_seconds, unless=unless)
        self._looked = time.monotonic()
        self._spares.fill()

    def comes_up(self, seconds: float) -> bool:
        """Wait so long at most for the process to answer; whether it does.

        Raises ``PSError`` if it ended, or has had ``start_seconds``.
        """
        process, deadline = self.process, self._began + self._start_seconds
        if process is None:
            return False
        self._looked = time.monotonic()
        if not process.comes_up(min(self._looked + seconds, deadline)):
            if self._looked < deadline:
                return False
            process.wait_until_up(deadline)
        self._spares.fill()
        return True

    def look_after(self, until: float = math.inf) -> None:
        """Note how the process died, if it did, or kill it if it is silent; to be called often.

        It may answer ``until`` then.
        Afterwards ``process`` may be None. Raises ``PSError`` if several died soon after their
        start.
        """
        process = self.process
        if process is None:
            return
        death = process.death()
        if death is not None:
            self.bury(death)
        elif self._is_silent(process, until):
            self._note(
                f"its process {process.pid} gave no sign for {SILENT_SECONDS:g} s "
                "(stopped, or wedged), and was killed"
            )
            self.end(0.0)

    def bury(self, death: str) -> None:
        """The process ended, as said; ``PSError`` if several did soon after their start."""
        self._note(death)
        short = time.monotonic() - self._began < _SHORT_LIFE_SECONDS
        self._short_lives = self._short_lives + 1 if short else 0
        self.end(0.0)
        if self._short_lives >= _MOST_SHORT_LIVES:
            wrote = self._wrote or "(nothing)"
            raise PSError(f"{self.trouble}, soon after its start; it wrote:\n{wrote}")

    def diagnose(self, address: str) -> str | None:
        """What is known of a process that answered there if it died: how, and what it wrote."""
        with self._lock:
            process = self.process
            if process is not None and process.address == address:
                death, wrote = process.death(), process.log_tail().strip()
            else:
                death = self.trouble if f" {address}: " in self.trouble else None
                wrote = self._wrote
        return f"{death}; it wrote:\n{wrote}" if death and wrote else death

    def end(self, seconds: float) -> None:
        """End the process, by force after so many seconds. Idempotent."""
        with self._lock:
            process, self.process = self.process, None
        if process is not None:
            process.stop(time.monotonic() + seconds)

    def _note(self, how: str) -> None:
        with self._lock:
            if self.process is not None:
                self.trouble = f"{self.name} at {self.process.address}: {how}"
                self._wrote = self.process.log_tail().strip()

    def _is_silent(self, process: ServerProcess, until: float) -> bool:
        now = time.monotonic()
        if process.answers(until):
            self._silence = 0.0
        else:
            self._silence += min(now - self._looked, _LOOK_SECONDS)
        self._looked = now
        return self._silence > SILENT_SECONDS
