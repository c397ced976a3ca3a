"""Rows of keys through a server process: pulled, pushed, stepped by AdaGrad; and FTRL on a stream.

A table of 16 float32 a key, batches of 100,000 keys in random order, one server process beside this
one. Peers, in this process and so without a way to anybody: a Python dict and NumPy rows; pandas'
index and NumPy rows; ``torch.nn.EmbeddingBag`` with sparse gradients, whose keys are 0, 1, 2, ...

Memory: bytes that a server has resident beside those that it counts, both beyond those of a server
that has warmed up, after keys were removed and arrays freed; and the seconds until it stays so.

The stream: rows of 20 hashed features out of millions, one pass; scikit-learn's ``partial_fit`` on
the same batches, over features hashed to 2^22, and FTRL row by row in one process, as Vowpal Wabbit
does it, compiled by numba.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import cycle
from typing import Any

import numpy as np

import distvec as dv
from benchmarks.dispatch import resident_memory
from benchmarks.harness import (
    Case,
    Ratio,
    Report,
    Table,
    Timing,
    installed,
    interleaved,
    main,
    not_measured,
    seconds_of,
)

COLUMNS = 16
BATCH = 100_000
FEATURES = 20
BITS = 22
"""Of what scikit-learn's features are hashed to."""
_HEATING_SECONDS = 5.0
_STILL_SECONDS, _STILL_BYTES = 7.0, 4 << 20
ALPHA, BETA, L1, L2 = 0.1, 1.0, 1.0, 1.0


def measure(options: argparse.Namespace) -> Report:
    """Rows per second; interleaved with the peers'."""
    count = 200_000 if options.quick else options.keys
    rng = np.random.default_rng(0)
    keys = rng.permutation(np.unique(rng.integers(-(2**63), 2**63 - 1, count)))
    batches = [rng.choice(len(keys), BATCH, replace=False) for _ in range(8)]
    rows = np.ones((BATCH, COLUMNS), np.float32)
    with dv.local(servers=1) as ps:
        space = ps.keys()
        table = space.table(COLUMNS)
        inserting = seconds_of(lambda: _fill(table, keys))
        state = space.state()
        operations = _ours(table, space, keys, batches, rows)
        for peer in (_dict, _pandas, _torch):
            operations |= peer(keys, batches, rows)
        _heat(operations["step"])
        cases = [Case(name, run, operations=BATCH) for name, run in operations.items()]
        timings = interleaved(cases, repeat=3 if options.quick else 9)
    memory, resident = _memory(count)
    stream = _stream(options.quick)
    facts: dict[str, Any] = {
        "keys": len(keys),
        "bytes a key, index and rows": state.bytes / len(keys),
        "inserting and pushing, M rows/s": len(keys) / inserting / 1e6,
    }
    facts |= not_measured("pandas", "torch", "sklearn")
    facts |= {f"{name}, M rows/s": BATCH / t.median / 1e6 for name, t in timings.items()}
    ratios = [
        Ratio("M rows pulled per second", BATCH / timings["pull"].median / 1e6, "at least 5"),
        Ratio("M rows pushed per second", BATCH / timings["push"].median / 1e6, "at least 3"),
        Ratio("a step over a push", timings["step"].median / timings["push"].median, "1.5"),
        Ratio(
            "the same, keys known",
            timings["step, keys known"].median / timings["push, keys known"].median,
            "1.5",
        ),
        Ratio("bytes over keys and rows", state.bytes / len(keys) / (8 + 4 * COLUMNS), "1.6"),
        Ratio("resident over counted bytes, after keep", resident, "1.3"),
    ]
    title = f"rows of {COLUMNS} float32, {len(keys):.0e} keys, batches of {BATCH:,}, one server"
    all_ratios = [*ratios, *_stream_ratios(stream)]
    return Report(title, [*timings.values(), *stream], all_ratios, facts, [memory])


def _fill(table: dv.KeyedArray, keys: np.ndarray) -> None:
    for start in range(0, len(keys), BATCH):
        some = keys[start : start + BATCH]
        table.push(some, np.ones((len(some), COLUMNS), np.float32))


def _heat(step: Callable[[], object]) -> None:
    """Until it is compiled, which another process does once it has run for 0.3 s."""
    end = time.perf_counter() + _HEATING_SECONDS
    while time.perf_counter() < end:
        step()


