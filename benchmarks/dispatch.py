"""What a loop costs its client: ``x += a*y``, n = 1000, over and over.

Once without ever asking for a value, as the session sends off what is pending by itself; once with
every step evaluated. The time of a line is CPU time of the calling thread, so waiting for servers
does not count; the other threads of the client, which carry the messages, are in that of its
process. Resident memory of client and servers is sampled all along. The peers: the same lines in
NumPy, and for the dispatch a bare gRPC echo to as many servers at once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import distvec as dv
from benchmarks.bare_grpc import bare_server
from benchmarks.harness import Ratio, Report, Table, Timing, main

LENGTH = 1000
SERVERS = 2
REPETITIONS = 100_000
SAMPLES = 50
NODES = 2
"""In one repetition: the product and the sum. Each is new, as ``a`` is another every time."""
MIB = 1 << 20


@dataclass(frozen=True)
class Loop:
    """One run of the loop: seconds of all repetitions together, and memory.

    ``building`` and ``evaluating`` are CPU seconds of the calling thread in the two lines of the
    loop; ``planning`` is the wall time of the second but for the round trips: what is done before
    a message leaves and after its answer has come. ``resident`` has bytes at each sample, of the
    client and then of each server.
    """

    building: float
    evaluating: float
    planning: float
    process: float
    wall: float
    dispatches: int
    resident: Sequence[Sequence[int]]

    @property
    def growth(self) -> list[int]:
        """By process, the most bytes above those after the first tenth, which fills the caches."""
        warm = max(1, len(self.resident) // 10)
        columns = zip(*self.resident[warm:], strict=True)
        return [max(column) - column[0] for column in columns]


def measure(options: argparse.Namespace) -> Report:
    """Pending and evaluated on two server processes; NumPy in this one."""
    count = REPETITIONS // 50 if options.quick else REPETITIONS
    with dv.local(servers=SERVERS) as ps:
        pending = run(ps, count, evaluate=False)
        evaluated = run(ps, count, evaluate=True)
    numpy = by_numpy(count)
    echo = by_grpc(count // 10)
    timings = [
        Timing("NumPy", [numpy], count),
        Timing("bare gRPC echo, calling thread", [echo], count // 10),
    ]
    for name, loop in (("pending", pending), ("evaluated", evaluated)):
        thread = loop.building + loop.evaluating
        timings += [
            Timing(f"{name}, calling thread", [thread], count),
            Timing(f"{name}, client process", [loop.process], count),
            Timing(f"{name}, wall clock", [loop.wall], count),
        ]
    grown = [max(pair) / MIB for pair in zip(pending.growth, evaluated.growth, strict=True)]
    ratios = [
        Ratio("us a node, evaluated", micro(evaluated.building, NODES * count), "under 20"),
        Ratio("us a node, pending, all in all", micro(pending.building, NODES * count)),
        Ratio(
            "us a dispatch, round trip apart",
            micro(evaluated.planning, evaluated.dispatches),
            "under 100",
        ),
        Ratio("us a dispatch, gRPC's part too", micro(evaluated.evaluating, evaluated.dispatches)),
        Ratio("us an echo by bare gRPC", micro(echo, count // 10)),
        Ratio("time over NumPy's, pending", pending.building / numpy),
        Ratio("growth of the client, MiB", grown[0], "flat"),
        Ratio("growth of a server, MiB", max(grown[1:]), "flat"),
    ]
    facts = {
        f"dispatches, {name}": f"{loop.dispatches:,}"
        for name, loop in (("pending", pending), ("evaluated", evaluated))
    }
    title = f"x += a*y, {count:,} times, n = {LENGTH}, {SERVERS} servers; times of one repetition"
    tables = [memory_table("pending", pending), memory_table("evaluated", evaluated)]
    return Report(title, timings, ratios, facts, tables)


def run(ps: dv.Session, count: int, *, evaluate: bool) -> Loop:
    """The loop, after a tenth of it to warm up."""
    x, y = ps.array(np.zeros(LENGTH)), ps.array(np.ones(LENGTH))
    pids = ["self", *(str(server.pid) for server in ps.client.status())]
    resident = []
    building = evaluating = planning = process = wall = 0.0
    for number in range(-count // 10, count):
        if number == 0:
            ps.client.wait()
            building = evaluating = 0.0
            waited, planning = ps.counters.seconds_waited, 0.0
            programs, process, wall = ps.counters.programs, time.process_time(), time.perf_counter()
        a = 1e-6 * number
        began = time.thread_time()
        x += a * y
        built = time.thread_time()
        if evaluate:
            asked = time.perf_counter()
            x.persist()
            planning += time.perf_counter() - asked
            evaluating += time.thread_time() - built
        building += built - began
        if number >= 0 and number % (count // SAMPLES) == 0:
            resident.append([resident_memory(pid) for pid in pids])
    x.persist()
    np.testing.assert_allclose(x.numpy(), sum(1e-6 * k for k in range(-count // 10, count)))
    return Loop(
        building,
        evaluating,
        planning - (ps.counters.seconds_waited - waited if evaluate else 0.0),
        time.process_time() - process,
        time.perf_counter() - wall,
        ps.counters.programs - programs,
        resident,
    )


def by_numpy(count: int) -> float:
    """CPU seconds of the loop in NumPy."""
    x, y = np.zeros(LENGTH), np.ones(LENGTH)
    began = time.thread_time()
    for number in range(count):
        x += 1e-6 * number * y
    return time.thread_time() - began


def by_grpc(count: int) -> float:
    """CPU seconds of the calling thread in ``count`` echoes of small messages to all servers."""
    payload = b"x" * 100
    with ExitStack() as stack:
        servers = [stack.enter_context(bare_server()) for _ in range(SERVERS)]
        for number in range(-count // 10, count):
            if number == 0:
                began = time.thread_time()
            for call in [server.echo.future(payload) for server in servers]:
                call.result()
        return time.thread_time() - began


def resident_memory(pid: str) -> int:
    """Bytes of a process that are in memory (``VmRSS``)."""
    for line in Path("/proc", pid, "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"/proc/{pid}/status has no VmRSS: the process has ended")


def micro(seconds: float, count: int) -> float:
    """Microseconds each."""
    return 1e6 * seconds / count


def memory_table(name: str, loop: Loop) -> Table:
    """Resident memory at ten moments of the run."""
    columns = ["client", *(f"server {k}" for k in range(SERVERS))]
    step = max(1, len(loop.resident) // 10)
    rows = {
        f"{100 * k // len(loop.resident):3} %": [size / MIB for size in loop.resident[k]]
        for k in range(0, len(loop.resident), step)
    }
    return Table(f"resident memory in MiB, {name}", columns, rows)


if __name__ == "__main__":
    main(__doc__, measure)
