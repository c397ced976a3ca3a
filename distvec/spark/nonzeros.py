"""The non-zeros of a vector, as Parquet or as text, for programs that know nothing of us."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from distvec import DistArray, Session
from distvec.array.core.conversion import blocks
from distvec.durability.save_plan import bar_of
from ps_backend.arguments import check_choice
from ps_backend.durability.stores import Store, open_store
from ps_backend.errors import CheckpointIncomplete, Corrupted
from ps_backend.program.types import dtype_of

_SUCCESS = "_SUCCESS"
"""Spark's name of what is written last; it passes over names that begin so."""
_SLOTS = 1 << 21
"""So many elements' non-zeros go to one file, through the driver."""


def save_nonzeros(
    path: str | os.PathLike[str],
    x: DistArray | npt.ArrayLike,
    *,
    format: str = "parquet",
    progress: bool = False,
) -> None:
    """Write the non-zeros of a vector to a folder of part files, which Spark can read.

    Parameters
    ----------
    path : str or path
        A new folder, or a URL that fsspec supports.
    x : DistArray or array_like, (n,)
        The vector. Its elements pass through this process, some MiB at a time.
    format : {"parquet", "text"}, default "parquet"
        ``"parquet"`` has columns ``index`` (int64, from 0) and ``value``. ``"text"`` has lines
        ``index:value`` with indices from 1, as LIBSVM counts features.
    progress : bool, default False
        Whether to show a progress bar.

    Raises
    ------
    FileExistsError
        If the folder is not empty.
    ValueError
        If ``x`` is not a vector.

    See Also
    --------
    load_nonzeros : Read it.

    Notes
    -----
    The file ``_SUCCESS``, written last, contains length and dtype.

    Examples
    --------
    >>> from distvec.spark import load_nonzeros, save_nonzeros
    >>> save_nonzeros("weights", ps.array([0.0, 1.5, 0.0, -2.0]))
    >>> load_nonzeros("weights")
    array([ 0. ,  1.5,  0. , -2. ])
    """
    check_choice(format, tuple(_WRITERS), "format")
    vector = x if isinstance(x, DistArray) else np.asarray(x)
    if vector.ndim != 1:
        raise ValueError(f"save_nonzeros needs a vector, got the shape {vector.shape}")
    store = open_store(path)
    if store.names():
        raise FileExistsError(f"{store.url} is not empty; write to another folder")
    written: list[str] = []
    try:
        with bar_of("save_nonzeros", vector.nbytes, shown=progress) as bar:
            for number, (start, values) in enumerate(_pieces(vector)):
                found = np.flatnonzero(values)
                if len(found):
                    name = f"part-{number:05d}.{_SUFFIXES[format]}"
                    content = _WRITERS[format](found + start, values[found])
                    store.write(name, [content])
                    written.append(name)
                bar.update(values.nbytes)
        about = {"format": format, "length": len(vector), "dtype": vector.dtype.name}
        store.write(_SUCCESS, [json.dumps(about).encode()])
    except BaseException:
        for name in written:
            store.delete(name)
        raise


