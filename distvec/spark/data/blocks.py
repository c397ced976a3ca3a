"""A partition's rows as files, written once by a task and memory-mapped by all later ones.

Spark would ship cached rows to Python again at each job (60 to 200 ms per 100 MiB and core), so a
partition's rows are written once as ``.npy`` files beside Spark's own blocks, which Spark deletes.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from pyspark import SparkFiles

from distvec.losses.matrix_products import ColumnOrderCopy
from distvec.losses.rows import Ints, Matrix, Rows

_ALONG = ("weights", "offsets", "groups", "events")
"""Attributes of ``Rows`` that may be None."""
_BY_COLUMNS = ("values", "rows", "columns", "starts")


class BlockMissing(FileNotFoundError):
    """A partition's files are not where its task runs."""


@dataclass(frozen=True)
class Block:
    """A partition's rows. Column ``k`` of their matrix is the global coordinate ``columns[k]``."""

    columns: Ints
    rows: Rows


def local_columns(indices: npt.NDArray[np.int32], size: int) -> tuple[Ints, npt.NDArray[np.int32]]:
    """The coordinates that occur, sorted, and the place of each of ``indices`` among them.

    With 2.5 million indices a table of ``size`` entries takes 13 ms where sorting takes 0.5 s; it
    is used unless it would be far larger than the data.
    """
    if size > 16 * indices.size + 65_536:
        distinct, local = np.unique(indices, return_inverse=True)
        return distinct.astype(np.int64), local.astype(np.int32)
    touched = np.zeros(size, dtype=bool)
    touched[indices] = True
    columns: Ints = np.flatnonzero(touched)
    place = np.empty(size, dtype=np.int32)
    place[columns] = np.arange(columns.size, dtype=np.int32)
    return columns, place[indices]


def scratch_directory() -> str:
    """Where Spark keeps its own blocks on this machine; it deletes the whole when it stops."""
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return local or SparkFiles.getRootDirectory()


def held_out_path(path: str) -> str:
    """Where the rows are that are held out of those in ``path``."""
    return os.path.join(path, "held-out")


def save(block: Block, path: str) -> None:
    """Write a block as ``.npy`` files into the new directory ``path``."""
    os.makedirs(path)
    rows = block.rows
    arrays: dict[str, npt.NDArray[Any]] = {"columns": block.columns, "labels": rows.labels}
    if isinstance(rows.matrix, np.ndarray):
        arrays["dense"] = rows.matrix
    else:
        arrays["indptr"], arrays["indices"] = rows.matrix.indptr, rows.matrix.indices
        arrays["values"] = rows.matrix.data
    for name in _ALONG:
        if (array := getattr(rows, name)) is not None:
            arrays[name] = array
    if rows.by_columns is not None:
        arrays |= {f"by-columns-{name}": getattr(rows.by_columns, name) for name in _BY_COLUMNS}
    for name, array in arrays.items():
        np.save(os.path.join(path, name + ".npy"), array)


def load(path: str) -> Block:
    """Map the files of ``path`` into memory. BlockMissing if they are on another machine."""
    columns, labels = _map(path, "columns"), _map(path, "labels")
    matrix = _matrix(path, (labels.size, columns.size))
    along: dict[str, Any] = {name: _map(path, name) for name in _ALONG if _has(path, name)}
    return Block(columns, Rows(matrix, labels, by_columns=_by_columns(path, matrix), **along))


def _matrix(path: str, shape: tuple[int, int]) -> Matrix:
    if _has(path, "dense"):
        return _map(path, "dense")
    parts = (_map(path, "values"), _map(path, "indices"), _map(path, "indptr"))
    return sp.csr_array(parts, shape=shape, copy=False)


def _by_columns(path: str, matrix: Matrix) -> ColumnOrderCopy | None:
    if isinstance(matrix, np.ndarray) or not _has(path, "by-columns-values"):
        return None
    return ColumnOrderCopy(matrix, *(_map(path, f"by-columns-{name}") for name in _BY_COLUMNS))


def _has(path: str, name: str) -> bool:
    return os.path.exists(os.path.join(path, name + ".npy"))


def _map(path: str, name: str) -> npt.NDArray[Any]:
    file = os.path.join(path, name + ".npy")
    try:
        return np.asarray(np.load(file, mmap_mode="r"))
    except ValueError:  # an empty array cannot be mapped
        return np.asarray(np.load(file))
    except FileNotFoundError as error:
        raise BlockMissing(path) from error


def remove(directories: list[str]) -> None:
    """Delete the directories that are on this machine."""
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
