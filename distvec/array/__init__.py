"""The array that users hold."""

from distvec.array.array import DistArray

__all__ = ["DistArray"]
