"""A vector that tasks read and add to at any time, as asynchronous SGD (HogWild) wants it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from distvec import DistArray
from distvec.elements import as_indices
from distvec.expr import Buffer
from distvec.spark.access import Access, join
from distvec.spark.tasks.contribute import as_values
from distvec.spark.tasks.rounds import check_vectors
from ps_backend.client import Client
from ps_backend.rounds import Total
from ps_backend.space import DenseSpace

if TYPE_CHECKING:
    from distvec.spark.context import PSContext


class SharedVector:
    """``ps.share(w)``: a copy of ``w`` with ``pull`` and ``push`` in tasks; it travels in closures.

    A push takes effect at once, for everybody, and at least once: what a task pushed before Spark
    ran it again, or a copy of it, has been added as well. Where each partition must count exactly
    once use ``PSContext.round``. The driver must hold the object while tasks use it.
    """

    def __init__(self, access: Access, buffer: int, length: int, dtype: str) -> None:
        self._access, self._buffer = access, buffer
        self._space, self.dtype = DenseSpace(length), np.dtype(dtype)
        self._session: PSContext | None = None
        self._owned: Buffer | None = None

    @classmethod
    def copy_of(cls, array: DistArray, session: PSContext) -> SharedVector:
        """A vector to share, with the values of ``array``. One message a server."""
        check_vectors(session, [array])
        owned = _copy(session, array.buffer_id, array.space, array.dtype)
        shared = cls(session.access, owned.id, len(array), array.dtype.str)
        shared._session, shared._owned = session, owned
        return shared

    def __reduce__(self) -> tuple[Callable[..., SharedVector], tuple[Any, ...]]:
        return SharedVector, (self._access, self._buffer, len(self), self.dtype.str)

    def __len__(self) -> int:
        return self._space.length

    def pull(self, indices: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
        """The elements at ``indices`` (in their order), or all; others may push meanwhile.

        One message to each server that holds some.
        """
        if indices is None:
            return self._client.read(self._buffer, self._space, self.dtype)
        wanted = as_indices(indices, len(self))
        return self._client.gather(self._buffer, self._space, self.dtype, wanted)

    def push(self, indices: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Add ``values`` (shape ``(k,)``, or one for all) at ``indices``; repeated ones add up.

        One message to each server that holds some; at least once, see the class.
        """
        where = as_indices(indices, len(self))
        given = as_values(values, where.shape, self.dtype.str)
        self._client.update(self._buffer, self._space, self.dtype, where, given)

    def snapshot(self) -> DistArray:
        """The values of now as an array, on the driver. One message a server."""
        if self._session is None:
            raise RuntimeError("a snapshot is taken on the driver; in a task use pull()")
        owned = _copy(self._session, self._buffer, self._space, self.dtype)
        return self._session.wrap(self._session.graph.leaf(owned))

    @property
    def _client(self) -> Client:
        return join(self._access) if self._session is None else self._session.client


def _copy(session: PSContext, source: int, space: DenseSpace, dtype: np.dtype[Any]) -> Buffer:
    """A copy made on the servers: the commit of a round to which nobody contributed."""
    buffer = session.new_buffer(space, dtype)
    total = Total(buffer.id, space, dtype, [], source=source)
    session.client.commit_totals(str(session.client.new_id()), [total])
    return buffer
