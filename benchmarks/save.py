"""Saving and loading a vector, beside the disk's own speed and NumPy's files, in turns.

The disk's own speed is that of one process that writes as many bytes to a new file, syncs it and
gives it its name, and of one that reads them into fresh memory. Checksums are ours alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import distvec as dv
from benchmarks.harness import Case, Ratio, Report, Table, Timing, interleaved, main

CHUNK = 4 << 20
KINDS = {"file": "w.safetensors", "folder": "w"}
PEERS = ("the disk itself", "NumPy's .npy")


def configure(parser: argparse.ArgumentParser) -> None:
    """Where, and how much."""
    parser.add_argument(
        "--directory", type=Path, action="append", help="/dev/shm and that of temporary files"
    )
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument(
        "--most", type=int, default=100_000_000, help="elements, at the end of the sweep"
    )


def measure(options: argparse.Namespace) -> Report:
    """Each length in each directory; ratios at 10^7."""
    given = options.directory or [Path("/dev/shm"), Path(tempfile.gettempdir())]
    directories = [one for one in given if one.is_dir()]
    judged = 100_000 if options.quick else 10_000_000
    most = judged if options.quick else options.most
    lengths = [10**power for power in range(3, 9) if 10**power <= most]
    timings: list[Timing] = []
    ratios: list[Ratio] = []
    tables = []
    with dv.local(servers=options.servers) as ps:
        for directory in directories:
            rows: dict[str, list[float | None]] = {}
            for length in lengths:
                repeat = 3 if length > judged else 7
                found = _measured(ps, directory, length, repeat)
                for name, timing in found.items():
                    rows.setdefault(name, []).append(timing.median * 1e3)
                if length == judged:
                    timings += found.values()
                    ratios += list(_ratios(directory, found))
            columns = [f"{length:.0e}" for length in lengths]
            tables.append(Table(f"ms, {directory}, by length", columns, rows))
    title = f"save and load of {judged:,} float64, {options.servers} servers"
    return Report(title, timings, ratios, {}, tables)


def _measured(ps: dv.Session, directory: Path, length: int, repeat: int) -> dict[str, Timing]:
    """By name: ours and the peers', in turns."""
    w = ps.random.normal(length).persist()
    values = w.numpy()
    with _folder(directory) as place:
        paths = {kind: place / name for kind, name in KINDS.items()}
        raw, npy = place / "raw", place / "w.npy"
        saves: dict[str, Callable[[], object]] = {
            **{kind: lambda path=path: ps.save(path, w=w) for kind, path in paths.items()},
            PEERS[0]: lambda: _write(raw, values),
            PEERS[1]: lambda: _save(npy, values),
        }
        loads: dict[str, Callable[[], object]] = {
            **{kind: lambda path=path: ps.load(path)["w"] for kind, path in paths.items()},
            PEERS[0]: lambda: _read(raw),
            PEERS[1]: lambda: np.load(npy),
        }
        found: dict[str, Timing] = {}
        for what, runs in (("save", saves), ("load", loads)):
            cases = [
                Case(f"{what}, {name}, {directory}", run, bytes=values.nbytes)
                for name, run in runs.items()
            ]
            found |= interleaved(cases, repeat)
        for kind, path in paths.items():
            np.testing.assert_array_equal(ps.load(path)["w"].numpy(), values, kind)
    return found


def _ratios(directory: Path, found: dict[str, Timing]) -> Iterator[Ratio]:
    for what in ("save", "load"):
        disk = found[f"{what}, {PEERS[0]}, {directory}"].median
        for kind in KINDS:
            name = f"{what}, {kind}, {directory}"
            yield Ratio(f"{name}: time over the disk's own", found[name].median / disk, "<= 1.3")


@contextmanager
def _folder(directory: Path) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="distvec-bench-", dir=directory))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def _write(path: Path, values: np.ndarray) -> None:
    """To the disk, durable, instead of what is there."""
    fresh = path.with_suffix(".part")
    data = memoryview(values.view(np.uint8))
    with open(fresh, "wb", buffering=0) as file:
        for start in range(0, len(data), CHUNK):
            file.write(data[start : start + CHUNK])
        os.fsync(file.fileno())
    fresh.rename(path)


def _read(path: Path) -> np.ndarray:
    target = np.empty(path.stat().st_size, np.uint8)
    data = memoryview(target)
    with open(path, "rb", buffering=0) as file:
        for start in range(0, len(data), CHUNK):
            file.readinto(data[start : start + CHUNK])
    return target


def _save(path: Path, values: np.ndarray) -> None:
    with open(path, "wb") as file:
        np.save(file, values)
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    main(__doc__, measure, configure)
