"""``x[1:3]``: values of their own, where NumPy's would be a window on ``x``."""

from __future__ import annotations

from typing import Any

from distvec.array.dist_array import DistArray
from distvec.graph.node import Node


class Window(DistArray):
    """What a slice of an array gave. Nothing is assigned into it: that would not reach the array.

    ``x[1:3] += 1`` and ``x[1:3] = y`` assign to ``x``. What is computed from a window is an array
    like any other, and so is its copy.
    """

    __slots__ = ()
    is_window = True

    def like(self, node: Node) -> Any:
        """Another array of this session: ``node``."""
        return DistArray(self.session, node)
