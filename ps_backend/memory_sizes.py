"""Amounts of memory: how users write them, and what the machine has."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def physical_memory() -> int:
    """Bytes of memory that this process may use: of the machine, or of its container if less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limit = Path("/sys/fs/cgroup", name).read_text().strip()
        except OSError:
            continue
        if limit.isdigit():
            total = min(total, int(limit))
    return total


def parse_size(size: int | str) -> int:
    """Bytes in ``"512m"``, ``"2g"``, ``"1.5GiB"`` or ``4096``; units are powers of 1024."""
    how = "write it in bytes, or like '512m' or '2g'"
    if isinstance(size, bool) or not isinstance(size, int | np.integer | str):
        raise TypeError(f"{size!r} is not a size; {how}")
    if not isinstance(size, str):
        if size < 1:
            raise ValueError(f"a size must be positive, got {size}; {how}")
        return int(size)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", size, re.IGNORECASE)
    if match is None:
        raise ValueError(f"{size!r} is not a size; write it like 512m or 2g")
    found = int(float(match[1]) * _UNITS[match[2].lower()])
    if found < 1:
        raise ValueError(f"a size must be positive, got {size!r}; {how}")
    return found


def default_budget(servers: int) -> int:
    """Bytes for one of ``servers`` servers on this machine: 80 % of the memory in equal shares."""
    return physical_memory() * 4 // 5 // servers
