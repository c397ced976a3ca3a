"""Files of rows for the command line: libsvm, csv, tsv and Parquet.

An error names the file, and the line or the row that is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Floats = npt.NDArray[np.float64]

FORMATS = ("libsvm", "csv", "tsv", "parquet")

_SUFFIXES = {
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
    ".txt": "libsvm",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}


class Table(NamedTuple):
    """Rows of a file; ``names`` are those of the features, if they have names."""

    matrix: Any
    labels: Floats
    weights: Floats | None
    names: list[str] | None


def read_rows(options: argparse.Namespace, columns: Sequence[str] | None = None) -> Table:
    """The rows; of ``columns`` if a model knows their names."""
    kind = format_of(options)
    if kind == "libsvm":
        lines, where = _lines(options.data), f"{options.data}: line "
        table, numbers = _libsvm(lines, options.index_base, options.num_features, options.data)
    elif kind == "parquet":
        names, values = _parquet(options.data)
        where = f"{options.data}: row "
        table = _columns_of(names, values, options, columns)
        numbers = range(1, 1 + len(table.labels))
    else:
        names, values, numbers = _text(options.data, "," if kind == "csv" else "\t")
        where = f"{options.data}: line "
        table = _columns_of(names, values, options, columns)
    _check(table, numbers, where)
    if options.command != "predict":
        _check_labels(table.labels, numbers, where)
    return table


def format_of(options: argparse.Namespace) -> str:
    """The format of the data, by option or suffix."""
    if options.format is not None:
        return str(options.format)
    if options.data == "-":
        return "libsvm"
    suffix = Path(options.data).suffix.lower()
    if suffix not in _SUFFIXES:
        raise ValueError(
            f"--data {options.data}: the suffix {suffix!r} names no format; give --format "
            "libsvm, csv, tsv or parquet"
        )
    return _SUFFIXES[suffix]


def _lines(path: str) -> list[str]:
    """The lines of a text; ``-`` is standard input."""
    text = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        return text.decode().split("\n")
    except UnicodeDecodeError as error:
        number = 1 + text.count(b"\n", 0, error.start)
        raise ValueError(
            f"{path}: line {number}: is no text; unpack the file, or give its --format"
        ) from None


def _rows_of(lines: Iterable[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Of each libsvm row the number of its line, the label and the pairs."""
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words:
            yield number, words[0], words[1:]


def _libsvm(
    lines: Sequence[str], base: int, features: int | None, path: str
) -> tuple[Table, Sequence[int]]:
    """The rows, and the number of each one's line."""
    labels, counts, words, numbers = [], [], [], []
    for number, label, pairs in _rows_of(lines):
        if not _is_number(label):
            raise ValueError(f"{path}: line {number}: {label!r} is no label")
        labels.append(float(label))
        counts.append(len(pairs))
        numbers.append(number)
        words += pairs
    try:
        table = np.array([word.split(":") for word in words] or np.zeros((0, 2)), np.float64)
    except ValueError:
        raise _wrong_pair(lines, path) from None
    if table.shape[1:] != (2,) or (table[:, 0] % 1.0 != 0.0).any():
        raise _wrong_pair(lines, path)
    places, ends = table[:, 0].astype(np.int64) - base, np.concatenate([[0], np.cumsum(counts)])
    most = np.inf if features is None else features
    for wrong in np.flatnonzero((places < 0) | (places >= most))[:1]:
        number = numbers[int(np.searchsorted(ends, wrong, side="right")) - 1]
        index = places[wrong] + base
        if places[wrong] < 0:
            reason = f"the index {index} is below {base}; give --index-base 0"
            reason = reason if base else f"the index {index} is below 0"
        else:
            reason = f"feature {index} is beyond --num-features {features}"
        raise ValueError(f"{path}: line {number}: {reason}")
    width = int(places.max(initial=-1)) + 1 if features is None else features
    matrix = sp.csr_array((table[:, 1], places, ends), shape=(len(labels), width))
    return Table(matrix, np.array(labels), None, None), numbers


def _wrong_pair(lines: Sequence[str], path: str) -> ValueError:
    """The error of the first element that is no pair of an index and a number."""
    for number, _, pairs in _rows_of(lines):
        for pair in pairs:
            index, _, value = pair.partition(":")
            if not (index.lstrip("+-").isdigit() and _is_number(value)):
                return ValueError(
                    f"{path}: line {number}: {pair!r} is no index:value, such as 3:0.5"
                )
    return ValueError(f"{path}: features must be index:value, such as 3:0.5")


