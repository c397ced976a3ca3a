"""What is done with shared arrays, to which many clients add in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ps_backend.client.arrays import SharedArray, StoredArray
from ps_backend.client.buffers import Buffers


class SharedArrays(Buffers):
    """What a client can ask that concerns shared arrays: made of buffers, and becoming some."""

    def share(self, sources: Sequence[int], arrays: Sequence[SharedArray]) -> None:
        """Make the shared ``arrays``, copies of the buffers ``sources``. One message a server."""
        numbers = [array.number for array in arrays]
        stored = [
            StoredArray(buffer, array.type) for buffer, array in zip(sources, arrays, strict=True)
        ]
        self._send(self._requests.copies("share", stored, numbers), made=numbers)

    def pull(self, array: SharedArray, indices: npt.ArrayLike | None = None) -> np.ndarray:
        """The values of now, all or the rows at ``indices``; others may add meanwhile.

        One message to each server that holds some. Errors as of ``read`` and ``gather``.
        """
        if indices is not None:
            return self._gather(*array, indices, shared=True)
        found = np.empty(array.type.shape, array.type.dtype)
        self._send(self._requests.read(*array, found, shared=True), recorded=False)
        self.counters.count_vectors(read=1)
        return found

    def update(self, array: SharedArray, indices: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Add ``values`` at ``indices`` in place, for whoever shares the array.

        One message to each server that holds one of them; what several clients send is added in
        the order in which it comes.
        """
        self._send(self._requests.update(array, indices, values))

    def snapshot(
        self, arrays: Sequence[SharedArray], targets: Sequence[int], *, last: bool = False
    ) -> None:
        """Make the buffers ``targets`` with the values of ``arrays``. One message a server.

        ``last``: the arrays become the buffers and are over; that takes no memory.
        """
        messages = self._requests.copies("snapshot", arrays, targets, last=last)
        self._send(messages, made=targets)