def _ours(
    table: dv.KeyedArray, space: dv.KeyedSpace, keys: np.ndarray, batches: list, rows: np.ndarray
) -> dict[str, Callable[[], object]]:
    table.optimizer(dv.rows.adagrad(0.05))
    turn = cycle(batches)
    view = table.at(keys[batches[0]])
    return {
        "pull": lambda: table.pull(keys[next(turn)]),
        "push": lambda: table.push(keys[next(turn)], rows),
        "step": lambda: table.step(keys[next(turn)], rows),
        "pull, keys known": lambda: view.pull(),
        "push, keys known": lambda: view.push(rows),
        "step, keys known": lambda: view.step(rows),
    }


def _dict(keys: np.ndarray, batches: list, rows: np.ndarray) -> dict[str, Callable[[], object]]:
    places = dict(zip(keys.tolist(), range(len(keys)), strict=True))
    values = np.ones((len(keys), COLUMNS), np.float32)
    turn = cycle(batches)

    def find() -> list[int]:
        return [places[key] for key in keys[next(turn)].tolist()]

    def push() -> None:
        values[find()] += rows

    return {"pull, dict": lambda: values[find()], "push, dict": push}


def _pandas(keys: np.ndarray, batches: list, rows: np.ndarray) -> dict[str, Callable[[], object]]:
    if not installed("pandas"):
        return {}
    import pandas as pd

    index = pd.Index(keys)
    values = np.ones((len(keys), COLUMNS), np.float32)
    turn = cycle(batches)

    def push() -> None:
        values[index.get_indexer(keys[next(turn)])] += rows

    return {
        "pull, pandas": lambda: values[index.get_indexer(keys[next(turn)])],
        "push, pandas": push,
    }


def _torch(keys: np.ndarray, batches: list, rows: np.ndarray) -> dict[str, Callable[[], object]]:
    if not installed("torch"):
        return {}
    import torch

    bag = torch.nn.EmbeddingBag(len(keys), COLUMNS, mode="sum", sparse=True)
    optimizer = torch.optim.Adagrad(bag.parameters(), lr=0.05)
    places = cycle([torch.from_numpy(batch).reshape(-1, 1) for batch in batches])
    gradient = torch.from_numpy(rows)

    def step() -> None:
        optimizer.zero_grad()
        bag(next(places)).backward(gradient)
        optimizer.step()

    return {"pull, torch": lambda: bag(next(places)).detach(), "step, torch": step}


# --- memory ---------------------------------------------------------------------------------------


