"""Server processes on this machine that end when the process that launched them does."""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ps_backend.errors import PSError
from ps_backend.memory import default_budget

_THREAD_VARIABLES = (
    "NUMBA_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)
_LOG_TAIL = 2000
_LOGS = "distvec-logs-"


def launch_local(
    servers: int, *, memory: int | None = None, token: str | None = None, timeout: float = 30.0
) -> LocalServers:
    """Start ``servers`` server processes on the loopback and wait until all of them listen.

    ``memory``: budget of each in bytes; an equal share of 80 % of the machine's by default.
    ``token``: a random one by default. They share the machine's cores equally, and end with this
    process even if it is killed. Raises ``PSError`` with what a server wrote if one is not up in
    ``timeout`` seconds.
    """
    if servers < 1:
        raise ValueError(f"servers must be 1 or more, got {servers}")
    return LocalServers(
        servers,
        memory=default_budget(servers) if memory is None else memory,
        token=token or secrets.token_urlsafe(32),
        timeout=timeout,
    )


class LocalServers:
    """Running server processes. A context manager that stops them at the end.

    Without it they are stopped when the interpreter ends, or nobody holds this object.
    """

    def __init__(self, servers: int, *, memory: int, token: str, timeout: float) -> None:
        """As ``launch_local``, which fills in the defaults."""
        self.token = token
        _remove_logs_of_the_dead()
        self.logs = Path(tempfile.mkdtemp(prefix=f"{_LOGS}{os.getpid()}-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stop = weakref.finalize(self, _stop, os.getpid(), self._processes, self.logs)
        self.addresses: tuple[str, ...] = ()
        try:
            for number in range(servers):
                self._processes.append(self._spawn(number, servers, memory))
            deadline = time.monotonic() + timeout
            self.addresses = tuple(self._address(k, deadline) for k in range(servers))
        except BaseException:
            self.stop()
            raise

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids, in the order of the addresses."""
        return tuple(process.pid for process in self._processes)

    def diagnose(self, address: str) -> str | None:
        """What is known of the server at ``address`` if it died: how, and the end of its log."""
        if address not in self.addresses:
            return None
        number = self.addresses.index(address)
        code = self._processes[number].poll()
        if code is None:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"its process {self.pids[number]} {how}; log: {self._log(number)}"

    def stop(self) -> None:
        """End all servers and wait for them; whatever they hold is gone. Idempotent."""
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _spawn(self, number: int, servers: int, memory: int) -> subprocess.Popen[bytes]:
        threads = str(max(1, (os.cpu_count() or 1) // servers))
        package = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        environment = os.environ | dict.fromkeys(_THREAD_VARIABLES, threads) | {"PYTHONPATH": path}
        command = [sys.executable, "-P", "-m", "ps_backend", "serve", "--supervised"]
        command += ["--port", "0", "--memory", str(memory)]
        with self._log(number).open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                bufsize=0,
                process_group=0,  # Ctrl-C in the terminal is for the parent alone
            )
        orders = json.dumps({"token": self.token, "parent": os.getpid()}) + "\n"
        if process.stdin is not None:
            with suppress(BrokenPipeError):  # it ended already: `_address` will say why
                process.stdin.write(orders.encode())
        return process

    def _address(self, number: int, deadline: float) -> str:
        """Wait for the line in which a server reports its address."""
        stdout = self._processes[number].stdout
        line = b""
        while stdout is not None and not line.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([stdout], [], [], left)
            piece = stdout.read(4096) if readable else b""
            if not piece:
                why = "ended" if readable else "did not come up in time"
                tail = self._log(number).read_bytes()[-_LOG_TAIL:].decode(errors="replace")
                raise PSError(f"server {number} {why}; it wrote:\n{tail or '(nothing)'}")
            line += piece
        return str(json.loads(line)["address"])

    def _log(self, number: int) -> Path:
        return self.logs / f"server-{number}.log"


def _stop(launched_by: int, processes: Sequence[subprocess.Popen[bytes]], logs: Path) -> None:
    if os.getpid() != launched_by:
        return  # a fork of the process that they belong to
    for process in processes:
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()  # the sign to end
        if process.stdout is not None:
            process.stdout.close()
    deadline = time.monotonic() + 3.0
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    shutil.rmtree(logs, ignore_errors=True)


def _remove_logs_of_the_dead() -> None:
    """Remove what processes that were killed could not: their names hold the process id."""
    for logs in Path(tempfile.gettempdir()).glob(f"{_LOGS}*-*"):
        pid = logs.name.removeprefix(_LOGS).split("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists() and Path("/proc/self").exists():
            shutil.rmtree(logs, ignore_errors=True)