def load_nonzeros(
    path: str | os.PathLike[str],
    session: Session | None = None,
    *,
    length: int | None = None,
    progress: bool = False,
) -> Any:
    """Read a vector that ``save_nonzeros`` or Spark wrote as non-zeros.

    Parameters
    ----------
    path : str or path
        The folder, or a URL that fsspec supports.
    session : Session, optional
        The session whose servers get the vector. By default the result is a NumPy array.
    length : int, optional
        The length of the vector. By default the saved length, or the largest index plus 1.
    progress : bool, default False
        Whether to show a progress bar.

    Returns
    -------
    DistArray or array, (n,)
        The vector.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist or is empty.
    CheckpointIncomplete
        If the folder has no ``_SUCCESS``.
    Corrupted
        If files are damaged.

    See Also
    --------
    save_nonzeros : Write a vector.

    Notes
    -----
    With a session, each file takes one request to each server.

    Examples
    --------
    >>> from distvec.spark import load_nonzeros, save_nonzeros
    >>> save_nonzeros("weights", np.array([0.0, 1.5]), format="text")
    >>> load_nonzeros("weights", ps)
    DistArray([0. , 1.5], dtype=float64, shape=(2,))
    """
    store = open_store(path)
    try:
        names = store.names()
    except NotADirectoryError:
        raise ValueError(f"{store.url} is a file; pass the folder that contains it") from None
    if not names:
        raise FileNotFoundError(
            f"{store.url} does not exist or is empty; pass a folder that save_nonzeros wrote"
        )
    if _SUCCESS not in names:
        raise CheckpointIncomplete(
            f"{store.url} has no {_SUCCESS}: writing it was interrupted; write it again"
        )
    about = json.loads(_read_content(store, _SUCCESS) or b"{}")
    files = [name for name in names if not name.startswith(("_", "."))]
    dtype = dtype_of(about.get("dtype", "float64"))
    if length is None:
        length = about.get("length")
    if length is None:
        each = _read_all(store, files, dtype)
        length = 1 + max((int(some.max()) for some, _ in each if len(some)), default=-1)
    wide = np.dtype(np.uint8) if dtype.kind == "b" else dtype
    result: Any = np.zeros(length, wide) if session is None else session.zeros(length, wide)
    with bar_of("load_nonzeros", sum(map(store.size, files)), shown=progress) as bar:
        for (indices, values), name in zip(_read_all(store, files, dtype), files, strict=True):
            if len(indices) and not 0 <= indices.min() <= indices.max() < length:
                raise Corrupted(f"{store.url}/{name} has indices beyond the {length} elements")
            if session is None:
                result[indices] = values.astype(wide)
            elif len(indices):
                result.push(indices, values.astype(wide))
            bar.update(store.size(name))
    return result.astype(dtype)


def _pieces(vector: Any) -> Iterator[tuple[int, np.ndarray]]:
    """Elements in order, with the index of the first."""
    if isinstance(vector, DistArray):
        for number, values in enumerate(blocks(vector, _SLOTS)):
            yield number * _SLOTS, values
    else:
        for start in range(0, len(vector), _SLOTS):
            yield start, vector[start : start + _SLOTS]


# --- formats ------------------------------------------------------------------------------------


def _as_parquet(indices: np.ndarray, values: np.ndarray) -> memoryview:
    sink = io.BytesIO()
    table = pa.table({"index": indices, "value": values})
    pq.write_table(table, sink, write_page_checksum=True)
    return sink.getbuffer()


def _as_text(indices: np.ndarray, values: np.ndarray) -> memoryview:
    sink = io.BytesIO()
    shown = values.astype(_text_dtype(values.dtype))
    options = csv.WriteOptions(include_header=False, delimiter=":")
    csv.write_csv(pa.table({"index": indices + 1, "value": shown}), sink, options)
    return sink.getbuffer()


def _text_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """In what values of ``dtype`` stand in a text: Arrow's has no halves, and words for bools."""
    others = {"float16": "float32", "bool": "uint8"}
    return np.dtype(others.get(dtype.name, dtype.name))


_WRITERS: dict[str, Callable[[np.ndarray, np.ndarray], memoryview]] = {
    "parquet": _as_parquet,
    "text": _as_text,
}
_SUFFIXES = {"parquet": "parquet", "text": "txt"}


def _read_all(
    store: Store, files: list[str], dtype: np.dtype[Any]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for name in files:
        try:
            content = _read_content(store, name)
            is_table = name.endswith(".parquet")
            yield _from_parquet(content) if is_table else _from_text(content, dtype)
        except (pa.ArrowException, OSError) as error:
            raise Corrupted(f"{store.url}/{name} cannot be read: {error}") from None


def _from_parquet(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    reader = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
    table = reader.read(columns=["index", "value"])
    return table["index"].to_numpy(), table["value"].to_numpy()


def _from_text(content: bytes, dtype: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray]:
    if not content:
        return np.zeros(0, np.int64), np.zeros(0)
    types = {"index": pa.int64(), "value": pa.from_numpy_dtype(_text_dtype(dtype))}
    table = csv.read_csv(
        pa.BufferReader(content),
        read_options=csv.ReadOptions(column_names=["index", "value"]),
        parse_options=csv.ParseOptions(delimiter=":"),
        convert_options=csv.ConvertOptions(null_values=[], column_types=types),
    )
    return table["index"].to_numpy() - 1, table["value"].to_numpy()


def _read_content(store: Store, name: str) -> bytes:
    data = bytearray(store.size(name))
    store.read(name, 0, memoryview(data))
    return bytes(data)
