"""Which columns of a DataFrame are what, checked; and rows that must lie together put together."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyspark.sql.functions as F
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegralType,
    NumericType,
    StringType,
)

from distvec.losses.loss import Loss, PhasedLoss
from distvec.spark.jobs.application import most_slots
from distvec.spark.task_session import TaskSession

_MOST_NAMED = 20
"""Columns in a message."""

_ENTRIES = "struct<size:int,indices:array<int>,values:array<double>>"
"""The type of rows whose zeros and repetitions count, as ``entry_rows`` makes them."""

_JOIN_HINT = "; pyspark.ml.feature.VectorAssembler joins vectors and numbers"


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a data set; None: there is none."""

    features: str | tuple[str, ...] = "features"
    label: str | None = "label"
    weight: str | None = None
    offset: str | None = None
    group: str | None = None
    event: str | None = None
    held_out: str | None = None
    """1 for rows that do not train, 0 for the others."""
    with_missing: bool = False
    """Whether features may be NaN, or null among others."""
    as_table: bool = False
    """Whether rows are kept as tables with all features."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Those of the columns that are put together; empty if the features are one column."""
        return () if isinstance(self.features, str) else self.features

    @property
    def along(self) -> dict[str, str]:
        """Those that may be missing and are there."""
        names = {one.name: getattr(self, one.name) for one in fields(self)[2:-2]}
        return {name: column for name, column in names.items() if column is not None}


def select_columns(
    data: DataFrame, columns: Columns, order: str = "", partitions: int | None = None
) -> DataFrame:
    """The columns by their own names, types checked, numbers as double.

    Rows of a group, or of one time, are in one partition; times ascend with the partitions. Their
    number is that of the data unless ``partitions`` is given.
    """
    chosen = [feature_column(data, columns.features)]
    if columns.label is not None:
        chosen.append(number_column(data, columns.label, "label"))
    for name, column in columns.along.items():
        chosen.append((_group if name == "group" else number_column)(data, column, name))
    rows = data.select(*chosen)
    if order == "group":
        few = in_few_partitions(rows) if partitions is None else rows
        return few.repartition(partitions or _partitions(data), "group")
    if order == "time":
        return rows.repartitionByRange(partitions or _partitions(data), "label")
    return rows


def join_partitions(rows: DataFrame, tasks: int | None) -> DataFrame:
    """The rows in so many partitions at most, without a shuffle; None: in as many as they have.

    The new column ``partition`` has the number of the partition that a row was in. Rows of one
    partition stay together, in their order.
    """
    numbered = rows.select(F.spark_partition_id().alias("partition"), "*")
    plan = numbered._jdf.queryExecution().optimizedPlan()
    if plan.getClass().getSimpleName() == "LocalRelation":  # which would have them all in one
        frame = rows.sparkSession._jsparkSession.createDataFrame(
            rows._jdf.javaRDD(), rows._jdf.schema()
        )
        numbered = DataFrame(frame, rows.sparkSession).select(
            F.spark_partition_id().alias("partition"), "*"
        )
    return numbered if tasks is None else numbered.coalesce(tasks)


def in_few_partitions(rows: DataFrame) -> DataFrame:
    """The rows in as many partitions as Spark runs tasks at a time, or fewer, without a shuffle.

    A frame that was shuffled and cached has 200: a job over them takes seconds, however few the
    rows are.
    """
    tasks = most_slots(rows.sparkSession.sparkContext)
    if tasks is None:
        return rows
    # Spark leaves out a coalesce right below a shuffle; a condition on the partition it keeps.
    return rows.coalesce(tasks).where(F.spark_partition_id() >= 0)


def _partitions(data: DataFrame) -> int:
    """As many as the data has: a shuffle of rows would make 200, most of them small."""
    return data.rdd.getNumPartitions()


def _group(data: DataFrame, name: str, argument: str) -> Column:
    """A number for each group: an integer itself, of anything else a hash of 64 bits."""
    column, kind = find_column(data, name, argument)
    if isinstance(kind, IntegralType):
        return column.cast("long").alias(argument)
    hashed = F.when(column.isNotNull(), F.xxhash64(column))  # it hashes null, too
    return hashed.alias(argument)


def feature_names(names: str | Sequence[str]) -> str | tuple[str, ...]:
    """The name of the feature column, or those of several columns of numbers, in their order.

    TypeError or ValueError for anything else.
    """
    if isinstance(names, str):
        return names
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"features={names!r}; give the name of a column of vectors or arrays, or a list of "
            "names of columns of numbers"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if not names or twice:
        what = f"{twice[0]!r} twice" if twice else "no column"
        raise ValueError(f"features={names!r} names {what}")
    return tuple(names)


def feature_column(data: DataFrame, names: str | Sequence[str]) -> Column:
    """The features as ml vectors or array<double>: one column, or several columns of numbers.

    TypeError for other types.
    """
    # Not at the top: it loads pandas and all of pyspark.ml, 0.3 s in each new Python worker.
    from pyspark.ml.linalg import VectorUDT

    names = feature_names(names)
    if not isinstance(names, str) and len(names) > 1:
        numbers = [_feature_number(data, name) for name in names]
        return F.array(*numbers).alias("features")
    (name,) = (names,) if isinstance(names, str) else names
    column, kind = find_column(data, name, "features")
    if isinstance(kind, VectorUDT):
        return _unwrapped(column).alias("features")
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType):
        return column.cast("array<double>").alias("features")
    if kind.simpleString() == _ENTRIES:
        return column.alias("features")
    if not isinstance(names, str) and isinstance(kind, NumericType | BooleanType):
        return F.array(column.cast("double")).alias("features")
    hint = f"; of one column of numbers write features=[{name!r}]"
    raise TypeError(
        f"features={name!r} is a column of {kind.simpleString()}; allowed are ml vectors (see "
        "pyspark.ml.feature.VectorAssembler), arrays of numbers, and a list of columns of numbers"
        f"{hint if isinstance(kind, NumericType | BooleanType) else _text_hint(kind)}"
    )


