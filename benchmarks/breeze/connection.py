"""A JVM that runs Peer.scala, and the requests it answers: Peer.scala describes them."""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self, cast

import numpy as np

from benchmarks.breeze.compiler import class_path, find_java

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]

_OPTIONS = (
    # As Spark starts its JVM: Breeze's dot and axpy then use vector instructions.
    "--add-modules=jdk.incubator.vector",
    "-XX:+UseParallelGC",
)
_LOG_TAIL = 2000


@dataclass(frozen=True)
class Minimisation:
    """How a minimisation went; ``objective_seconds`` of its ``seconds`` were the objective's."""

    iterations: int
    evaluations: int
    value: float
    seconds: float
    objective_seconds: float
    reason: str
    x: np.ndarray | None = None

    @property
    def own_seconds(self) -> float:
        """What the optimizer itself took."""
        return self.seconds - self.objective_seconds


class Breeze:
    """A JVM with Breeze in it. A context manager; one request at a time.

    ``heap`` is Java's for ``-Xmx``. Raises ``BreezeMissing`` where there is no Java or no PySpark.
    """

    def __init__(self, heap: str = "1g") -> None:
        java = find_java()
        command = [java, f"-Xmx{heap}", *_OPTIONS, "-cp", class_path(java), "Peer"]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the JVM
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    def quadratic(self, n: int, *, iterations: int, history: int) -> Minimisation:
        """The objective of benchmarks/minimisation.py from 0, all of it in the JVM."""
        self._request(f"quadratic {n} {iterations} {history}")
        return self._result()

    def minimize(
        self,
        fun: Objective,
        x0: np.ndarray,
        *,
        max_iterations: int = 1000,
        history: int = 10,
        tolerance: float = 1e-9,
    ) -> Minimisation:
        """Minimise a function of this process: ``fun(x) -> (value, gradient)``, both float64.

        ``tolerance`` is Breeze's own: on the values of 20 iterations relative to the first value,
        and on the gradient relative to the value. ``objective_seconds`` include the transfer. What
        ``fun`` raises ends the JVM and comes through.
        """
        start = np.asarray(x0, dtype=np.float64)
        self._request(f"remote {start.size} {max_iterations} {history} {tolerance}", start)
        try:
            return self._result(fun, start.size)
        except BaseException:
            self.close()  # it waits for an answer that will not come
            raise

    def close(self) -> None:
        """End the JVM. Repeating it does nothing."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            cast(IO[bytes], stream).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _request(self, line: str, vector: np.ndarray | None = None) -> None:
        content = struct.pack(">H", len(line)) + line.encode()
        self._send(content if vector is None else content + _to_bytes(vector))

    def _result(self, fun: Objective | None = None, n: int = 0) -> Minimisation:
        """Evaluate ``fun`` wherever it is asked for, until the result comes."""
        while (kind := self._receive(1)) == b"e" and fun is not None:
            value, gradient = fun(_from_bytes(self._receive(8 * n)))
            self._send(struct.pack(">d", value) + _to_bytes(gradient))
        (length,) = struct.unpack(">H", self._receive(2))
        line = self._receive(length).decode()
        if kind != b"r":
            raise RuntimeError(f"Breeze failed: {line}")
        iterations, evaluations, minimum, seconds, objective_seconds, reason = line.split()
        return Minimisation(
            iterations=int(iterations),
            evaluations=int(evaluations),
            value=float(minimum),
            seconds=float(seconds),
            objective_seconds=float(objective_seconds),
            reason=reason.replace("_", " "),
            x=None if fun is None else _from_bytes(self._receive(8 * n)),
        )

    def _send(self, content: bytes) -> None:
        stream = cast(IO[bytes], self._process.stdin)
        try:
            stream.write(content)
            stream.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _receive(self, count: int) -> bytes:
        content = cast(IO[bytes], self._process.stdout).read(count)
        if len(content) < count:
            raise self._ended()
        return content

    def _ended(self) -> RuntimeError:
        code = self._process.wait()
        self._log.seek(0)
        wrote = self._log.read()[-_LOG_TAIL:].decode(errors="replace")
        return RuntimeError(f"the JVM ended with exit code {code}; it wrote:\n{wrote}")


def _to_bytes(vector: np.ndarray) -> bytes:
    return vector.astype(">f8").tobytes()


def _from_bytes(content: bytes) -> np.ndarray:
    return np.frombuffer(content, dtype=">f8").astype(np.float64)
