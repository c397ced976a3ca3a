"""The array that users hold."""

from distvec.array.dist_array import DistArray

__all__ = ["DistArray"]
