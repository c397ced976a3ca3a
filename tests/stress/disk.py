"""Checkpoints, runs and saves on a disk that is full, slow, read-only, or removed under them.

The disk is a small file system in memory, which only root can mount; otherwise a row says that it
was skipped. The slow one is a file system of fsspec's. A failure: other values than those that were
acknowledged, an error of another kind, files that no checkpoint needs, or a checkpoint that fails
though there is room for it.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
from fsspec.implementations.memory import MemoryFileSystem

import distvec as dv
import optim
from optim import LBFGS
from ps_backend.durability.checkpoint_directory import KEPT, CheckpointDirectory, Found
from ps_backend.durability.manifest import NAME
from ps_backend.durability.stores import open_store
from ps_backend.errors import CheckpointIncomplete, Corrupted, NotDurable, StoreFailed
from tests.stress.row import Row

_DISK = 32 << 20
_SLACK = 1 << 20
"""Bytes beyond the values: manifests, and pages that are not full."""
_N = 4000


def run(scale: float) -> Iterator[Row]:
    """A row for each kind of trouble; at scale 1 some 700 trials."""
    with dv.local(2) as ps:
        yield from _rows(ps, scale)
    wanted = max(1, round(20 * scale))
    wrong = list(_slow(wanted))
    yield Row("runs on a slow disk", wanted, len(wrong), "; ".join(wrong[:3]))


def _rows(ps: dv.Session, scale: float) -> Iterator[Row]:
    for name, count, trials in (
        ("checkpoints on a disk that fills up", 200, _full),
        ("saves on a disk that fills up", 200, _full_saves),
        ("runs on a disk that fills up", 40, _full_runs),
        ("checkpoints on a disk that becomes read-only", 100, _read_only),
        ("checkpoints whose directory is removed", 100, _removed),
        ("drivers killed while they fill the disk", 20, _killed),
    ):
        wanted = max(1, round(count * scale))
        with _disk() as folder:
            if folder is None:
                yield Row(name, 0, 0, "skipped: only root can mount a small file system")
                continue
            wrong = list(trials(ps, folder, wanted))
        yield Row(name, wanted, len(wrong), "; ".join(wrong[:3]))


# --- full ---------------------------------------------------------------------------------------


def _full(ps: dv.Session, folder: Path, trials: int) -> Iterator[str]:
    dice, run, acknowledged = random.Random(0), folder / "run", None
    for trial in range(trials):
        values = np.full(dice.randrange(1, 1_000_000), float(trial))
        x = ps.array(values)
        with _filled(folder, dice) as room:
            try:
                ps.checkpoint(run, x=x)
                acknowledged = values
            except StoreFailed as error:
                if values.nbytes + _SLACK < room:
                    yield f"trial {trial}: {values.nbytes} bytes fit into {room}, but {error}"
        del x
        spares = ps.durability.checkpoints(ps, run).spares
        yield from (f"trial {trial}: {one}" for one in _rubbish(run, spares))
        if acknowledged is not None and trial % 5 == 0:
            yield from _differences(run, acknowledged, f"trial {trial}")


def _full_saves(ps: dv.Session, folder: Path, trials: int) -> Iterator[str]:
    dice = random.Random(1)
    saved = dict.fromkeys(("m.safetensors", "m.npy", "folder"), np.zeros(1))
    for name, values in saved.items():
        ps.save(folder / name, w=values)
    for trial in range(trials):
        name = dice.choice([*saved])
        values = np.full(dice.randrange(1, 1_000_000), float(trial))
        before = sorted(folder.rglob("*"))
        with _filled(folder, dice) as room:
            try:
                ps.save(folder / name, w=ps.array(values))
                saved[name] = values
            except OSError as error:
                if values.nbytes + _SLACK < room:
                    yield f"trial {trial}: {values.nbytes} bytes fit into {room}, but {error}"
                if [one for one in sorted(folder.rglob("*")) if one.name != "filler"] != before:
                    yield f"trial {trial}: {name} left files"
        (found,) = dv.load(folder / name).values()
        if not np.array_equal(found, saved[name]):
            yield f"trial {trial}: {name} has other values"
        if len([*folder.iterdir()]) != len(saved):
            yield f"trial {trial}: {name} left files"


def _full_runs(ps: dv.Session, folder: Path, trials: int) -> Iterator[str]:
    dice = random.Random(2)
    expected = {place: _minimum(ps, place) for place in ("servers", "here")}
    for trial in range(trials):
        place, run = dice.choice([*expected]), folder / f"run{trial}"
        filler = folder / "filler"

        def fill(state: Any, filler: Path = filler, folder: Path = folder) -> None:
            filler.unlink(missing_ok=True)
            if dice.random() < 0.5:
                _fill(filler, _free(folder))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotDurable)
            warnings.simplefilter("ignore", optim.NotDurable)
            if _minimum(ps, place, run, fill) != expected[place]:
                yield f"trial {trial}: other bits of a run {place}"
            filler.unlink(missing_ok=True)
            if _minimum(ps, place, run) != expected[place]:
                yield f"trial {trial}: other bits of a run {place} that was resumed"
        shutil.rmtree(run)


def _minimum(ps: dv.Session, place: str, run: Path | None = None, callback: Any = None) -> bytes:
    solver = LBFGS(max_iterations=30, gradient_tolerance=0.0)
    curvatures: Any = np.linspace(1.0, 1000.0, _N)
    start: Any = np.ones(_N)
    if place == "servers":
        curvatures, start = ps.array(curvatures), ps.array(start)

    def fun(x: Any) -> Any:
        return (x @ (curvatures * x)) / 2, curvatures * x

    kept: dict[str, Any] = {} if run is None else {"checkpoint": run, "every": 2, "resume": True}
    return np.asarray(solver.minimize(fun, start, callback=callback, **kept).x).tobytes()


# --- read-only, removed, killed, slow -----------------------------------------------------------


def _read_only(ps: dv.Session, folder: Path, trials: int) -> Iterator[str]:
    run, model = folder / "run", folder / "m.safetensors"
    for trial in range(trials):
        values = np.arange(float(_N)) + trial
        x = ps.array(values)
        ps.checkpoint(run, x=x)
        ps.save(model, w=x)
        y = (x - 1.0).persist()
        _remount(folder, "ro")
        for what, write in (
            ("checkpoint", lambda y=y: ps.checkpoint(run, y=y)),
            ("save", lambda y=y: ps.save(model, w=y)),
        ):
            try:
                write()
                yield f"trial {trial}: a {what} on a disk that is read-only"
            except OSError as error:
                if "ead-only" not in str(error):
                    yield f"trial {trial}: a {what} says {error}"
        yield from _differences(run, values, f"trial {trial}, read-only")
        if not np.array_equal(dv.load(model)["w"], values):
            yield f"trial {trial}: other values were saved"
        _remount(folder, "rw")
        ps.checkpoint(run, x=y)
        del x, y
        yield from _differences(run, values - 1.0, f"trial {trial}, writable again")
        spares = ps.durability.checkpoints(ps, run).spares
        yield from (f"trial {trial}: {one}" for one in _rubbish(run, spares))


def _removed(ps: dv.Session, folder: Path, trials: int) -> Iterator[str]:
    dice, run = random.Random(3), folder / "run"
    for trial in range(trials):
        values = np.full(dice.randrange(1, 500_000), float(trial))
        x = ps.array(values)
        writing = ps.checkpoint(run, wait=False, x=x)
        time.sleep(dice.random() * 0.03)
        while run.exists():  # while it is removed, files are made there
            with suppress(OSError):
                shutil.rmtree(run)
        with suppress(StoreFailed, CheckpointIncomplete, Corrupted):
            writing.result()
        ps.checkpoint(run, x=x)
        yield from _differences(run, values, f"trial {trial}")
        del x


def _killed(ps: dv.Session, folder: Path, trials: int) -> Iterator[str]:
    dice, run = random.Random(4), folder / "run"
    program = (
        "import sys, numpy as np, distvec as dv\n"
        "with dv.local(2, in_process=True) as ps:\n"
        "    for k in range(1000):\n"
        "        ps.checkpoint(sys.argv[1], x=ps.array(np.full(1_000_000, float(k))))\n"
        "        print(k, flush=True)\n"
    )
    for trial in range(trials):
        command = [sys.executable, "-c", program, str(run)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
            for _ in range(dice.randrange(1, 4)):
                driver.stdout.readline()
            time.sleep(dice.random() * 0.05)
            driver.send_signal(signal.SIGKILL)
            driver.wait()
        with dv.local(3, in_process=True) as ps:
            found = ps.restore(run)["x"].numpy()
            if found.size != 1_000_000 or np.ptp(found):
                yield f"trial {trial}: values of two checkpoints"
            made = ps.checkpoint(run, x=ps.array(found + 0.5))
            spares = ps.durability.checkpoints(ps, run).spares
            yield from (f"trial {trial}: {one}" for one in _rubbish(run, spares))
            if not made.path.startswith(str(run)):
                yield f"trial {trial}: it is in {made.path}"


class _Slow(MemoryFileSystem):
    """Each file takes some time to be opened."""

    protocol = "slow"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        time.sleep(0.02)
        return super().open(path, mode, **options)


def _slow(trials: int) -> Iterator[str]:
    fsspec.register_implementation("slow", _Slow, clobber=True)
    with dv.local(2, in_process=True) as ps:
        expected = _minimum(ps, "servers")
        for trial in range(trials):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                found = _minimum(ps, "servers", f"slow://run{trial}")
            if found != expected:
                yield f"trial {trial}: other bits"
            if not any("it takes longer to write one" in str(one.message) for one in told):
                yield f"trial {trial}: no word that checkpoints are left out"
            with dv.local(3, in_process=True) as other:
                other.restore(f"slow://run{trial}")


# --- the disk -----------------------------------------------------------------------------------


@contextmanager
def _disk() -> Iterator[Path | None]:
    """A small file system; None for those who may not mount one."""
    with tempfile.TemporaryDirectory() as place:
        command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "none", place]
        if os.getuid() or subprocess.run(command, capture_output=True).returncode:
            yield None
            return
        try:
            yield Path(place)
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)


def _remount(folder: Path, how: str) -> None:
    """A server may be about to close a file."""
    until = time.monotonic() + 10.0
    command = ["mount", "-o", f"remount,{how}", str(folder)]
    while subprocess.run(command, capture_output=True).returncode:
        if time.monotonic() > until:
            raise TimeoutError(f"{folder} cannot be mounted {how}")
        time.sleep(0.05)


@contextmanager
def _filled(folder: Path, dice: random.Random) -> Iterator[int]:
    """With a file that takes a part of the room, all of it now and then; what is left."""
    filler = folder / "filler"
    share = dice.choice([0.0, 1.0, dice.random(), dice.random()])
    _fill(filler, round(share * _free(folder)))
    try:
        yield _free(folder)
    finally:
        filler.unlink(missing_ok=True)


def _fill(filler: Path, nbytes: int) -> None:
    with filler.open("wb") as file, suppress(OSError):
        if nbytes:
            os.posix_fallocate(file.fileno(), 0, nbytes)


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _rubbish(run: Path, spares: tuple[str, ...]) -> list[str]:
    """Files that neither the newest two checkpoints need nor the next one takes."""
    whole = [one for one in CheckpointDirectory(open_store(run)).each() if isinstance(one, Found)][
        :KEPT
    ]
    needed = {file for one in whole for file in one.manifest.files} | set(spares)
    needed |= {f"{one.name}/{NAME}" for one in whole}
    files = (str(one.relative_to(run)) for one in run.rglob("*") if one.is_file())
    return [f"{one} is rubbish" for one in files if one not in needed and "begun" not in one]


def _differences(run: Path, values: np.ndarray, when: str) -> Iterator[str]:
    with dv.local(1, in_process=True) as other:
        if not np.array_equal(other.restore(run)["x"].numpy(), values):
            yield f"{when}: a new session finds other values"
