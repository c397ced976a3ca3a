"""The header of NumPy's own files of one array.

Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1 to 3.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from math import prod

import numpy as np

from ps_backend.errors import Corrupted
from ps_backend.program.types import DTYPES, dtype_of

_MAGIC = b"\x93NUMPY"
_KEYS = {"descr", "fortran_order", "shape"}
_MOST_HEADER = 65_536
_MOST_EXTENTS = 64


@dataclass(frozen=True, slots=True)
class Header:
    """What lies in a file, and where."""

    dtype: str
    shape: tuple[int, ...]
    by_columns: bool
    """Whether columns lie one after the other (Fortran's order), not rows."""
    offset: int
    """Of the first byte of data."""

    @property
    def nbytes(self) -> int:
        """Of the data."""
        return prod(self.shape) * dtype_of(self.dtype).itemsize


def header(dtype: str, shape: tuple[int, ...], *, by_columns: bool = False) -> bytes:
    """The bytes before the data of an array."""
    descr = np.lib.format.dtype_to_descr(dtype_of(dtype))
    file = BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": by_columns, "shape": shape}
    )
    return file.getvalue()


def read_header(read: Callable[[int, int], bytes], size: int, what: str) -> tuple[Header, bytes]:
    """What the file of ``size`` bytes holds, and the header as it stands there.

    ``read(start, count)`` gives some of its bytes. Raises ``Corrupted`` for what is no such file,
    or cut off; ``TypeError`` for one with elements that no array here has.
    """
    start = read(0, min(size, len(_MAGIC) + 2))
    if start[: len(_MAGIC)] != _MAGIC or len(start) < len(_MAGIC) + 2:
        raise Corrupted(f"{what} is cut off, or not a file of NumPy's")
    version = start[len(_MAGIC)]
    if version not in (1, 2, 3) or start[len(_MAGIC) + 1]:
        raise Corrupted(f"{what} says that it is of version {version} of NumPy's format, not 1 - 3")
    width = 2 if version == 1 else 4
    begin = len(start) + width
    length = int.from_bytes(read(len(start), width), "little") if begin <= size else _MOST_HEADER
    if begin + length > size or length > _MOST_HEADER:
        raise Corrupted(f"{what} is cut off within its header, or not a file of NumPy's")
    text = read(begin, length)
    try:
        given = ast.literal_eval(text.decode("utf-8" if version == 3 else "latin1"))
        descr, by_columns, shape = given["descr"], given["fortran_order"], given["shape"]
        fits = type(by_columns) is bool and type(shape) is tuple and set(given) == _KEYS
        fits = fits and len(shape) <= _MOST_EXTENTS
        if not fits or not all(type(n) is int and 0 <= n < 1 << 63 for n in shape):
            raise ValueError(f"{given!r} describes no array")
        dtype = np.lib.format.descr_to_dtype(descr)
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError) as error:
        raise Corrupted(f"{what} has no header of a file of NumPy's: {error!r}") from None
    if dtype.name not in DTYPES or dtype != dtype_of(dtype.name):
        raise TypeError(
            f"{what} holds elements of dtype {dtype!r}; arrays here are of {', '.join(DTYPES)}, in "
            "this machine's byte order: numpy.load it, and .astype() one of these"
        )
    found = Header(dtype.name, shape, by_columns and len(shape) > 1, begin + length)
    if found.offset + found.nbytes > size:
        raise Corrupted(
            f"{what} is cut off: it announces {found.nbytes} bytes of data after its header of "
            f"{found.offset}, and has {size} in all"
        )
    return found, start + read(len(start), width) + text
