"""Memory and processor time of this process and of all processes that descend from it.

Times of a machine that others use, too, vary; processor time varies less.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_SAMPLE_SECONDS = 0.5
_STAT_TIMES = slice(11, 15)
"""User and system time, of the process and of children that have ended."""


class Peak(NamedTuple):
    """Bytes: of all processes together, of this one, and of the largest one of each other kind."""

    total: int = 0
    own: int = 0
    java: int = 0
    server: int = 0
    worker: int = 0


_KINDS = {"java": "bin/java", "server": "ps_backend serve", "worker": "pyspark."}
"""By field of ``Peak``, a part of the command of such processes."""


@contextmanager
def peak_memory() -> Iterator[list[Peak]]:
    """Samples this process and all under it; the last of the list is the peak so far."""
    peaks, stop = [Peak()], threading.Event()

    def sample() -> None:
        while not stop.wait(_SAMPLE_SECONDS):
            peaks.append(Peak(*map(max, peaks[-1], _memory_now())))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        stop.set()
        thread.join()


def _memory_now() -> Peak:
    sizes = {process: _bytes_of(process) for process in family(os.getpid())}
    largest = dict.fromkeys(_KINDS, 0)
    for process, size in sizes.items():
        command = _command(process)
        for kind, part in _KINDS.items():
            if part in command:
                largest[kind] = max(largest[kind], size)
    return Peak(sum(sizes.values()), sizes[os.getpid()], **largest)


def processor_seconds() -> float:
    """Processor time that this process and all under it have used so far."""
    fields = (field for process in family(os.getpid()) for field in _stat(process)[_STAT_TIMES])
    return sum(map(int, fields)) / os.sysconf("SC_CLK_TCK")


def processor_seconds_by_kind() -> dict[str, float]:
    """The same by kind: "driver" for this process, "java", "server", "worker", and "other".

    Time of Python workers that have ended goes to the daemon that they came from.
    """
    found = dict.fromkeys(("driver", *_KINDS, "other"), 0.0)
    for process in family(os.getpid()):
        command = _command(process)
        kind = next((kind for kind, part in _KINDS.items() if part in command), "other")
        kind, times = ("driver", slice(11, 13)) if process == os.getpid() else (kind, _STAT_TIMES)
        found[kind] += sum(map(int, _stat(process)[times])) / os.sysconf("SC_CLK_TCK")
    return found


def family(root: int) -> list[int]:
    """The process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def _stat(process: int) -> list[str]:
    """What the system says of a process from its state on; empty once it has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []


def _command(process: int) -> str:
    """The start of its command line; empty once it has ended."""
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return b" ".join(words).decode(errors="replace")


def _bytes_of(process: int) -> int:
    """The process's memory, with its share of what it shares; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
