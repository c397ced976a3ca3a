"""A small Spark cluster of two hosts: speculative copies run on another host than the original.

``local-cluster`` has one host name for all of its executors, and so never speculates.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.quick_start import QUICK_START

HOSTS = ("127.0.0.2", "127.0.0.3")
CORES = 2


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """A master and a worker on each of HOSTS; yields the master's URL."""
    launch = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = os.environ | {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_START[1],
    }
    started = []

    def start(role: str, *arguments: str) -> subprocess.Popen[str]:
        command = [str(launch), f"org.apache.spark.deploy.{role}", "--webui-port", "0", *arguments]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
        )
        started.append(process)
        return process

    try:
        master = start("master.Master", "--host", "127.0.0.1", "--port", "0")
        url = _wait_for(master, r"Starting Spark master at (spark://\S+)")
        for host in HOSTS:
            start(
                "worker.Worker",
                *("--host", host, "--cores", str(CORES), "--memory", "1g"),
                *("--work-dir", str(directory), url),
            )
        for worker in started[1:]:
            _wait_for(worker, "Successfully registered with (master)")
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.communicate()


def _wait_for(process: subprocess.Popen[str], pattern: str) -> str:
    seen = []
    for line in process.stderr:
        seen.append(line)
        if match := re.search(pattern, line):
            return match[1]
    raise RuntimeError("a daemon of Spark ended: " + "".join(seen[-20:]))
