"""Hashes of rows: draws that follow them are the same in any partition."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.losses.rows import Floats, Ints, Matrix

_ROWS = 2048

Keys = npt.NDArray[np.uint64]

# Of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def row_hashes(matrix: Matrix, features: Ints) -> Keys:
    """Of each row's features."""
    factors = mix(features.astype(np.uint64) + np.uint64(1)) | np.uint64(1)
    if isinstance(matrix, np.ndarray):
        found = np.empty(len(matrix), np.uint64)
        for start in range(0, len(matrix), _ROWS):
            part = slice(start, start + _ROWS)
            found[part] = _folded(matrix[part]) @ factors
        return found
    elements = _folded(matrix.data) * factors[matrix.indices]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(elements)])
    of_rows: Keys = sums[matrix.indptr[1:]] - sums[matrix.indptr[:-1]]
    return of_rows


def _folded(values: npt.NDArray[np.float64]) -> Keys:
    """The bits of numbers, those of the exponent also at the other end."""
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    return bits ^ (bits >> np.uint64(32))


def uniform(keys: Keys) -> Floats:
    """Numbers in [0, 1)."""
    return (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53


def mix(numbers: Any) -> Any:
    """A bijection of uint64 in which each bit depends on all."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
