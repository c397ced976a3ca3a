"""Which columns of a DataFrame are what, checked; and rows that must lie together put together."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pyspark.sql.functions as F
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegralType,
    NumericType,
)


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a data set; None: there is none."""

    features: str = "features"
    label: str = "label"
    weight: str | None = None
    offset: str | None = None
    group: str | None = None
    event: str | None = None

    @property
    def along(self) -> dict[str, str]:
        """Those that may be missing and are there."""
        names = {one.name: getattr(self, one.name) for one in fields(self)[2:]}
        return {name: column for name, column in names.items() if column is not None}


def select(data: DataFrame, columns: Columns, order: str = "") -> DataFrame:
    """The columns by their own names, types checked, numbers as double.

    Rows of a group, or of one time, are in one partition; times ascend with the partitions.
    """
    chosen = [feature_column(data, columns.features), _number(data, columns.label, "label")]
    for name, column in columns.along.items():
        chosen.append((_group if name == "group" else _number)(data, column, name))
    rows = data.select(*chosen)
    if order == "group":
        return rows.repartition(_partitions(data), "group")
    if order == "time":
        return rows.repartitionByRange(_partitions(data), "label")
    return rows


def _partitions(data: DataFrame) -> int:
    """As many as the data has: a shuffle of rows would make 200, most of them small."""
    return data.rdd.getNumPartitions()


def _group(data: DataFrame, name: str, argument: str) -> Column:
    """A number for each group: an integer itself, of anything else a hash of 64 bits."""
    if isinstance(_type_of(data, name, argument), IntegralType):
        return F.col(name).cast("long").alias(argument)
    hashed = F.when(F.col(name).isNotNull(), F.xxhash64(F.col(name)))  # it hashes null, too
    return hashed.alias(argument)


def feature_column(data: DataFrame, name: str) -> Column:
    """The feature column as ml vectors or array<double>. TypeError for other types."""
    # Not at the top: it loads pandas and all of pyspark.ml, 0.3 s in each new Python worker.
    from pyspark.ml.linalg import VectorUDT

    kind = _type_of(data, name, "features")
    if isinstance(kind, VectorUDT):
        return F.col(name).alias("features")
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType):
        return F.col(name).cast("array<double>").alias("features")
    raise TypeError(
        f"features={name!r} is a column of {kind.simpleString()}; allowed are ml vectors (see "
        "pyspark.ml.feature.VectorAssembler) and arrays of numbers"
    )


def _number(data: DataFrame, name: str, argument: str) -> Column:
    kind = _type_of(data, name, argument)
    if not isinstance(kind, NumericType | BooleanType):
        raise TypeError(
            f"{argument}={name!r} is a column of {kind.simpleString()}; it must hold numbers "
            "(for text see pyspark.ml.feature.StringIndexer)"
        )
    return F.col(name).cast("double").alias(argument)


def _type_of(data: DataFrame, name: str, argument: str) -> DataType:
    absent = ValueError(f"{argument}={name!r}: the data has no such column, only {data.columns}")
    # Spark logs the exceptions of its analysis, so it is asked about paths into structs only.
    if "." not in name and name.strip("`").lower() not in map(str.lower, data.columns):
        raise absent
    try:
        return data.select(F.col(name)).schema[0].dataType
    except AnalysisException as error:
        raise absent from error
