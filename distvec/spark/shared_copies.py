"""What tasks change in place: copies of a driver's arrays, which stay as they are meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from distvec import DistArray
from distvec.graph.node import Node
from distvec.spark.task_session import TaskSession
from ps_backend.client import SharedArray


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
