"""The headers of the file formats: NumPy's ``.npy`` of one array, and safetensors of many.

A safetensors file has eight bytes with the length of the header, the header as JSON, then the data,
little-endian and in C order, one array after the other without a gap.
Sources: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1 to 3;
https://github.com/huggingface/safetensors, "Format".
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from math import prod
from typing import Any

import numpy as np

from ps_backend.errors import Corrupted
from ps_backend.program.types import DTYPES, dtype_of

_NPY_MAGIC = b"\x93NUMPY"
_NPY_KEYS = {"descr", "fortran_order", "shape"}
_MOST_NPY_HEADER = 65_536
_MOST_EXTENTS = 64


@dataclass(frozen=True, slots=True)
class NpyHeader:
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


def npy_header(dtype: str, shape: tuple[int, ...], *, by_columns: bool = False) -> bytes:
    """The bytes before the data of an array."""
    descr = np.lib.format.dtype_to_descr(dtype_of(dtype))
    file = BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": by_columns, "shape": shape}
    )
    return file.getvalue()


def read_npy_header(
    read: Callable[[int, int], bytes], size: int, what: str
) -> tuple[NpyHeader, bytes]:
    """What the file of ``size`` bytes holds, and the header as it stands there.

    ``read(start, count)`` gives some of its bytes. Raises ``Corrupted`` for what is no such file,
    or cut off; ``TypeError`` for one with elements that no array here has.
    """
    start = read(0, min(size, len(_NPY_MAGIC) + 2))
    if start[: len(_NPY_MAGIC)] != _NPY_MAGIC or len(start) < len(_NPY_MAGIC) + 2:
        raise Corrupted(f"{what} is cut off, or not a file of NumPy's")
    version = start[len(_NPY_MAGIC)]
    if version not in (1, 2, 3) or start[len(_NPY_MAGIC) + 1]:
        raise Corrupted(f"{what} says that it is of version {version} of NumPy's format, not 1 - 3")
    width = 2 if version == 1 else 4
    begin = len(start) + width
    length = (
        int.from_bytes(read(len(start), width), "little") if begin <= size else _MOST_NPY_HEADER
    )
    if begin + length > size or length > _MOST_NPY_HEADER:
        raise Corrupted(f"{what} is cut off within its header, or not a file of NumPy's")
    text = read(begin, length)
    try:
        given = ast.literal_eval(text.decode("utf-8" if version == 3 else "latin1"))
        descr, by_columns, shape = given["descr"], given["fortran_order"], given["shape"]
        fits = type(by_columns) is bool and type(shape) is tuple and set(given) == _NPY_KEYS
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
    found = NpyHeader(dtype.name, shape, by_columns and len(shape) > 1, begin + length)
    if found.offset + found.nbytes > size:
        raise Corrupted(
            f"{what} is cut off: it announces {found.nbytes} bytes of data after its header of "
            f"{found.offset}, and has {size} in all"
        )
    return found, start + read(len(start), width) + text


_KINDS = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bool": "BOOL",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
}  # fmt: skip
_DTYPES = {kind: name for name, kind in _KINDS.items()}
_LENGTH_BYTES = 8
_MOST_HEADER = 100_000_000
"""Bytes, as the format bounds them."""
_ALIGNED = 64
"""The data begins at a multiple of so many bytes."""
"""As NumPy's arrays: the product of a million extents would take hours."""
_OWN = "__metadata__"


