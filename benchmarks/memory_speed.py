"""What rows and vectors take at memory speed, by several processes at once.

No benchmark by itself: others print it beside theirs, as the least that could be.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from distvec.losses import Loss, Rows

READ, PULL, PUSH, SUM = "rows read twice", "vectors pulled", "vectors pushed", "vectors added"
FLOOR = (READ, PULL, PUSH, SUM)
ALONE = "sums of the loss alone"
COPY = "arrays copied"
_MOST_COPIED = 1 << 30

Make = Callable[[int, int, int], tuple[np.ndarray, Any]]
"""Of the number of a batch, a number of rows, and one of features: labels and rows."""

_BATCH = 2500


@dataclass(frozen=True)
class Work:
    """So many rows, shared out evenly among processes; vectors of ``dimension``.

    ``moved``: bytes that all of them together read and write of vectors. Caches may hold some.
    """

    loss: Loss
    make: Make
    rows: int
    features: int
    dimension: int
    moved: float = 0.0

    def copied(self, count: int) -> int:
        """Bytes that each of so many processes reads and writes to copy arrays of that size."""
        return min(_MOST_COPIED, int(self.moved) // count)

    def vectors_seconds(self, times: Mapping[str, float], count: int) -> float:
        """What moving all that takes at the bandwidth of copies, by ``count`` processes."""
        return times[COPY] * self.moved / (count * max(1, self.copied(count)))


@contextmanager
def processes(count: int, work: Work) -> Iterator[Callable[[], dict[str, float]]]:
    """A function that measures once: seconds of the slowest process, by what it did."""
    spawn = multiprocessing.get_context("spawn")
    barrier, pipes, children = spawn.Barrier(count), [], []
    for number in range(count):
        ours, theirs = spawn.Pipe()
        child = spawn.Process(
            target=_serve, args=(theirs, barrier, work, number, count), daemon=True
        )
        child.start()
        theirs.close()
        pipes.append(ours)
        children.append(child)
    for pipe in pipes:
        pipe.recv()  # its rows are made

    def once() -> dict[str, float]:
        for pipe in pipes:
            pipe.send(True)
        found: list[dict[str, float]] = [pipe.recv() for pipe in pipes]
        return {name: max(one[name] for one in found) for name in found[0]}

    try:
        yield once
    finally:
        for pipe in pipes:
            pipe.send(False)
        for child in children:
            child.join()


def _serve(pipe: Connection, barrier: Barrier, work: Work, number: int, count: int) -> None:
    rows = _rows(work, number, count)
    memory = SharedMemory(create=True, size=8 * work.dimension)
    far = np.ones((2, max(1, work.copied(count) // 16)))
    try:
        pipe.send(True)
        with threadpool_limits(1, user_api="blas"):
            while pipe.recv():
                pipe.send(_seconds(barrier, rows, work, memory, count, far))
    finally:
        memory.close()
        memory.unlink()


def _seconds(
    barrier: Barrier,
    rows: Rows,
    work: Work,
    memory: SharedMemory,
    count: int,
    far: np.ndarray,
) -> dict[str, float]:
    matrix, dimension = rows.matrix, work.dimension
    arrays = [matrix] if isinstance(matrix, np.ndarray) else [matrix.data, matrix.indices]
    read = np.ones(sum(array.nbytes for array in arrays) // 8)
    shared = np.ndarray((dimension,), buffer=memory.buf)
    own, weights = np.ones(dimension), np.zeros(rows.columns)
    shared[:] = own
    here, there = far
    share = slice(0, -(-dimension // count))  # as many servers as tasks
    steps: dict[str, Callable[[], object]] = {
        READ: lambda: (read @ read, read @ read),
        PULL: lambda: np.copyto(own, shared),
        PUSH: lambda: np.copyto(shared, own),
        SUM: lambda: [np.add(own[share], shared[share], out=own[share]) for _ in range(count - 1)],
        COPY: lambda: np.copyto(there, here),
        ALONE: lambda: work.loss.sums(rows, (weights,), intercept=False),
    }
    times = {}
    for name, step in steps.items():
        barrier.wait()
        began = time.perf_counter()
        step()
        times[name] = time.perf_counter() - began
    return times


def _rows(work: Work, number: int, count: int) -> Rows:
    """One share of them, over the columns that they touch."""
    low, high = (work.rows * end // count for end in (number, number + 1))
    made = [
        work.make(start // _BATCH, min(_BATCH, high - start), work.features)
        for start in range(low, high, _BATCH)
    ]
    labels = 2.0 * np.concatenate([part[0] for part in made]) - 1.0
    if isinstance(made[0][1], np.ndarray):
        return Rows(np.vstack([part[1] for part in made]), labels)
    matrix = sp.csr_array(sp.vstack([part[1] for part in made]))
    columns, local = np.unique(matrix.indices, return_inverse=True)
    arrays = (matrix.data, local.astype(np.int32), matrix.indptr.astype(np.int32))
    return Rows(sp.csr_array(arrays, shape=(labels.size, columns.size)), labels).for_many_products()
