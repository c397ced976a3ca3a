"""Make training data without a download: lines of SciPy (label 1) and of PySpark (label 0).

Lines are stripped, and lines with fewer than 8 characters are dropped. Repeated lines count once,
and lines that occur in both packages are dropped, so no held-out line is also in the training rows.
Spark tasks do all the work: the driver holds only names of files.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructField, StructType

from examples.ngrams import Rows, hashed_ngrams

BITS = 20
_SHORTEST_LINE = 8
_FINENESS = 1_000_000  # a line's hash modulo this number decides whether it is sampled or held out
_SCHEMA = StructType([StructField("label", DoubleType()), StructField("features", VectorUDT())])


def source_lines(spark: SparkSession, rows: int | None = None) -> DataFrame:
    """Return about ``rows`` distinct lines of the two packages, or all, as ``line, label``; cached.

    The sample and its order depend only on the text.
    """
    files = [(path, 1.0) for path in python_files("scipy")]
    files += [(path, 0.0) for path in python_files("pyspark")]
    listed = spark.createDataFrame(files, "path string, label double")
    partitions = 4 * spark.sparkContext.defaultParallelism
    lines = (
        listed.repartition(partitions, "path")
        .mapInArrow(_read_lines, "line string, label double")
        .groupBy("line")
        .agg(F.min("label").alias("label"), F.max("label").alias("highest"))
        .where("label = highest")
        .select("line", "label")
        .sortWithinPartitions("line")
        .cache()
    )
    total = lines.count()
    if rows is None or rows >= total:
        return lines
    return lines.where(_place("sample") < int(_FINENESS * rows / total))


def split(lines: DataFrame, held_out: float = 0.2) -> tuple[DataFrame, DataFrame]:
    """Return the lines to train on and the held-out lines; the hash of a line decides."""
    border = int(_FINENESS * held_out)
    return lines.where(_place("split") >= border), lines.where(_place("split") < border)


def features(lines: DataFrame) -> DataFrame:
    """Return ``label, features``: hashed n-grams of 3 to 5 characters as sparse ML vectors."""
    return lines.select("line", "label").mapInArrow(_to_vectors, _SCHEMA)


def python_files(package: str) -> list[str]:
    """Return the sorted ``.py`` files of an installed package, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"no package {package!r} to read; pip install {package}")
    root = Path(spec.submodule_search_locations[0])
    return sorted(str(path) for path in root.rglob("*.py"))


def stripped_lines(text: str) -> list[str]:
    """Return the stripped lines of a file that are long enough."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if len(line) >= _SHORTEST_LINE]


def _read_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path, label in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            lines = stripped_lines(Path(path).read_text(encoding="utf-8", errors="replace"))
            columns = [pa.array(lines, pa.string()), pa.array(np.full(len(lines), label))]
            yield pa.RecordBatch.from_arrays(columns, names=["line", "label"])


def _to_vectors(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = hashed_ngrams(*text_and_offsets(batch.column("line")), bits=BITS)
        columns = [batch.column("label"), ml_vectors(rows, 1 << BITS)]
        yield pa.RecordBatch.from_arrays(columns, names=["label", "features"])


def text_and_offsets(strings: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 bytes of an Arrow column of strings, and their offsets, without a copy."""
    _, offsets, text = strings.buffers()
    window = slice(strings.offset, strings.offset + len(strings) + 1)
    where = np.frombuffer(offsets, dtype=np.int32)[window] if len(strings) else np.zeros(1)
    data = np.empty(0, np.uint8) if text is None else np.frombuffer(text, dtype=np.uint8)
    return data, where.astype(np.int64)


def ml_vectors(rows: Rows, size: int) -> pa.StructArray:
    """Build an Arrow column of Spark's ``VectorUDT``: (0 for sparse, size, indices, values)."""
    count = rows.starts.size - 1
    starts = pa.array(rows.starts.astype(np.int32))
    columns = {
        "type": pa.array(np.zeros(count, dtype=np.int8)),
        "size": pa.array(np.full(count, size, dtype=np.int32)),
        "indices": pa.ListArray.from_arrays(starts, pa.array(rows.indices)),
        "values": pa.ListArray.from_arrays(starts, pa.array(rows.values)),
    }
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def _place(purpose: str) -> F.Column:
    return F.pmod(F.xxhash64("line", F.lit(purpose)), F.lit(_FINENESS))
