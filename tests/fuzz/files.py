"""Files that are not what was written: manifests, safetensors files and NumPy's.

What is damaged must be told so, and what is taken for whole must be what it says that it is. Where
a checksum would find everything, it is made to fit: so also what others write is tried.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import lru_cache
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ps_backend.durability import file_checksums, formats, manifest
from ps_backend.durability.file_checksums import FileRange, crc32
from ps_backend.durability.file_ranges import read_rows
from ps_backend.durability.files import Stored, layout, read_file
from ps_backend.durability.manifest import Kept, Manifest
from ps_backend.durability.stores import Directory
from ps_backend.errors import Corrupted
from ps_backend.program.spaces import DenseSpace, RaggedSpace
from ps_backend.program.types import array_type, dtype_of
from tests.fuzz.mutations import by_byte

_NUMBERS = (0, 1, -1, 5, 5.0, 0.5, True, 1 << 31, 1 << 63, 1 << 64, 10**400, 1e308)
_ODD: tuple[Any, ...] = (
    *_NUMBERS,
    *map(float, ("nan", "inf", "-inf")),
    None, "", "x", "F64", "F128", "float64", "../x", "/x", "\0", "\ud800", "ff" * 9,
    [], {}, [[]], [1, 2], ["00000000"], {"a": 1}, [10**18] * 70,
)  # fmt: skip


@lru_cache(maxsize=1)
def _manifest() -> dict[str, Any]:
    arrays = (
        Kept(7, ("w",), array_type(DenseSpace(3), np.dtype("int8"), (2,)), (_piece("a/b"),)),
        Kept(8, ("v", ""), array_type(RaggedSpace(3, 2, (0, 1, 3)), np.dtype(float)), ()),
    )
    data = Manifest(arrays, {"k": [1, None]}, "a session", 2).encode()
    body: dict[str, Any] = json.loads(data)["manifest"]
    return body


def _piece(file: str) -> FileRange:
    return FileRange(file, 64, 0, 3, 1024, (5,))


def a_manifest(rng: random.Random) -> str:
    """Read one; returns what is wrong with what became of it."""
    if rng.random() < 0.3:
        data = by_byte(_sealed(json.dumps(_manifest()).encode()), rng)
    else:
        text = _as_json(_changed(_manifest(), rng), rng)
        data = _sealed(by_byte(text, rng) if rng.random() < 0.2 else text)
    try:
        found = manifest.decode(data, "m")
    except (Corrupted, NotImplementedError):
        return ""
    for one in found.arrays:
        numbers = [one.id, one.type.space.length, one.type.space.id, *one.type.row]
        numbers += [n for p in one.pieces for n in (p.offset, p.low, p.high, p.unit, *p.crcs)]
        if not all(type(number) is int and number >= 0 for number in numbers):
            return f"{one} was taken for an array"
    return ""


def _sealed(body: bytes) -> bytes:
    crc = f"{crc32(body):08x}".encode()
    return manifest._BEFORE + crc + manifest._BETWEEN + body + manifest._AFTER


_TENSORS = {
    "__metadata__": {"a": "b"},
    "w": {"dtype": "F64", "shape": [4, 2], "data_offsets": [0, 64]},
    "v": {"dtype": "I8", "shape": [5], "data_offsets": [64, 69]},
    "s": {"dtype": "BOOL", "shape": [], "data_offsets": [69, 70]},
}
_DATA = 70


def a_header(rng: random.Random) -> str:
    """The same of the header of a safetensors file."""
    text = _as_json(_changed(_TENSORS, rng), rng)
    if rng.random() < 0.3:
        text = by_byte(text, rng)
    length, size = len(text), 8 + len(text) + _DATA
    if rng.random() < 0.1:
        length = rng.choice((0, 1, abs(length - 1), length + 1, 10**8, 10**8 + 1, (1 << 64) - 1))
    if rng.random() < 0.1:
        size = rng.choice((0, 7, 8, size - 1, size + 1, 10**12))
    data = length.to_bytes(8, "little") + text + bytes(_DATA)
    size = min(size, len(data) + 1)

    def read(start: int, count: int) -> bytes:
        if start + count > size:
            raise AssertionError(f"bytes up to {start + count} are read of a file of {size}")
        return data[start : start + count]

    try:
        found, metadata = formats.read_safetensors_header(read, size, "f")
    except Corrupted:
        return ""
    except TypeError as error:
        return "" if "is of dtype" in str(error) else f"no clear text: {error}"
    at = 8 + int.from_bytes(data[:8], "little")
    for one in found:
        if one.offset != at or not all(type(n) is int and n >= 0 for n in one.shape):
            return f"{one} was taken for an array from byte {at} on"
        at += one.nbytes
    texts = all(isinstance(text, str) for pair in metadata.items() for text in pair)
    return "" if texts else f"{metadata} were taken for texts"


_DESCRS = (
    "'<f8'", "'|b1'", "'>f8'", "'O'", "5", "None", "[('a','<f8')]", "('<f8',(2,))", "'f8,f8'",
    "'(99999999999,)f8'", "('<f8',(10**9,))", "'V9999999999'", "'<U9999999999'", "'m8[9s]'", "[()]",
)  # fmt: skip
_SHAPES = (
    "(3,)", "()", "(3,2)", "(-1,)", "(True,)", "(3.0,)", "3", "[3]", "(9223372036854775807,)",
    "(0,9223372036854775807,9223372036854775807)", "(" + "9" * 5000 + ",)", "(9,)*9",
    "(" + "9223372036854775806," * 63 + ")", "(" + "1," * 65 + ")", "('3',)", "None",
)  # fmt: skip
_ORDERS = ("False", "True", "0", "None", "'C'")


def an_npy(rng: random.Random) -> str:
    """The same of the header of a file of NumPy's."""
    pick = (lambda some: some[0]) if rng.random() < 0.3 else rng.choice
    text = (
        f"{{'descr': {pick(_DESCRS)}, 'fortran_order': {pick(_ORDERS)}, "
        f"'shape': {pick(_SHAPES)}, }}".encode("latin1")
    )
    if rng.random() < 0.05:
        text = rng.choice((b"(" * 9000, b"-" * 30_000 + b"1", b"not " * 9000 + b"1", b"[" * 150))
    if rng.random() < 0.5:
        text = by_byte(text, rng)
    version = rng.choice((1, 1, 1, 2, 3, 0, 4, 255))
    data = b"\x93NUMPY" + bytes((version, rng.choice((0, 0, 0, 0, 1))))
    data += len(text).to_bytes(2 if version == 1 else 4, "little") + text
    if rng.random() < 0.3:
        data = by_byte(data, rng)
    size = len(data) + rng.choice((0, 24, 48))
    try:
        found, _ = formats.read_npy_header(lambda at, count: data[at : at + count], size, "f")
    except Corrupted:
        return ""
    except TypeError as error:
        return "" if "holds elements of dtype" in str(error) else f"no clear text: {error}"
    whole = all(type(extent) is int and extent >= 0 for extent in found.shape)
    fits = found.offset + found.nbytes <= size and dtype_of(found.dtype).itemsize > 0
    return "" if whole and fits else f"{found} was taken for a header"


