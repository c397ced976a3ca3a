"""A standalone cluster of Spark over hosts of their own: a master, workers, and a driver apart."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.cluster.hosts import Host, network
from tests.cluster.links import Link
from tests.quick_start import QUICK_START

MASTER, DRIVER, WORKERS = "master", "driver", ("worker1", "worker2")
CORES = 2

_SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
_PORT = 7077
_MOST_LINES = 4000


@dataclass(frozen=True)
class Cluster:
    """Hosts with Spark on them."""

    hosts: Mapping[str, Host]
    master: str
    options: Mapping[str, str]

    @property
    def driver(self) -> Host:
        """Where programs run."""
        return self.hosts[DRIVER]

    def begin(self, source: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a program on the driver's host; ``spark`` is a session of the cluster there."""
        conf = {"spark.master": self.master, **self.options}
        lines = [f'    .config("{name}", {value!r})' for name, value in conf.items()]
        build = ["from pyspark.sql import SparkSession", "spark = (", "    SparkSession.builder"]
        program = "\n".join([*build, *lines, "    .getOrCreate()", ")", source, "spark.stop()"])
        words = (sys.executable, "-c", program, *arguments)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return self.driver.start(*words, **pipes)

    def run(self, source: str, *arguments: str, timeout: float = 180.0) -> str:
        """What it wrote; RuntimeError with all that it wrote if it fails."""
        process = self.begin(source, *arguments)
        try:
            written, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            written, errors = process.communicate()
            raise RuntimeError(f"not done in {timeout:g} s:\n{written}\n{errors}") from None
        if process.returncode:
            raise RuntimeError(f"the driver's program failed:\n{written}\n{errors}")
        return written


@contextmanager
def cluster(
    *,
    links: Mapping[str, Link] | None = None,
    strangers: Sequence[tuple[str, str]] = (),
    cores: int = CORES,
    executor_memory: str = "1g",
    options: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """``links`` and ``strangers`` as ``network``; ``options`` of Spark for all programs."""
    with (
        ExitStack() as stack,
        network(MASTER, DRIVER, *WORKERS, links=links, strangers=strangers) as hosts,
    ):
        master = _Daemon(hosts[MASTER], "master.Master", "--port", str(_PORT))
        stack.enter_context(master)
        master.wait_for("I have been elected leader")
        url = f"spark://{hosts[MASTER].address}:{_PORT}"
        workers = [
            stack.enter_context(
                _Daemon(
                    hosts[name],
                    "worker.Worker",
                    *("--cores", str(cores), "--memory", executor_memory),
                    *("--work-dir", "/tmp/work", url),
                )
            )
            for name in WORKERS
        ]
        for worker in workers:
            worker.wait_for("Successfully registered with master")
        chosen = {
            "spark.driver.host": hosts[DRIVER].address,
            "spark.executor.memory": executor_memory,
            "spark.executor.extraJavaOptions": QUICK_START[1],
            "spark.driver.extraJavaOptions": QUICK_START[1],
            "spark.driver.memory": "1g",
            "spark.log.level": "ERROR",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            **(options or {}),
        }
        yield Cluster(hosts, url, chosen)


class _Daemon:
    """Of Spark; a thread reads what it writes, so that it never waits for us."""

    def __init__(self, host: Host, role: str, *arguments: str) -> None:
        command = (_SPARK_CLASS, f"org.apache.spark.deploy.{role}", "--host", host.address)
        self._name = f"{role} on {host.name}"
        self._process = host.start(
            *(*command, "--webui-port", "0", *arguments),
            env={"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK_START[1]},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, pattern: str, seconds: float = 60.0) -> None:
        """Until it wrote that; RuntimeError if it ended or does not."""

        def came() -> bool:
            return any(re.search(pattern, line) for line in self._lines)

        with self._news:
            self._news.wait_for(lambda: self._ended or came(), seconds)
            if not came():
                raise RuntimeError(f"{self._name} is not up:\n{''.join(self._lines[-20:])}")

    def _read(self) -> None:
        for line in self._process.stderr:
            with self._news:
                if len(self._lines) < _MOST_LINES:
                    self._lines.append(line)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def __enter__(self) -> _Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        """Its host ended before, and it with it."""
        self._process.wait()
        self._reader.join()
        self._process.stderr.close()
