"""A vector that tasks read and add to at any time, as asynchronous SGD (HogWild) wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec import DistArray
from distvec.array.indexing import as_indices
from distvec.spark.access import Access, join
from distvec.spark.rounds.contribute import as_values
from distvec.spark.rounds.round import copies
from distvec.spark.task_session import TaskSession
from ps_backend.client import Client, StoredArray
from ps_backend.errors import BufferLost
from ps_backend.program.types import ArrayType

_OVER = "the block 'with ps.share(...)' is over; pull and push inside of it, or share again"


class SharedVector:
    """``with ps.share(w) as shared``: ``pull`` and ``push`` for tasks; it travels in closures.

    It begins as a copy of ``w``. A push takes effect at once, for everybody, and at least once:
    what a task pushed before Spark ran it again, or a copy of it, has been added as well. Where
    each partition must count exactly once use ``PSContext.round``.
    """

    def __init__(
        self, access: Access, buffer: int, type: ArrayType, session: TaskSession | None = None
    ) -> None:
        """``session``: on the driver; tasks join by ``access``."""
        self._access, self._buffer = access, buffer
        self._type, self.dtype = type, type.dtype
        self._session = session
        self.is_over = False
        """Set on the driver at the end of the block."""

    def __reduce__(self) -> tuple[Callable[..., SharedVector], tuple[Any, ...]]:
        self._check_open()
        return SharedVector, (self._access, self._buffer, self._type)

    def __len__(self) -> int:
        return self._type.space.length

    def __repr__(self) -> str:
        return f"<SharedVector: length {len(self)}, {self.dtype}{', over' * self.is_over}>"

    def pull(self, indices: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
        """The elements at ``indices`` (in their order), or all; others may push meanwhile.

        One message to each server that holds some.
        """
        self._check_open()
        with self._explained():
            if indices is None:
                return self._client.read(self._buffer, self._type)
            wanted = as_indices(indices, len(self))
            return self._client.gather(self._buffer, self._type, wanted)

    def push(self, indices: npt.ArrayLike | None, values: npt.ArrayLike) -> None:
        """Add ``values`` (shape ``(k,)``, or one for all) at ``indices``; None: at all.

        Repeated indices add up. One message to each server that holds some; at least once, see the
        class.
        """
        self._check_open()
        where = np.arange(len(self)) if indices is None else as_indices(indices, len(self))
        given = as_values(values, where.shape, self.dtype)
        with self._explained():
            self._client.update(self._buffer, self._type, where, given)

    def snapshot(self) -> DistArray:
        """The values of now as an array of its own, on the driver. One message a server."""
        self._check_open()
        if self._session is None:
            raise RuntimeError("a snapshot is taken on the driver; in a task use pull()")
        (owned,) = copies(self._session, [StoredArray(self._buffer, self._type)])
        return DistArray(self._session, self._session.graph.leaf(owned))

    def _check_open(self) -> None:
        if self.is_over:
            raise RuntimeError(_OVER)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """In a task, which cannot know, say why a buffer may be gone."""
        try:
            yield
        except BufferLost as error:
            if self._session is not None:
                raise
            raise BufferLost(f"{_OVER} (or a server was lost): {error}") from error

    @property
    def _client(self) -> Client:
        return join(self._access) if self._session is None else self._session.client


@contextmanager
def open_share(ps: TaskSession, array: DistArray) -> Iterator[SharedVector]:
    """Share a copy of ``array``, which has its values of then at the end; see PSContext.share."""
    held = array.copy()  # so that its memory stays while it is copied
    (owned,) = copies(ps, [StoredArray(held.buffer_id, array.type)])
    shared = SharedVector(ps.access, owned.id, array.type, ps)
    try:
        yield shared
        # A copy, as a task that comes late may still push: that must not change the array.
        result = shared.snapshot()
    finally:
        shared.is_over = True
        del owned  # which the traceback of an error would keep
    with array.turn:
        if array.node is not held.node:
            raise RuntimeError(
                "the array was changed inside of 'with ps.share(...)', and has that value now; "
                "what was pushed is not in it: push to the shared vector instead, or take its "
                "snapshot()"
            )
        array.become(result.node)