class _OtherDtype(Exception):
    """A whole file, but of what no array here is."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An array in a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """Of its first byte in the file."""

    @property
    def nbytes(self) -> int:
        """Its size."""
        return int(prod(self.shape)) * dtype_of(self.dtype).itemsize


def safetensors_header(
    arrays: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str] | None = None
) -> tuple[bytes, list[Tensor]]:
    """The bytes before the data of ``(name, dtype, shape)`` arrays, and where each will lie.

    ``ValueError`` for two of one name, or one called ``__metadata__``.
    """
    listed: dict[str, Any] = {_OWN: dict(metadata)} if metadata else {}
    tensors, end = [], 0
    for name, dtype, shape in arrays:
        if name in listed or name == _OWN:
            raise ValueError(f"the name {name!r} cannot be given to an array, or to two")
        tensor = Tensor(name, dtype, shape, end)
        tensors.append(tensor)
        end += tensor.nbytes
        listed[name] = {
            "dtype": _KINDS[dtype],
            "shape": list(shape),
            "data_offsets": [tensor.offset, end],
        }
    text = json.dumps(listed, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH_BYTES + len(text)) % _ALIGNED)
    start = _LENGTH_BYTES + len(text)
    placed = [Tensor(one.name, one.dtype, one.shape, start + one.offset) for one in tensors]
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text, placed


def raw_safetensors_header(read: Callable[[int, int], bytes], size: int, what: str) -> bytes:
    """The bytes before the data of a file of ``size`` bytes; ``Corrupted`` where it is shorter."""
    if size < _LENGTH_BYTES:
        raise Corrupted(f"{what} has {size} bytes: it is not a safetensors file")
    length = int.from_bytes(read(0, _LENGTH_BYTES), "little")
    if length > min(_MOST_HEADER, size - _LENGTH_BYTES):
        raise Corrupted(
            f"{what} announces a header of {length} bytes, but has {size} in all: it is cut off, "
            "or not a safetensors file"
        )
    return read(0, _LENGTH_BYTES + length)


def read_safetensors_header(
    read: Callable[[int, int], bytes], size: int, what: str
) -> tuple[list[Tensor], dict[str, str]]:
    """The arrays of a file of ``size`` bytes, in the order of their data, and its metadata.

    ``read(start, count)`` gives some of its bytes; ``what`` names it in errors. Raises
    ``Corrupted`` for what is not a whole safetensors file, ``TypeError`` for one with an array of a
    dtype that no array here has.
    """
    raw = raw_safetensors_header(read, size, what)
    try:
        listed = json.loads(raw[_LENGTH_BYTES:], object_pairs_hook=_each_once)
        metadata = listed.pop(_OWN, {})
        start = len(raw)
        tensors = [_tensor(name, one, start) for name, one in listed.items()]
        if not all(isinstance(text, str) for pair in metadata.items() for text in pair):
            raise ValueError("its metadata are not all texts")
    except _OtherDtype as error:
        raise TypeError(f"{what}: {error}") from None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise Corrupted(f"{what} has no header of a safetensors file: {error!r}") from None
    tensors.sort(key=lambda one: (one.offset, one.nbytes))
    _check_layout(tensors, start, size, what)
    return tensors, metadata


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _tensor(name: str, given: Any, start: int) -> Tensor:
    kind, shape, (begin, end) = given["dtype"], given["shape"], given["data_offsets"]
    name.encode()  # half a pair of surrogates is no text
    if not isinstance(shape, list) or len(shape) > _MOST_EXTENTS:
        raise ValueError(f"the shape of {name!r} is invalid")
    numbers = [*shape, begin, end]
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers):
        raise ValueError(f"sizes and offsets of {name!r} are not all whole numbers from 0")
    if not isinstance(kind, str):
        raise ValueError(f"the dtype of {name!r} is not a text")
    if kind not in _DTYPES:
        raise _OtherDtype(f"{name!r} is of dtype {kind}; arrays here are of {', '.join(_DTYPES)}")
    tensor = Tensor(name, _DTYPES[kind], tuple(shape), start + begin)
    if tensor.nbytes != end - begin:
        raise ValueError(f"{name!r} takes {tensor.nbytes} bytes, but its offsets {end - begin}")
    return tensor


def _check_layout(tensors: list[Tensor], start: int, size: int, what: str) -> None:
    ends = [start, *(one.offset + one.nbytes for one in tensors)]
    starts = [*(one.offset for one in tensors), size]
    for end, begin in zip(ends, starts, strict=True):
        if end != begin:
            raise Corrupted(
                f"{what} is cut off, or its arrays overlap: one ends at byte {end}, and the "
                f"next begins at {begin} of {size}"
            )
