"""Arrays that tasks change in place: for asynchronous SGD (HogWild), and for loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec import DistArray
from distvec.array.indexing.pull_push import as_indices
from distvec.graph.node import Node
from distvec.spark.rounds.contribute import as_values
from distvec.spark.task_session import SessionTicket, TaskSession, join
from ps_backend.client import Client, SharedArray
from ps_backend.errors import BufferLost


class SharedCopies:
    """Shared arrays that begin as copies of others, and are freed with this object."""

    def __init__(self, ps: TaskSession, arrays: Sequence[DistArray]) -> None:
        """Evaluates them; one more message a server."""
        self.session = ps
        self.arrays: list[SharedArray] = []
        held = [array.copy() for array in arrays]  # so that what is read stays meanwhile
        ps.evaluate(*held)  # at once, in common messages
        sources = [array.buffer for array in held]
        self.arrays += [SharedArray(ps.client.new_id(), source.type) for source in sources]
        ps.client.share([source.id for source in sources], self.arrays)

    def snapshot(self, *, last: bool = False) -> list[Node]:
        """Buffers with the values of now; ``last``: what the arrays become. One message a server.

        Whoever adds to them after the last one gets ``BufferLost``.
        """
        ps = self.session
        buffers = [ps.new_buffer(array.type) for array in self.arrays]
        ps.client.snapshot(self.arrays, [buffer.id for buffer in buffers], last=last)
        return [ps.graph.leaf(buffer) for buffer in buffers]

    def __del__(self) -> None:
        self.session.client.free([array.number for array in self.arrays])


_OVER = "the block 'with ps.share(...)' is over; pull and push inside of it, or share again"


class TaskArray:
    """Read and change an array from Spark tasks at any time.

    ``PSContext.share(w)`` yields it as a copy of ``w``. It is pickled with the functions that use
    it. A push takes effect immediately for all tasks, and at least once: if Spark repeats a task,
    its earlier pushes remain. Use ``PSContext.round`` to count each partition exactly once.
    """

    def __init__(
        self, access: SessionTicket, array: SharedArray, copies: SharedCopies | None = None
    ) -> None:
        """``copies``: on the driver, ``array`` alone; tasks join by ``access``."""
        self._access, self._array, self._copies = access, array, copies
        self.dtype = array.type.dtype
        self.shape = array.type.shape
        """``(n,)``, or ``(n, k)`` of a table."""
        self.is_over = False
        """Whether the block has ended, on the driver."""

    def __reduce__(self) -> tuple[Callable[..., TaskArray], tuple[Any, ...]]:
        self._check_open()
        return TaskArray, (self._access, self._array)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<TaskArray: shape {self.shape}, {self.dtype}{', over' * self.is_over}>"

    def pull(self, indices: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
        """Return elements or rows; other tasks may push meanwhile.

        Parameters
        ----------
        indices : array_like of int, optional
            The indices. By default all.

        Returns
        -------
        array, (m,) or (m, k)
            In the order of ``indices``.

        Notes
        -----
        One request to each server that holds some of them.
        """
        self._check_open()
        with self._explained():
            wanted = None if indices is None else as_indices(indices, len(self))
            return self._client.pull(self._array, wanted)

    def push(self, indices: npt.ArrayLike | None, values: npt.ArrayLike) -> None:
        """Add values at some indices.

        Parameters
        ----------
        indices : array_like of int or None
            The indices; repeated ones add up. None means all elements.
        values : array_like
            One number for each index, or a row for a table; or a single number or row for all.

        Notes
        -----
        One request to each server that holds some of them. A push counts at least once.
        """
        self._check_open()
        where = np.arange(len(self)) if indices is None else as_indices(indices, len(self))
        given = as_values(values, self._array.type, where)
        with self._explained():
            self._client.update(self._array, where, given)

    def snapshot(self) -> DistArray:
        """Return the current values as an array of its own, on the driver.

        Returns
        -------
        DistArray
            The values.

        Notes
        -----
        One request to each server.
        """
        self._check_open()
        if self._copies is None:
            raise RuntimeError("a snapshot is taken on the driver; in a task use pull()")
        (node,) = self._copies.snapshot()
        return DistArray(self._copies.session, node)

    def end(self) -> None:
        """Called on the driver when the block ends: lets the servers free the array."""
        self.is_over, self._copies = True, None

    def _check_open(self) -> None:
        if self.is_over:
            raise RuntimeError(_OVER)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """In a task, which cannot know, say why a buffer may be gone."""
        try:
            yield
        except BufferLost as error:
            if self._copies is not None:
                raise
            raise BufferLost(f"{_OVER} (or a server was lost): {error}") from error

    @property
    def _client(self) -> Client:
        return join(self._access) if self._copies is None else self._copies.session.client


@contextmanager
def open_share(ps: TaskSession, array: DistArray) -> Iterator[TaskArray]:
    """Share a copy of ``array``, which has its values of then at the end; see PSContext.share."""
    before = array.copy()
    copies = SharedCopies(ps, [before])
    shared = TaskArray(ps.access, copies.arrays[0], copies)
    with ps._at_work("a share"):
        try:
            yield shared
            (result,) = copies.snapshot(last=True)  # what a late task still pushes is refused
        finally:
            shared.end()
            del copies  # which the traceback of an error would keep
    with array.write_lock:
        if array.node is not before.node:
            raise RuntimeError(
                "the array was changed inside of 'with ps.share(...)' and keeps that value, "
                "without the pushes of the tasks; push to the shared array instead, or use its "
                "snapshot()"
            )
        array.rebind(result)
