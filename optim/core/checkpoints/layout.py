"""The order of an array's elements in memory, on which the last bits of NumPy's sums depend."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Layout:
    """Axes from the slowest to the fastest, and the shape, along which elements may be repeated."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, x: npt.NDArray[Any]) -> Layout:
        """That of `x`."""
        strides = [
            0 if length == 1 else abs(s) for s, length in zip(x.strides, x.shape, strict=True)
        ]
        if x.flags.c_contiguous:
            return cls(tuple(range(x.ndim)), x.shape)
        return cls(tuple(sorted(range(x.ndim), key=lambda axis: -strides[axis])), x.shape)

    def packed(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The elements of `x`, each once, in C order; no copy where they lie so."""
        lengths = zip(x.strides, x.shape, strict=True)
        once = tuple(slice(0, 1) if s == 0 and n > 1 else slice(None) for s, n in lengths)
        return np.asarray(x[(*once, ...)].transpose(self.axes), order="C")

    def unpacked(self, elements: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array again. Raises ValueError if that cannot be."""
        x = elements.transpose(np.argsort(self.axes))
        return x if x.shape == self.shape else np.broadcast_to(x, self.shape)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
