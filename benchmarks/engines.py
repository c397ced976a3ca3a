"""The engines beside each other: what a sweep takes that is compiled, or run by shared loops.

The sweeps are those of the other benchmarks (fused, chains, direction, functions, tables), caught
on their way to a server. Each engine runs them on one thread, in turns with the others: on as many
servers as there are processors each has one. Ratios are of the best repetitions.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import numexpr
import numpy as np

import distvec as dv
from benchmarks import chains, direction, functions, fused, tables
from benchmarks.harness import Case, Report, Table, interleaved, main
from ps_backend import kernels
from ps_backend.kernels import Kernel
from ps_backend.kernels.compiled.mixed_engine import MixedKernel
from ps_backend.kernels.compiled.numba_engine import NumbaKernel
from ps_backend.kernels.numexpr_engine import NumexprKernel
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Sweep

ENGINES: dict[str, Callable[[Sweep], Kernel]] = {
    "numpy": NumpyKernel,
    "numexpr": NumexprKernel,
    "tiles": MixedKernel,
    "compiled": NumbaKernel,
}
LENGTHS = (10**3, 10**4, 10**5, 10**6, 10**7, 3 * 10**7)
QUICK_LENGTHS = (10**3, 10**5)
SAMPLE = 1 << 12
"""Elements of the vectors on which sweeps are caught; they are repeated up to each length."""
COLUMNS = 64
MOST_BYTES = 6 << 30
SECONDS = 0.15
"""A sweep is repeated until an engine has run about so long, within the bounds of ``_repeat``."""
LINE = 64


@dataclass(frozen=True)
class Caught:
    """A sweep, and what it was called with."""

    sweep: Sweep
    inputs: Sequence[np.ndarray]
    scalars: Sequence[Any]


def configure(parser: argparse.ArgumentParser) -> None:
    """What to leave out."""
    parser.add_argument("--lengths", nargs="+", type=float, default=None)
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))


def measure(options: argparse.Namespace) -> Report:
    """Microseconds of each engine, and the time of the tiles over that of compiled code."""
    lengths = [int(n) for n in options.lengths or ()]
    lengths = lengths or [*(QUICK_LENGTHS if options.quick else LENGTHS)]
    made = []
    numexpr.set_num_threads(1)
    with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):
        for group in options.only:
            rows: dict[str, list[float | None]] = {}
            times: dict[str, list[float | None]] = {}
            for name, found in GROUPS[group]():
                timed = [timings_of(found, n, options.quick) for n in lengths]
                for engine in ENGINES:
                    times[f"{name}, {engine}"] = [one and one[engine] * 1e6 for one in timed]
                rows[name] = [one and one["tiles"] / one["compiled"] for one in timed]
            middle = [
                _geometric_mean([row[k] for row in rows.values()]) for k in range(len(lengths))
            ]
            columns = [f"n = {n:.0e}" for n in lengths]
            made.append(
                Table(
                    f"time of tiles over compiled, {group}",
                    columns,
                    {**rows, "geometric mean": middle},
                )
            )
            made.append(Table(f"microseconds, {group}", columns, times))
    return Report("engines, one thread", [], [], {}, made)


def timings_of(found: Caught, n: int, quick: bool) -> dict[str, float] | None:
    """Seconds by engine; None if it needs too much memory."""
    sweep = found.sweep
    size = sum(np.dtype(t.dtype).itemsize for t in sweep.inputs)
    size += sum(np.dtype(sweep.types[value].dtype).itemsize for value in sweep.outputs)
    if size * n > MOST_BYTES:
        return None
    inputs = [_aligned(np.resize(array, n)) for array in found.inputs]
    outputs = [_aligned(np.empty(n, sweep.types[value].dtype)) for value in sweep.outputs]
    block = DenseSpace(n).block_size
    cases = [
        Case(name, partial(engine(sweep), inputs, found.scalars, outputs, 0, n, block))
        for name, engine in ENGINES.items()
    ]
    repeat = 3 if quick else min(max(5, int(SECONDS / (4e-9 * n))), 200)
    return {name: one.best for name, one in interleaved(cases, repeat).items()}


def _aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins with a cache line, as buffers of servers do."""
    memory = np.empty(array.nbytes + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    copy = memory[start : start + array.nbytes].view(array.dtype)
    copy[:] = array
    return copy


def _geometric_mean(values: Sequence[float | None]) -> float | None:
    logs = [math.log(one) for one in values if one]
    return math.exp(sum(logs) / len(logs)) if logs else None


@contextmanager
def catching() -> Iterator[list[Caught]]:
    """What servers of this process run in the block, of elements alone."""
    caught: list[Caught] = []

    def compile_sweep(sweep: Sweep, length: int, choice: str) -> Kernel:
        kernel = kernels.compile_sweep(sweep, length, choice)

        def run(inputs: Any, scalars: Any, *rest: Any) -> Any:
            if sweep.is_flat and kernels.engine_for(sweep, 1 << 30) == "numba":
                flat = [np.array(one).reshape(-1) for one in inputs]
                caught.append(Caught(sweep.flat if sweep.row else sweep, flat, list(scalars)))
            return kernel(inputs, scalars, *rest)

        made: Any = mock.Mock(side_effect=run, working_bytes=kernel.working_bytes)
        return made

    with mock.patch("ps_backend.server.sessions.compile_sweep", compile_sweep):
        yield caught


def catch(
    lines: Sequence[tuple[str, Callable[[dv.Session], Callable[[], object]]]],
) -> Iterator[tuple[str, Caught]]:
    """The sweeps of each line: a function that makes what is run of a session."""
    for name, prepare in lines:
        with catching() as caught, dv.local(servers=1, in_process=True) as ps:
            run = prepare(ps)
            caught.clear()
            run()
        for k, one in enumerate(caught):
            yield (name if len(caught) == 1 else f"{name}, pass {k + 1}"), one


def _vectors(ps: dv.Session, count: int) -> list[dv.DistArray]:
    rng = np.random.default_rng(1)
    return [ps.array(rng.random(SAMPLE)) for _ in range(count)]


def of_fused() -> Iterator[tuple[str, Caught]]:
    """2*a + b*c - 0.5, with two dots and without."""

    def expression(ps: dv.Session) -> Callable[[], object]:
        x, y, z = _vectors(ps, 3)
        return lambda: (2 * x + y * z - 0.5).persist()

    with_dots = ("with two dots", lambda ps: fused.by_distvec(*_vectors(ps, 3)))
    return catch([with_dots, ("expression", expression)])


def of_chains() -> Iterator[tuple[str, Caught]]:
    """Horner's rule."""

    def lines(count: int) -> Callable[[dv.Session], Callable[[], object]]:
        return lambda ps: partial(chains.evaluated, *_vectors(ps, 2), count)

    return catch([(f"{count} operators", lines(count)) for count in chains.OPERATORS])


def of_direction() -> Iterator[tuple[str, Caught]]:
    """L-BFGS."""

    def prepare(ps: dv.Session) -> Callable[[], object]:
        rng = np.random.default_rng(1)
        host = [(s := rng.standard_normal(SAMPLE), 2 * s) for _ in range(direction.HISTORY + 2)]
        g, pairs = direction.Run(host, ps.array).next(lambda x: (x * 1.0).persist())
        return lambda: direction.two_loop(g, pairs, direction.GAMMA).persist()

    return catch([("two loops", prepare)])


def of_functions() -> Iterator[tuple[str, Caught]]:
    """Functions, integers and masks."""

    def prepare(line: functions.Line, group: str, ps: dv.Session) -> Callable[[], object]:
        given = functions.vectors(SAMPLE, "float32" if group == "float32" else "float64")
        placed = {name: ps.array(values) for name, values in given.items()}
        return lambda: functions.evaluated(line, placed)

    return catch(
        [
            (f"{group}: {line.text}", partial(prepare, line, group))
            for group, lines in functions.GROUPS.items()
            for line in lines
        ]
    )


def of_tables() -> Iterator[tuple[str, Caught]]:
    """What of operations on tables is element by element."""

    def prepare(name: str, ps: dv.Session) -> Callable[[], object]:
        rng = np.random.default_rng(1)
        table = ps.array(rng.standard_normal((SAMPLE // COLUMNS, COLUMNS)))
        right, small = rng.standard_normal(COLUMNS), rng.standard_normal((COLUMNS, 8))
        return tables.by_distvec(table, right, small)[name]

    names = tables.by_distvec(*[np.zeros((1, 1))] * 3)  # type: ignore[arg-type]
    return catch([(name, partial(prepare, name)) for name in names])


GROUPS = {
    "fused": of_fused,
    "chains": of_chains,
    "direction": of_direction,
    "functions": of_functions,
    "tables": of_tables,
}


if __name__ == "__main__":
    main(__doc__, measure, configure)