def _text(path: str, delimiter: str) -> tuple[list[str], dict[str, Any], list[int]]:
    """The names of the columns, their numbers, and the number of each row's line."""
    lines = _lines(path)
    numbers = [number for number, line in enumerate(lines, 1) if line.partition("#")[0].strip()]
    if not numbers:
        raise ValueError(f"{path}: has no rows")
    first = _words(lines[numbers[0] - 1], delimiter)
    has_header = not all(map(_is_number, first))
    names = first if has_header else ["label", *(str(place) for place in range(1, len(first)))]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path}: line {numbers[0]}: repeats the column {repeated[0]!r}")
    numbers = numbers[int(has_header) :]
    rows = [lines[number - 1] for number in numbers]
    if not rows:
        raise ValueError(f"{path}: has no rows after the header")
    try:
        table = np.loadtxt(rows, delimiter=delimiter, ndmin=2, quotechar='"')
        if table.shape[1] != len(names):
            raise _wrong_line(rows, numbers, names, delimiter, path)
    except ValueError:
        raise _wrong_line(rows, numbers, names, delimiter, path) from None
    return names, dict(zip(names, table.T, strict=True)), numbers


def _words(line: str, delimiter: str) -> list[str]:
    return [word.strip().strip('"') for word in line.partition("#")[0].split(delimiter)]


def _wrong_line(
    rows: Sequence[str], numbers: Sequence[int], names: Sequence[str], delimiter: str, path: str
) -> ValueError:
    """The error of the first line that does not have a number for each name."""
    for number, row in zip(numbers, rows, strict=True):
        words = _words(row, delimiter)
        if len(words) != len(names):
            return ValueError(
                f"{path}: line {number}: has {len(words)} columns, the first line {len(names)}"
            )
        for name, word in zip(names, words, strict=True):
            if not _is_number(word):
                return ValueError(f"{path}: line {number}: {name} is {word!r}; must be a number")
    return ValueError(f"{path}: is no table of numbers")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _parquet(path: str) -> tuple[list[str], dict[str, Any]]:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise ValueError(f"{path}: Parquet files need pyarrow; type pip install pyarrow") from None
    try:
        table = parquet.read_table(path)
    except ValueError as error:  # ArrowInvalid is one
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path}: is no Parquet file: {reason}") from None
    columns = {}
    for name in table.column_names:
        values = table[name].combine_chunks()
        if hasattr(values, "flatten") and str(values.type).startswith(
            ("list", "fixed_size_list", "large_list")
        ):
            flat = np.asarray(values.flatten())
            if values.null_count or len(flat) % max(1, len(values)):
                raise ValueError(f"{path}: the lists of {name} have different lengths")
            columns[name] = flat.reshape(len(values), -1)
        else:
            columns[name] = values.to_numpy(zero_copy_only=False)
    return list(columns), columns


def _columns_of(
    names: list[str],
    values: Mapping[str, Any],
    options: argparse.Namespace,
    columns: Sequence[str] | None,
) -> Table:
    for flag, name in (("--label-col", options.label_col), ("--weight-col", options.weight_col)):
        if name is not None and name not in values and (flag == "--weight-col" or columns is None):
            raise ValueError(
                f"{flag} {name!r} is not in {options.data}; columns: {', '.join(names)}"
            )
    others = [name for name in names if name not in (options.label_col, options.weight_col)]
    chosen = others if columns is None else list(columns)
    if missing := [name for name in chosen if name not in values]:
        raise ValueError(f"{options.data} lacks the columns {', '.join(missing)} of the model")
    if not chosen:
        raise ValueError(f"{options.data}: has no columns of features")
    numbers = {name: _numbers(name, values[name], options.data) for name in chosen}
    matrix = np.column_stack(list(numbers.values()))
    labels = np.full(len(matrix), np.nan)
    if options.label_col in values:
        labels = _numbers(options.label_col, values[options.label_col], options.data)
    weights = None
    if options.weight_col is not None:
        weights = _numbers(options.weight_col, values[options.weight_col], options.data)
    return Table(matrix, labels, weights, chosen)


def _numbers(name: str, values: Any, path: str) -> Floats:
    try:
        return np.asarray(values).astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{path}: the column {name} has the type {np.asarray(values).dtype}; must be numbers"
        ) from None


def _check(table: Table, numbers: Sequence[int], where: str) -> None:
    """ValueError unless there are rows, and their features and weights are finite."""
    if not len(numbers):
        raise ValueError(f"{where.rpartition(': ')[0]}: has no rows")
    if isinstance(table.matrix, np.ndarray):
        bad = np.flatnonzero(~np.isfinite(table.matrix).all(axis=1))
    else:
        places = np.flatnonzero(~np.isfinite(table.matrix.data))
        bad = np.searchsorted(table.matrix.indptr, places, side="right") - 1
    for row in bad[:1]:
        raise ValueError(
            f"{where}{numbers[row]}: a feature is NaN or infinite; fill it in, or leave the row out"
        )
    weights = np.zeros(0) if table.weights is None else table.weights
    for row in np.flatnonzero(~((weights >= 0.0) & np.isfinite(weights)))[:1]:
        raise ValueError(f"{where}{numbers[row]}: the weight is {weights[row]}; must be 0 or more")


def _check_labels(labels: Floats, numbers: Sequence[int], where: str) -> None:
    """ValueError unless all are finite, or all are NaN, because the file has none."""
    if np.isnan(labels).all():
        return
    for row in np.flatnonzero(~np.isfinite(labels))[:1]:
        raise ValueError(f"{where}{numbers[row]}: the label is {labels[row]}; must be a number")
