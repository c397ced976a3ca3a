"""Arrays on the servers as a client reads and writes them: buffers and shared arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ps_backend.client.connection import Connection
from ps_backend.client.programs import Ended
from ps_backend.client.requests import (
    Indices,
    Messages,
    SharedArray,
    StoredArray,
    check_indices,
    empty_rows,
    stored_values,
)
from ps_backend.limits import MOST_FORCED_BYTES
from ps_backend.program.spaces import Space
from ps_backend.program.types import ArrayType
from ps_backend.wire.codec import encode_array, encode_space


class Arrays(Connection):
    """What a client can ask that concerns arrays: buffers by their numbers, and shared ones."""

    # --- read and written -------------------------------------------------------------------------

    def write(self, buffer: int, space: Space, values: npt.ArrayLike) -> None:
        """Make ``buffer`` from ``values``, shape ``(space.length, ...)``. One message a server."""
        type, given = stored_values(space, values)
        if given.ndim == 0 or len(given) != space.length:
            raise ValueError(f"values must have length {space.length}, got shape {given.shape}")
        self._send(self._requests.write(0, type, None, given, target=buffer), made=[buffer])
        self.counters.count_vectors(written=1)

    def read(self, buffer: int, type: ArrayType, out: np.ndarray | None = None) -> np.ndarray:
        """All values of ``buffer``, of shape ``type.shape``. One message a server.

        ``out``: C-contiguous array of that dtype and shape to read into. Raises ``BufferLost``.
        """
        kind, shape = type.dtype, type.shape
        if out is not None and (
            out.dtype != kind or out.shape != shape or not out.flags.c_contiguous
        ):
            raise ValueError(
                f"out must be C-contiguous, {kind} and of shape {shape}, got {out.dtype} of "
                f"shape {out.shape}"
            )
        return self._read(buffer, type, None, out=out)

    def read_rows(self, buffer: int, type: ArrayType, start: int, stop: int) -> np.ndarray:
        """The rows ``start:stop`` of ``buffer``, ``0 <= start <= stop <= length``.

        One message to each server that holds some. Raises ``BufferLost``.
        """
        if not 0 <= start <= stop <= type.space.length:
            raise IndexError(f"rows {start}:{stop} are not within 0:{type.space.length}")
        return self._read(buffer, type, slice(start, stop))

    def gather(self, buffer: int, type: ArrayType, indices: npt.ArrayLike) -> np.ndarray:
        """The rows of ``buffer`` at ``indices``, shape ``(k, *type.row)``, in their order.

        ``indices``: integers of shape ``(k,)``, any order, duplicates allowed. One message to each
        server that holds one of them. Raises ``IndexError``, ``BufferLost``.
        """
        return self._read(buffer, type, check_indices(indices, type.space.length))

    def _read(
        self,
        buffer: int,
        type: ArrayType,
        where: Indices | slice | None,
        *,
        shared: bool = False,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        found = empty_rows(type, where) if out is None else out
        messages, scattered = self._requests.read(buffer, type, where, found, shared=shared)
        self._send(messages, recorded=False)
        for selection, values in scattered:
            found[selection] = values
        if where is None:
            self.counters.count_vectors(read=1)
        return found

    def scatter_add(
        self,
        source: int,
        target: int,
        type: ArrayType,
        indices: npt.ArrayLike,
        values: npt.ArrayLike,
        *,
        donate: bool,
        ended: Ended | None = None,
    ) -> None:
        """Make ``target``: ``source`` with ``values`` added at ``indices``. One message a server.

        ``indices``: shape ``(k,)``; ``values``: ``(k, *type.row)``; duplicates add up in the order
        given. ``donate``: the memory of ``source`` is reused and ``source`` ceases to exist; nobody
        else may be using it. More than 1 MiB for a server then takes two messages, so that one that
        lacks the memory for it refuses before another has given anything away. ``ended``: as in
        ``run``.
        """
        messages = self._requests.write(source, type, indices, values, target=target, donate=donate)
        large = max(sum(map(len, message.payload)) for message in messages.values())
        if donate and large > MOST_FORCED_BYTES:
            messages = self._staged(f"push {target}", messages)
        self._send(messages, made=[target], ended=ended)

    def _staged(self, round: str, messages: Messages) -> Messages:
        """Stage the pairs, which a server may refuse; returns the messages without them."""
        staged, bare = self._requests.in_two_steps(round, messages)
        try:
            self._send(staged)
        except Exception:
            self._send(self._requests.end_round(round), recorded=False)
            raise
        return bare

    # --- masks ------------------------------------------------------------------------------------

    def compress(
        self,
        source: int,
        type: ArrayType,
        mask: int,
        target: int,
        chosen: Space,
        single: bool = False,
    ) -> None:
        """Make ``target``, over ``chosen``: the rows of ``source`` where ``mask`` is true.

        ``mask``: a buffer of booleans over the space of ``type``; ``single``: with rows of the same
        shape, so that it chooses single elements. One message to each server that holds some of it.
        ``InvalidProgram`` where another number of them is true.
        """
        self._compress(source, type, mask, target, chosen, single)

    def expand(
        self,
        source: int,
        type: ArrayType,
        mask: int,
        values: int,
        target: int,
        chosen: Space,
        single: bool = False,
    ) -> None:
        """Make ``target``: ``source`` with the rows of ``values``, over ``chosen``, put in order
        where ``mask`` is true. Messages and errors as of ``compress``.
        """
        self._compress(source, type, mask, target, chosen, single, values)

    def _compress(
        self,
        source: int,
        type: ArrayType,
        mask: int,
        target: int,
        chosen: Space,
        single: bool,
        values: int = 0,
    ) -> None:
        holders = type.space.holders(self.servers)
        named = {"array": encode_array(source, type), "mask": mask, "chosen": encode_space(chosen)}
        how = {"target": target, "single": single, "values": values}
        self._send(self._requests.each(holders, "compress", **named, **how), made=[target])
        self.counters.count_vectors(read=2 + bool(values), written=1)

    # --- shared arrays ----------------------------------------------------------------------------

    def share(self, sources: Sequence[int], arrays: Sequence[SharedArray]) -> None:
        """Make the shared ``arrays``, copies of the buffers ``sources``. One message a server."""
        numbers = [array.number for array in arrays]
        stored = [
            StoredArray(buffer, array.type) for buffer, array in zip(sources, arrays, strict=True)
        ]
        self._send(self._requests.copy(stored, numbers, share=True), made=numbers)

    def pull(self, array: SharedArray, indices: npt.ArrayLike | None = None) -> np.ndarray:
        """The values of now, all or the rows at ``indices``; others may add meanwhile.

        One message to each server that holds some. Errors as of ``read`` and ``gather``.
        """
        where = None if indices is None else check_indices(indices, array.type.space.length)
        return self._read(*array, where, shared=True)

    def update(self, array: SharedArray, indices: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Add ``values`` at ``indices`` in place, for whoever shares the array.

        One message to each server that holds one of them; what several clients send is added in
        the order in which it comes.
        """
        self._send(self._requests.write(*array, indices, values))

    def snapshot(
        self, arrays: Sequence[SharedArray], targets: Sequence[int], *, last: bool = False
    ) -> None:
        """Make the buffers ``targets`` with the values of ``arrays``. One message a server.

        ``last``: the arrays become the buffers and are over; that takes no memory.
        """
        messages = self._requests.copy(arrays, targets, last=last)
        self._send(messages, made=targets)
