"""``ps.resize``: a session of two servers goes to three, and back, beside the same by hand.

By hand is: save, open a session on other servers, load. Below that are the two parts which neither
can do without: to open a session on as many new servers, and to write, sync and read as many bytes
by one process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from itertools import cycle
from pathlib import Path

import numpy as np

import distvec as dv
from benchmarks.harness import Case, Ratio, Report, Table, Timing, interleaved, main

CHUNK = 4 << 20
BY_HAND, OPENING, BYTES = "save, open, load", "open three servers", "write and read the bytes"


def configure(parser: argparse.ArgumentParser) -> None:
    """Where, and how much."""
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="of the files")
    parser.add_argument("--repeat", type=int, default=5)


def measure(options: argparse.Namespace) -> Report:
    """By bytes of a vector that is half of what there is; ratios at the most."""
    sizes = (10**6, 10**7) if options.quick else (10**6, 10**7, 10**8, 10**9)
    place = Path(tempfile.mkdtemp(prefix="distvec-bench-", dir=options.directory))
    rows: dict[str, list[float | None]] = {}
    try:
        for size in sizes:
            found = _measured(place, size, options.repeat)
            for name, timing in found.items():
                rows.setdefault(name, []).append(timing.median)
    finally:
        shutil.rmtree(place)
    least = found[OPENING].median + found[BYTES].median
    ratios = [
        Ratio("time over that of opening, and of the bytes", found["resize"].median / least),
        Ratio("speed over save, open, load", found[BY_HAND].median / found["resize"].median),
    ]
    table = Table("seconds, by bytes", [f"{size:.0e}" for size in sizes], rows)
    title = f"resize with {sizes[-1]:,} bytes, 2 servers and 3 in turns, {options.directory}"
    return Report(title, list(found.values()), ratios, {}, [table])


def _measured(place: Path, size: int, repeat: int) -> dict[str, Timing]:
    values = np.random.default_rng(0).normal(size=size // 16)
    numbers = cycle((3, 2))
    with dv.local(2) as ps:
        x, table = ps.array(values), ps.array(values.reshape(-1, 25))
        expected = x.numpy().tobytes(), table.numpy().tobytes()

        def by_hand() -> None:
            ps.save(place / "saved", x=x, table=table)
            with dv.local(3) as other:
                other.load(place / "saved")

        cases = [
            Case("resize", lambda: ps.resize(next(numbers), checkpoint=place / "between")),
            Case(BY_HAND, by_hand),
            Case(OPENING, lambda: dv.local(3).close()),
            Case(BYTES, lambda: _write_and_read(place / "raw", values)),
        ]
        found = interleaved(cases, repeat)
        assert (x.numpy().tobytes(), table.numpy().tobytes()) == expected
    return found


def _write_and_read(path: Path, values: np.ndarray) -> None:
    """Twice the values, and durable, into memory that is fresh."""
    data = memoryview(values.view(np.uint8))
    with open(path, "wb", buffering=0) as file:
        for _ in range(2):
            for start in range(0, len(data), CHUNK):
                file.write(data[start : start + CHUNK])
        os.fsync(file.fileno())
    into = memoryview(np.empty(2 * values.nbytes, np.uint8))
    with open(path, "rb", buffering=0) as file:
        at = 0
        while at < len(into):
            at += file.readinto(into[at:])  # type: ignore[operator]


if __name__ == "__main__":
    main(__doc__, measure, configure)
