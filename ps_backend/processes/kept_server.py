"""One server process after the other, for whoever keeps a server running."""

from __future__ import annotations

import math
import threading
import time

from ps_backend.arguments import NO_EXTENSIONS, Extensions
from ps_backend.errors import PSError
from ps_backend.processes.process import ServerProcess, Signer

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
    ) -> None:
        """Nothing runs until ``begin``. ``name`` is for messages, the rest as ``ServerProcess``.

        A process that does not answer ``start_seconds`` after its start is given up.
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
        self._start_seconds = start_seconds
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
        )
        return self.process

    def start(self, *, unless: int) -> None:
        """As ``begin``, and wait until it answers; ``PSError`` if it does not, or breaks off.

        It breaks off when the file ``unless`` becomes readable.
        """
        process = self.begin()
        process.wait_until_up(self._began + self._start_seconds, unless=unless)
        self._looked = time.monotonic()

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
