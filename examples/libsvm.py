"""Read and check a LIBSVM file."""

from __future__ import annotations

import bz2
import gzip
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import isfinite
from operator import lt
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_ROW = re.compile(rf"{_NUMBER}(?: +\d+:{_NUMBER})*")
_PAIR = re.compile(rf"\d+:{_NUMBER}")
_INDEX, _VALUE = re.compile(r" (\d+):"), re.compile(r"[^ :]+(?= |$)")
_LARGEST_INDEX = 2**31 - 1
_PAIRS_OF_LABELS = ({0.0, 1.0}, {-1.0, 1.0})


class Survey(NamedTuple):
    """The largest feature index of a file, and the number of rows per label."""

    features: int
    labels: Counter[float]


def survey(path: Path, positive_label: float | None = None) -> Survey:
    """Check the file without Spark, whose errors do not name the line.

    Raises SystemExit with the line of the first invalid row, or with the missing label.
    """
    if not path.is_file():
        raise SystemExit(f"--data {path}: no such file")
    features, labels = 0, Counter[float]()
    for line, text in _lines(path):
        try:
            label, last = _label_and_last_index(text)
        except ValueError as error:
            raise SystemExit(f"--data {path}, line {line}: {error}") from error
        if positive_label is None and not _go_together({label, *labels}):
            raise SystemExit(
                f"--data {path}, line {line}: the label is {label:g}; labels are 0 and 1, or -1 "
                "and 1, unless --positive-label says which one counts as 1"
            )
        labels[label] += 1
        features = max(features, last)
    if reason := _missing(labels, positive_label):
        raise SystemExit(f"--data {path}: {reason}")
    return Survey(max(features, 1), labels)


def read(
    spark: SparkSession, path: Path, features: int, positive_label: float | None = None
) -> tuple[DataFrame, DataFrame]:
    """Return rows ``label, features``: four fifths to train on, and a fixed fifth held out.

    Spark unpacks .bz2 and .gz by their names. ``positive_label`` becomes 1, and other labels 0.
    """
    rows = spark.read.format("libsvm").option("numFeatures", features).load(str(path))
    if positive_label is not None:
        rows = rows.withColumn("label", (F.col("label") == positive_label).cast("double"))
    parts = spark.sparkContext.defaultParallelism
    train, test = rows.repartition(parts).randomSplit([0.8, 0.2], seed=1)
    return train, test


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the rows with their line numbers, without comments, as Spark reads them."""
    opened = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    try:
        with opened(path, "rt", encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                text = line.strip()
                if text and not text.startswith("#"):
                    yield number, text
    except (OSError, EOFError) as error:
        raise SystemExit(f"--data {path}: it cannot be read: {error}") from error


def _label_and_last_index(text: str) -> tuple[float, int]:
    """Return label and last index of a row; ValueError gives the reason if it is invalid."""
    if _ROW.fullmatch(text) is None:
        raise ValueError(_malformed(text))
    label = float(text.partition(" ")[0])
    indices = list(map(int, _INDEX.findall(text)))
    if not all(map(lt, [0, *indices], [*indices, _LARGEST_INDEX + 1])):
        raise ValueError(_disorder(indices))
    if "e" in text.lower() and not all(map(isfinite, map(float, _VALUE.findall(text)))):
        raise ValueError("a number is larger than float64 can hold")
    return label, indices[-1] if indices else 0


def _malformed(text: str) -> str:
    label, *pairs = (part for part in text.split(" ") if part)
    if re.fullmatch(_NUMBER, label) is None:
        return f"the label is {label!r}; it must be a finite number"
    bad = next((pair for pair in pairs if _PAIR.fullmatch(pair) is None), text)
    return f"{bad!r} is not index:value, a whole and a finite number"


def _disorder(indices: list[int]) -> str:
    last, index = next(
        (last, index)
        for last, index in pairwise([0, *indices, _LARGEST_INDEX + 1])
        if last >= index
    )
    if index > _LARGEST_INDEX:
        return f"index {last} is above {_LARGEST_INDEX}"
    return f"index {index} comes after {last}; indices count from 1, and ascend"


def _go_together(labels: set[float]) -> bool:
    return any(labels <= pair for pair in _PAIRS_OF_LABELS)


def _missing(labels: Counter[float], positive_label: float | None) -> str | None:
    """Return the reason if the whole file is unusable, else None."""
    if not labels:
        return "it has no rows"
    have = ", ".join(f"{label:g} ({count:,} rows)" for label, count in sorted(labels.items()))
    if positive_label is not None and positive_label not in labels:
        return f"no row has --positive-label {positive_label:g}; its labels are {have}"
    if len(labels) == 1:
        return f"all rows have one label, {have}; a classifier needs two"
    return None
