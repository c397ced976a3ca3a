"""What ``durability="replay"`` costs, and how long a recovery takes.

Two sessions, with and without it, do the same in turns, each on servers of its own: small programs,
copies of values to the servers, and iterations of L-BFGS, all awaited. Then a server of the one
with replay is killed, and the next statement is timed; beside it the time in which a session
without replay has an empty server again, which is the least that any recovery takes. Both with and
without a process that waits to replace it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import numpy as np

import distvec as dv
from benchmarks.harness import Case, Ratio, Report, Table, Timing, interleaved, main
from optim import LBFGS
from ps_backend.errors import ServerLost

ITERATIONS = 30
STARTING_SECONDS = 3.0
"""So long a process has that starts to wait."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Where, and how much."""
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="the store")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)


def measure(options: argparse.Namespace) -> Report:
    """Both sessions by length, then recoveries."""
    most = 100_000 if options.quick else 10_000_000
    lengths = [10**power for power in range(3, 8) if 10**power <= most]
    place = Path(tempfile.mkdtemp(prefix="distvec-bench-", dir=options.directory))
    names = ("iteration", "dot", "array")  # what fills the journal comes last
    rows: dict[str, list[float | None]] = {f"{name}, {kind}": [] for name in names
                                           for kind in ("none", "replay")}  # fmt: skip
    timings: list[Timing] = []
    try:
        with (
            dv.local(options.servers) as plain,
            dv.local(options.servers, durability="replay", checkpoint=place / "run") as kept,
        ):
            sessions = {"none": plain, "replay": kept}
            for n in lengths:
                for name in names:
                    cases = [_case(name, kind, ps, n) for kind, ps in sessions.items()]
                    found = interleaved(cases, options.repeat)
                    timings += found.values()
                    for kind, timing in zip(sessions, found.values(), strict=True):
                        rows[f"{name}, {kind}"].append(1e3 * timing.median / _count(name, n))
        recovered = {
            spares: [
                _recovery(options.servers, place / f"n{n}-{spares}", n, spares) for n in lengths
            ]
            for spares in (0, 1)
        }
    finally:
        shutil.rmtree(place)
    added = 1e3 * (rows["dot, replay"][0] - rows["dot, none"][0])
    ratio = rows["iteration, replay"][-1] / rows["iteration, none"][-1]
    heads = [f"{n:.0e}" for n in lengths]
    columns: dict[str, list[float | None]] = {}
    for spares, found in recovered.items():
        columns[f"statement after a loss, spares={spares}"] = [one for one, _ in found]
        columns[f"an empty server is there, spares={spares}"] = [least for _, least in found]
    return Report(
        f"replay, {options.servers} servers",
        [],
        [
            Ratio("us that a small program takes longer", added, "<= 20"),
            Ratio(f"iteration of L-BFGS at {lengths[-1]:.0e}, with over without", ratio, "<= 1.05"),
        ],
        {},
        [Table("ms", heads, rows), Table("seconds, by length", heads, columns)],
    )


def _count(name: str, n: int) -> int:
    """How often a case does what it is named for."""
    if name == "iteration":
        return ITERATIONS
    return max(1, min(200, 10_000_000 // n // 5))


def _case(name: str, kind: str, ps: dv.Session, n: int) -> Case:
    values, count = np.linspace(0.0, 1.0, n), _count(name, n)
    x, curvatures = ps.array(values), ps.logspace(0, 4, n).persist()

    def dots() -> None:
        for k in range(count):
            float(x @ (x + k))

    def arrays() -> None:
        for _ in range(count):
            ps.array(values)

    def iterations() -> None:
        solver = LBFGS(max_iterations=ITERATIONS, gradient_tolerance=0.0)
        solver.minimize(lambda w: 0.5 * (w @ (curvatures * w)), ps.ones(n), checkpoint=False)

    run = {"dot": dots, "array": arrays, "iteration": iterations}[name]
    return Case(f"{name}, {n:.0e}, {kind}", run)


def _recovery(servers: int, place: Path, n: int, spares: int) -> tuple[float, float]:
    """Seconds of a statement after a kill: with 20 vectors in a checkpoint and 20 in the journal;
    and until an empty server is there."""
    with dv.local(servers, spares=spares, durability="replay", checkpoint=place) as ps:
        vectors = [(ps.arange(float(n)) * k).persist() for k in range(20)]
        ps.checkpoint()
        vectors += [(one + 1.0).persist() for one in vectors]
        time.sleep(STARTING_SECONDS)
        _kill(ps)
        began = time.perf_counter()
        if float(vectors[-1][:2].sum()) != 21.0:
            raise RuntimeError("the recovery gave other values")
        seconds = time.perf_counter() - began
    with dv.local(servers, spares=spares) as ps:
        time.sleep(STARTING_SECONDS)
        _kill(ps)
        began = time.perf_counter()
        while True:
            try:
                float(ps.ones(n).sum())
                break
            except ServerLost:
                continue
        return seconds, time.perf_counter() - began


def _kill(ps: dv.Session) -> None:
    os.kill(ps.client.status()[-1].pid, signal.SIGKILL)


if __name__ == "__main__":
    main(__doc__, measure, configure)