def _memory(count: int) -> tuple[Table, float]:
    """Resident beside counted, as keys and arrays come and go; and the ratio of both after keep."""
    rng = np.random.default_rng(2)
    rows: dict[str, list[float | None]] = {}
    with dv.local(servers=1) as ps:
        space = ps.keys()
        table, score = space.table(COLUMNS), space.zeros()
        (server,) = ps.client.status()

        def insert(many: int) -> np.ndarray:
            keys = np.unique(rng.integers(-(2**63), 2**63 - 1, many))
            for some in np.array_split(keys, -(-many // BATCH)):
                table.push(some, np.ones((len(some), COLUMNS), np.float32))
                score.push(some, rng.random(len(some)))
            return keys

        def note(name: str, action: Callable[[], object]) -> None:
            seconds = seconds_of(action)
            until, resident, counted = _settled(ps, server.pid)
            rows[name] = [resident / 2**20, counted / 2**20, seconds, until]

        insert(BATCH)
        space.keep(BATCH // 10, by=score)  # kernels are loaded
        space.remove(space.keys())
        _settled(ps, server.pid)
        note("no keys", lambda: None)
        note(f"{count:.0e} keys inserted", lambda: insert(count))
        note("a tenth of them kept", lambda: space.keep(count // 10, by=score))
        note("all removed", lambda: space.evict(score >= 0))
        note(
            "40 times 100,000 inserted and removed",
            lambda: [space.remove(insert(BATCH)) for _ in range(40)],
        )
        note("a vector of 512 MiB made and freed", lambda: float(ps.ones(1 << 26).persist()[0]))
    (base, counted_base, *_), *others = rows.values()
    for row in others:
        row[0], row[1] = row[0] - base, row[1] - counted_base
    kept = rows["a tenth of them kept"]
    columns = ("MiB resident", "MiB counted", "seconds", "seconds until it settles")
    return Table("memory of a server, beyond the first row's", columns, rows), kept[0] / kept[1]


def _settled(ps: dv.Session, pid: int) -> tuple[float, int, int]:
    """Seconds until the resident bytes stay the same for some seconds; these; and those counted."""
    ps.client.status()  # by which the server hears of what was freed
    began = changed = time.perf_counter()
    resident = resident_memory(str(pid))
    while time.perf_counter() - changed < _STILL_SECONDS:
        time.sleep(0.1)
        now = resident_memory(str(pid))
        if abs(now - resident) > _STILL_BYTES:
            resident, changed = now, time.perf_counter()
    return changed - began, resident, ps.client.status()[0].used


# --- a stream of hashed rows ----------------------------------------------------------------------


def _rows(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of ``(keys, labels)``: 20 keys a row, of which a few are frequent, and 0 or 1."""
    rng = np.random.default_rng(1)
    for _ in range(0, count, 10_000):
        keys = np.minimum(rng.zipf(1.2, (10_000, FEATURES)), 10**7) + np.arange(FEATURES) * 10**8
        score = np.where(keys % 7 == 0, 0.7, -0.2).sum(axis=1)
        yield keys, (rng.random(10_000) < 1 / (1 + np.exp(-score))).astype(float)


def _stream(quick: bool) -> list[Timing]:
    count = 50_000 if quick else 1_000_000
    batches = list(_rows(count))
    _by_numba(batches[:1])  # compiled
    return [Timing(name, [seconds_of(run)], count) for name, run in stream_runs(batches).items()]


def stream_runs(batches: list) -> dict[str, Callable[[], object]]:
    """One pass over the stream, by all that are installed."""
    runs: dict[str, Callable[[], object]] = {
        "stream, FTRL on a server": partial(_by_servers, batches),
    }
    if installed("sklearn"):
        runs["stream, SGDClassifier.partial_fit"] = partial(_by_scikit_learn, batches)
    runs["stream, FTRL in one process, numba"] = partial(_by_numba, batches)
    return runs


def _stream_ratios(timings: list[Timing]) -> list[Ratio]:
    ours, *peers = timings
    return [
        Ratio(f"rows per second over {one.name.partition(', ')[2]}", one.best / ours.best)
        for one in peers
    ]


def _by_servers(batches: list) -> None:
    with dv.local(servers=1) as ps:
        weights = ps.keys().zeros("float32")
        weights.optimizer(dv.rows.ftrl(ALPHA, beta=BETA, l1=L1, l2=L2))
        for keys, labels in batches:
            view = weights.at(keys.ravel())
            score = view.pull().reshape(keys.shape).sum(axis=1)
            error = 1 / (1 + np.exp(-score)) - labels
            view.step(np.repeat(error, FEATURES))


def _by_scikit_learn(batches: list) -> None:
    from scipy.sparse import csr_array
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(loss="log_loss")
    for keys, labels in batches:
        places = ((keys.ravel() * 0x9E3779B1) % (1 << BITS)).astype(np.int32)
        bounds = np.arange(0, keys.size + 1, FEATURES, dtype=np.int32)
        rows = csr_array((np.ones(keys.size), places, bounds), (len(keys), 1 << BITS))
        model.partial_fit(rows, labels, classes=[0.0, 1.0])


def _by_numba(batches: list) -> None:
    leader, squares = np.zeros(1 << BITS), np.zeros(1 << BITS)
    learn = _compiled()
    for keys, labels in batches:
        learn((keys * 0x9E3779B1) % (1 << BITS), labels, leader, squares)


@cache
def _compiled() -> Callable[..., None]:
    """FTRL-Proximal row by row: McMahan et al., KDD 2013, algorithm 1."""
    from numba import njit

    @njit
    def learn(keys, labels, leader, squares):  # type: ignore[no-untyped-def]
        for row in range(len(keys)):
            score = 0.0
            for key in keys[row]:
                z, n = leader[key], squares[key]
                if abs(z) > L1:
                    score -= (z - np.sign(z) * L1) / ((BETA + np.sqrt(n)) / ALPHA + L2)
            error = 1 / (1 + np.exp(-score)) - labels[row]
            for key in keys[row]:
                z, n = leader[key], squares[key]
                w = 0.0
                if abs(z) > L1:
                    w = -(z - np.sign(z) * L1) / ((BETA + np.sqrt(n)) / ALPHA + L2)
                sigma = (np.sqrt(n + error * error) - np.sqrt(n)) / ALPHA
                leader[key] = z + error - sigma * w
                squares[key] = n + error * error

    return learn  # type: ignore[no-any-return]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=10_000_000, help="in the table")


if __name__ == "__main__":
    main(__doc__, measure, _arguments)