def _unwrapped(vectors: Column) -> Column:
    """Vectors as the structs that they are made of, with empty lists for null ones.

    Dense vectors have no indices, and Spark takes 7 us to write a null list into an Arrow batch.
    """
    parts = F.unwrap_udt(vectors)
    struct = F.struct(
        parts["type"].alias("type"),
        parts["size"].alias("size"),
        F.coalesce(parts["indices"], F.array().cast("array<int>")).alias("indices"),
        parts["values"].alias("values"),
    )
    return F.when(vectors.isNotNull(), struct)


def _feature_number(data: DataFrame, name: str) -> Column:
    column, kind = find_column(data, name, "features")
    if not isinstance(kind, NumericType | BooleanType):
        raise TypeError(
            f"features=[..., {name!r}, ...]: this is a column of {kind.simpleString()}; several "
            "columns must hold a number each"
            f"{_text_hint(kind) or _JOIN_HINT}"
        )
    return column.cast("double")


def number_column(data: DataFrame, name: str, argument: str) -> Column:
    """A column of numbers as double, named like the argument that gives its name."""
    column, kind = find_column(data, name, argument)
    if not isinstance(kind, NumericType | BooleanType):
        raise TypeError(
            f"{argument}={name!r} is a column of {kind.simpleString()}; it must hold numbers"
            f"{_text_hint(kind)}"
        )
    return column.cast("double").alias(argument)


def _text_hint(kind: DataType) -> str:
    return " (for text see pyspark.ml.feature.StringIndexer)" * isinstance(kind, StringType)


def find_column(data: DataFrame, name: str, argument: str) -> tuple[Column, DataType]:
    """The column of that name, a dot in which may also be a path into a struct, and its type."""
    if not isinstance(name, str):
        raise TypeError(f"{argument}={name!r}; give the name of a column")
    is_quoted = len(name) > 2 and name[0] == name[-1] == "`"
    plain = name[1:-1].replace("``", "`") if is_quoted else name
    # Spark logs the exceptions of its analysis, so it is asked about paths into structs only.
    found = [field for field in data.schema.fields if field.name.lower() == plain.lower()]
    if found and data.sparkSession.conf.get("spark.sql.caseSensitive") == "true":
        found = [field for field in found if field.name == plain]
    if len(found) > 1:
        raise ValueError(
            f"{argument}={name!r}: the data has {len(found)} columns of that name, as after a "
            f"join; drop all but one, data.drop(other[{plain!r}]), rename them before the "
            "join, or join by names: data.join(other, on=['key'])"
        )
    if found:
        quoted = found[0].name.replace("`", "``")
        return F.col(f"`{quoted}`"), found[0].dataType
    try:
        if "." in plain:
            return F.col(name), data.select(F.col(name)).schema[0].dataType
    except AnalysisException:
        pass
    near = difflib.get_close_matches(plain, data.columns, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    names = data.columns[:_MOST_NAMED]
    more = f" and {len(data.columns) - len(names)} more" if len(data.columns) > len(names) else ""
    raise ValueError(f"{argument}={name!r}: the data has no such column, only {names}{more}{hint}")


def check_data(data: DataFrame, ps: TaskSession) -> None:
    """TypeError or ValueError for what is no DataFrame of the Spark application of ``ps``."""
    if not hasattr(data, "sparkSession"):
        module, name = type(data).__module__.partition(".")[0], type(data).__name__
        shown = name if module == "builtins" else f"{module}.{name}"
        in_memory = isinstance(data, tuple | list | np.ndarray)
        raise TypeError(
            f"data is {shown}; it must be a Spark DataFrame: spark.createDataFrame(data)"
            + "; rows in memory: distvec.losses.Objective((X, y), loss=...)" * in_memory
        )
    if data.sparkSession.sparkContext is not ps.spark_context:
        raise ValueError("the data belongs to another SparkContext than the PSContext")


def check_columns(loss: Loss, columns: Columns) -> None:
    """Refuse columns that the loss has no use for, and the lack of one that it needs."""
    if loss._needs_labels and columns.label is None:
        raise ValueError(f"label=None: {loss} needs labels; name their column: label=...")
    if loss.order == "group" and columns.group is None:
        raise ValueError(f"{loss} ranks within groups; name their column: group=...")
    if loss.order != "group" and columns.group is not None:
        raise ValueError(f"group={columns.group!r}: {loss} has no groups; leave it out")
    if not loss.takes_events and columns.event is not None:
        raise ValueError(f"event={columns.event!r}: {loss} has no times; leave it out")
    if columns.held_out is not None and isinstance(loss, PhasedLoss):
        raise ValueError(
            f"held_out={columns.held_out!r}: {loss} compares each row with all others; filter the "
            "rows before"
        )
