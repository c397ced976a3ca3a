"""FTRL on a stream of hashed rows, beside the same in one process, and scikit-learn's SGD.

Rows with a dozen keys each come in minibatches. "keyed": a client pulls the weights of a batch's
keys from server processes and steps, two messages to each a batch; the vocabulary grows as it goes.
"numba": per-coordinate FTRL, row by row, in arrays of 2^22 hashed slots, as Vowpal Wabbit has them.
"SGDClassifier": ``partial_fit`` on CSR rows of as many slots. Rows become keys before the clock
starts, for all of them. ``loss``: the mean over the rows, each before it was learned from.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

import distvec as dv
from benchmarks.harness import Report, Table, installed, main, not_measured

NONZEROS = 12
BITS = 22
STEP_SIZE, BETA = 0.1, 1.0

Floats = npt.NDArray[np.float64]


class Rows(NamedTuple):
    """Keys of shape ``(n, NONZEROS)`` and labels 0 and 1."""

    keys: npt.NDArray[np.int64]
    labels: Floats


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the stream")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--batch", type=int, nargs="*", default=[256, 1024, 8192])


def measure(options: argparse.Namespace) -> Report:
    """Each way once over the stream."""
    rows = made_up(20_000 if options.quick else options.rows)
    found: dict[str, list[float | None]] = {}
    with threadpool_limits(1), dv.local(servers=options.servers) as ps:
        keyed(ps, Rows(rows.keys[:5000], rows.labels[:5000]), 1024)  # what is compiled
        for size in options.batch:
            found[f"keyed, batches of {size}"] = timed(lambda: keyed(ps, rows, size), rows)  # noqa: B023
    in_one_process(Rows(rows.keys[:10], rows.labels[:10]))
    found["numba, row by row"] = timed(lambda: in_one_process(rows), rows)
    for size in options.batch if installed("sklearn") else ():
        found[f"SGDClassifier, batches of {size}"] = timed(lambda: scikit(rows, size), rows)  # noqa: B023
    title = f"{len(rows.labels):,} rows of {NONZEROS} keys, {options.servers} servers"
    tables = [Table("FTRL", ["rows/s", "loss"], found)]
    return Report(title, [], [], not_measured("sklearn"), tables=tables)


def timed(run: Callable[[], float], rows: Rows) -> list[float | None]:
    """Rows a second, and the loss that ``run`` returns."""
    began = time.perf_counter()
    loss = run()
    return [len(rows.labels) / (time.perf_counter() - began), loss]


def made_up(count: int) -> Rows:
    """Keys of which some come often and most rarely, and labels by planted weights."""
    rng = np.random.default_rng(0)
    numbers = (rng.pareto(0.8, (count, NONZEROS)) * 20).clip(max=2**40).astype(np.int64)
    ranks = numbers * NONZEROS + np.arange(NONZEROS)
    planted = rng.normal(size=1 << 16)
    margins = 0.5 * planted[ranks % len(planted)].sum(axis=1) - 1
    labels = (rng.random(count) < 1 / (1 + np.exp(-margins))).astype(np.float64)
    return Rows(ranks * 0x9E3779B1, labels)


def keyed(ps: dv.Session, rows: Rows, size: int) -> float:
    """A keyed vector on the servers, with the row optimizer."""
    w = ps.keys().zeros()
    w.optimizer(dv.rows.ftrl(STEP_SIZE, beta=BETA))
    total = 0.0
    for low in range(0, len(rows.labels), size):
        keys, labels = rows.keys[low : low + size], rows.labels[low : low + size]
        view = w.at(keys.ravel())
        margins = view.pull().reshape(keys.shape).sum(axis=1)
        total += losses(margins, labels)
        view.step(np.repeat(1 / (1 + np.exp(-margins)) - labels, NONZEROS))
    return total / len(rows.labels)


def losses(margins: Floats, labels: Floats) -> float:
    """Their sum."""
    return float(np.logaddexp(0, np.where(labels > 0, -margins, margins)).sum())


def in_one_process(rows: Rows) -> float:
    """The same formula in arrays of hashed slots."""
    return float(_online(rows.keys, rows.labels, STEP_SIZE, BETA, BITS)) / len(rows.labels)


@numba.njit(fastmath=False)
def _online(keys, labels, step_size, beta, bits):  # type: ignore[no-untyped-def]
    z, n = np.zeros(1 << bits), np.zeros(1 << bits)
    slots, weights = np.empty(keys.shape[1], np.int64), np.empty(keys.shape[1])
    total = 0.0
    for row in range(len(labels)):
        margin = 0.0
        for k in range(keys.shape[1]):
            slot = (keys[row, k] * -7046029254386353131 >> (64 - bits)) & ((1 << bits) - 1)
            slots[k] = slot
            weights[k] = -z[slot] * step_size / (beta + np.sqrt(n[slot]))
            margin += weights[k]
        sign = 1.0 if labels[row] > 0 else -1.0
        total += np.log1p(np.exp(-abs(margin))) + max(0.0, -sign * margin)
        g = 1 / (1 + np.exp(-margin)) - labels[row]
        for k in range(keys.shape[1]):
            slot = slots[k]
            more = n[slot] + g * g
            z[slot] += g - (np.sqrt(more) - np.sqrt(n[slot])) / step_size * weights[k]
            n[slot] = more
    return total


def scikit(rows: Rows, size: int) -> float:
    """``partial_fit`` on CSR rows of hashed slots."""
    from sklearn.linear_model import SGDClassifier

    rate = {"learning_rate": "constant", "eta0": 0.02}
    model = SGDClassifier(loss="log_loss", alpha=1e-9, fit_intercept=False, **rate)
    total = 0.0
    for low in range(0, len(rows.labels), size):
        keys, labels = rows.keys[low : low + size], rows.labels[low : low + size]
        slots = (keys * -7046029254386353131 >> (64 - BITS)) & ((1 << BITS) - 1)
        ends = np.arange(len(keys) + 1, dtype=np.int32) * NONZEROS
        slots = slots.astype(np.int32)
        batch = csr_array((np.ones(slots.size), slots.ravel(), ends), (len(keys), 1 << BITS))
        if low:
            total += losses(model.decision_function(batch), labels)
        model.partial_fit(batch, labels, classes=[0.0, 1.0])
    return total / len(rows.labels)


if __name__ == "__main__":
    main(__doc__, measure, configure)
