"""Cores and memory that this process may use, as containers and services limit them.

Linux counts a group's limit for all processes in it and in the groups below, so the least limit on
the way from this process's group to the root holds. Version 1 has a tree for each resource.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


@cache
def usable_cores() -> int:
    """The cores that this process may use, 1 or more: by its affinity and its groups' quotas."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    quota = min(_quotas(), default=math.inf)
    return max(1, min(cores, math.ceil(quota))) if math.isfinite(quota) else cores


@cache
def usable_memory() -> int:
    """Bytes of memory that this process may use: those of the machine, or of its groups if less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([total, *_memory_limits()])


def _quotas() -> Iterator[float]:
    """The processor time a second of each group that has a limit."""
    for folder in _folders("cpu"):
        words = _read(folder / "cpu.max").split()
        if not words:
            words = [_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        if len(words) == 2 and all(map(str.isdigit, words)) and int(words[1]):  # not max, not -1
            yield int(words[0]) / int(words[1])


def _memory_limits() -> Iterator[int]:
    for folder in _folders("memory"):
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            text = _read(folder / name)
            if text.isdigit() and int(text):
                yield int(text)


def _folders(resource: str) -> Iterator[Path]:
    """The folder of this process's group, and of each above it, in each tree for the resource.

    Within a container the path may be one of the host, and the mount is the group itself.
    """
    for line in _read(_GROUPS).splitlines():
        _, resources, path = line.split(":", 2)
        if resources and resource not in resources.split(","):
            continue
        for mount in (_MOUNT / resource, _MOUNT / resources) if resources else (
            _MOUNT, _MOUNT / "unified",
        ):  # fmt: skip
            own = mount / path.lstrip("/")
            for folder in (own, *own.parents):
                if folder.is_relative_to(mount):
                    yield folder


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