_VALUES = {
    "w": np.linspace(0, 1, 2500).reshape(-1, 2),
    "v": np.arange(7, dtype=np.int8),
    "s": np.array(2.5),
}


@lru_cache(maxsize=2)
def _written(kind: str) -> bytes:
    """A file with checksums, as it is written."""
    values = dict(list(_VALUES.items())[: 1 if kind == "npy" else None])
    stored = []
    for name, array in values.items():
        rows = array.reshape(-1) if not array.shape else array
        one = Stored(name, array.dtype.name, array.shape)
        pieces = tuple(
            FileRange("", 0, p.low, p.high, p.unit, tuple(
                crc32(rows[low : min(low + p.unit, p.high)].tobytes())
                for low in range(p.low, p.high, p.unit)
            ))
            for p in file_checksums.blank_ranges(one.length, [(0, one.length)])
        )  # fmt: skip
        stored.append(Stored(name, array.dtype.name, array.shape, pieces))
    planned = layout(kind, stored, {})
    body = b"".join(array.tobytes() for array in values.values())
    return planned.head + body + planned.tail


def a_file(rng: random.Random) -> str:
    """A bit of a whole file is another one, or its end is missing: its numbers are never others."""
    kind = rng.choice(("safetensors", "npy"))
    data = bytearray(_written(kind))
    if rng.random() < 0.2:
        del data[rng.randrange(len(data)) :]
    else:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    with TemporaryDirectory() as folder:
        store = Directory(folder)
        store_file = f"{folder}/w.{kind}"
        with open(store_file, "wb") as file:
            file.write(data)
        try:
            arrays, _ = read_file(store, f"w.{kind}", kind)
            found = {one.name: _read(store, one) for one in arrays}
        except Corrupted:
            return ""
        except TypeError as error:
            return "" if "dtype" in str(error) else f"no clear text: {error}"
    expected = dict(list(_VALUES.items())[: 1 if kind == "npy" else None])
    same = found.keys() == expected.keys() and all(
        (one.dtype, one.shape, one.tobytes()) == (array.dtype, array.shape, array.tobytes())
        for one, array in zip(found.values(), expected.values(), strict=True)
    )
    return "" if same else f"a damaged {kind} file was read as {list(found)}"


def _read(store: Directory, one: Stored) -> np.ndarray:
    into = bytearray(one.nbytes)
    read_rows(store, one.pieces, one.row_bytes, 0, memoryview(into), one.name)
    values = np.frombuffer(into, one.dtype).reshape(one.stored_shape)
    return values.T if one.by_columns else values


FILES: Mapping[str, Callable[[random.Random], str]] = {
    "manifest": a_manifest,
    "safetensors header": a_header,
    "npy header": an_npy,
    "file with a damaged byte": a_file,
}


def try_one(what: str, seed: int) -> str:
    """Read the file of that seed; returns what is wrong."""
    try:
        return FILES[what](random.Random(seed))
    except Exception as error:  # noqa: BLE001 - whatever it is, nobody expects it
        return repr(error)


# --- JSON -----------------------------------------------------------------------------------------


def _changed(value: Any, rng: random.Random) -> Any:
    """A copy in which one value, or a few, are others."""
    copy = deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(copy))
        holder, key = rng.choice(places)
        match rng.randrange(6):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.append(deepcopy(rng.choice(_ODD)))
            case 2:
                holder[key] = deepcopy(rng.choice(_ODD))
            case 3 if isinstance(holder[key], int):
                holder[key] += rng.choice((-1, 1, 1 << 60))
            case 4:
                other, where = rng.choice(places)
                holder[key] = deepcopy(other[where])
            case _:
                holder[key] = rng.choice(_NUMBERS)
    return copy


def _places(value: Any) -> Any:
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def _as_json(value: Any, rng: random.Random) -> bytes:
    text = json.dumps(value)
    match rng.randrange(20):
        case 0:
            text = "[" * 100_000
        case 1:
            text = text[:-1] + ', "w": 1, "w": 2}'
        case 2:
            text = text.replace("64", "9" * 5000, 1)
        case 3:
            text = rng.choice(("[]", "null", "1", '"x"', "", "{}", "NaN", "{} {}"))
        case 4:
            text += " " * 50
    return text.encode("utf-8", "surrogatepass")
