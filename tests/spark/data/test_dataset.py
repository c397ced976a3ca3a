"""Building blocks inside Spark: what is known afterwards, and what is refused."""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import Row, functions
from pyspark.sql.types import DoubleType, StructType

from distvec.losses.labels import Signs
from distvec.spark.data.blocks import load
from distvec.spark.data.build import Descriptor
from distvec.spark.data.columns import Columns, feature_names, join_partitions, select_columns
from distvec.spark.data.dataset import Dataset, needs_moving
from distvec.spark.jobs.application import is_local
from distvec.spark.jobs.interpreter import use_workers_of_sql

pytestmark = pytest.mark.spark

X = Vectors.dense([1.0, 2.0])


def dataset(spark, partitions, weight=None, positive_label=None, schema=None):
    """A Dataset with exactly these partitions of ``(features, label[, weight])``."""
    names = ["features", "label", "weight"]
    flat = [Row(**dict(zip(names, row, strict=False))) for part in partitions for row in part]
    kinds = spark.createDataFrame(
        flat or [Row(features=X, label=0.0)], schema, samplingRatio=1.0
    ).schema
    starts = np.cumsum([0] + [len(part) for part in partitions])
    parts = [flat[a:b] for a, b in itertools.pairwise(starts)]
    rdd = spark.sparkContext.parallelize(parts, len(parts)).flatMap(lambda part: part)
    frame = spark.createDataFrame(rdd, kinds)
    return Dataset(frame, Columns(weight=weight), Signs(positive_label))


def rows_of(descriptors):
    """Partition, and each row as a dense list, read from the files."""
    for one in map(Descriptor._make, descriptors):
        if one.rows:
            block = load(one.path)
            matrix = block.rows.matrix
            table = np.zeros((one.rows, one.features))
            table[:, block.columns] = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
            yield one.partition, table.tolist(), block.rows.labels.tolist()


def test_mixed_rows_and_empty_partitions(spark):
    data = dataset(
        spark,
        [
            [],
            [(Vectors.sparse(3, [0, 2], [1.0, 2.0]), 1.0), (Vectors.dense([0.0, 5.0, 0.0]), 0.0)],
            [],
            [(Vectors.sparse(3, [], []), 0.0)],
        ],
    )
    assert (data.rows, data.size, data.nnz, data.weight_sum) == (3, 3, 3, 3.0)
    (one, rows, labels), other = data.run(rows_of)
    # The rows of a block have an order of their own.
    assert (one, sorted(zip(rows, labels, strict=True))) == (
        1,
        [([0.0, 5.0, 0.0], -1.0), ([1.0, 0.0, 2.0], 1.0)],
    )
    assert other == (3, [[0.0, 0.0, 0.0]], [-1.0])
    data.close()


def test_weights_and_a_positive_label(spark):
    data = dataset(spark, [[(X, 1, 0.5)], [(X, 2, 2.0)]], weight="weight", positive_label=1.0)
    assert data.weight_sum == 2.5
    assert [labels for _, _, labels in data.run(rows_of)] == [[1.0], [-1.0]]
    data.close()


def test_dense_vectors_come_without_null_lists(spark):
    """Spark is slow to write them."""
    rows = [(Vectors.dense(1.0, 2.0), 1.0), (Vectors.sparse(2, [1], [3.0]), 0.0), (None, 0.0)]
    rows = [(Vectors.dense(1.0, 2.0), 1.0), (Vectors.sparse(2, [1], [3.0]), 0.0), (None, 0.0)]
    schema = StructType().add("features", VectorUDT()).add("label", DoubleType())
    data = spark.createDataFrame(rows, schema).coalesce(1)

    def nulls(batches):
        for batch in batches:
            features = batch.column("features")
            parts = (features.field(name).null_count for name in ("indices", "values"))
            yield pa.RecordBatch.from_pydict(
                {"nulls": [[features.null_count, *parts]], "rows": [batch.num_rows]}
            )

    found = select_columns(data, Columns()).mapInArrow(nulls, "nulls array<long>, rows long")
    ((counts, size),) = found.collect()
    assert size == 3
    assert counts == [1, 1, 1]  # of the row that is null


def test_arrays_of_numbers(spark):
    data = dataset(spark, [[([1.0, 0.0], True), ([0.0, 2.0], False)]])
    assert data.run(rows_of) == [(0, [[1.0, 0.0], [0.0, 2.0]], [1.0, -1.0])]
    data.close()


def test_close_removes_the_files_and_refuses_later_use(spark):
    data = dataset(spark, [[(X, 1.0)]])
    [path] = data.run(lambda rows: [row.path for row in rows])
    assert os.path.isdir(path)
    data.close()
    data.close()
    assert not os.path.exists(os.path.dirname(path))
    with pytest.raises(ValueError, match="the data was closed"):
        data.run(rows_of)


def test_files_go_with_the_last_reference(spark):
    data = dataset(spark, [[(X, 1.0)]])
    [path] = data.run(lambda rows: [row.path for row in rows])
    del data
    assert not os.path.exists(path)


def test_rebuilt_after_its_files_are_gone(spark):
    data = dataset(spark, [[(X, 1.0)], [(X, 0.0)]])
    before = data.run(lambda rows: [row.path for row in rows])
    data.rebuild()
    after = data.run(lambda rows: [row.path for row in rows])
    assert not set(before) & set(after)
    assert [labels for _, _, labels in data.run(rows_of)] == [[1.0], [-1.0]]
    data.close()


def test_joined_partitions_keep_their_rows_and_their_numbers(spark):
    numbers = spark.range(0, 20, 1, 5)
    values = spark.sql("SELECT * FROM VALUES " + ", ".join(f"({k}L)" for k in range(6)) + " t(id)")
    for rows, partitions in ((numbers, 5), (values, 2), (values.union(numbers), 7)):
        joined = join_partitions(rows, 2)
        assert joined.rdd.getNumPartitions() == 2
        found = [tuple(row) for row in joined.collect()]
        assert found == [tuple(row) for row in join_partitions(rows, None).collect()]
        assert len({partition for partition, _ in found}) == partitions
        assert [number for _, number in found] == [row.id for row in rows.collect()]


def test_tasks_over_blocks_run_in_the_workers_that_read_them(spark):
    def parent(batches):
        list(batches)
        yield pa.RecordBatch.from_pydict({"pid": [os.getppid()]})

    data = dataset(spark, [[(X, 1.0)], [(X, 0.0)]])
    daemons = {pid for (pid,) in spark.range(1).mapInArrow(parent, "pid long").collect()}
    assert set(data.run(lambda rows: [os.getppid() for _ in rows])) == daemons
    assert "SPARK_SIMPLIFIED_TRACEBACK" not in spark.sparkContext.environment
    data.close()


def test_threads_change_the_environment_of_workers_one_after_another():
    meeting = threading.Barrier(2)

    class Functions:
        context = SimpleNamespace(environment={"USER": "1"})

        @property
        def _jrdd(self):
            with suppress(threading.BrokenBarrierError):
                meeting.wait(0.2)
            return dict(self.context.environment)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(use_workers_of_sql, Functions()) for _ in range(2)]:
            done.result()
    assert meeting.broken
    assert Functions.context.environment == {"USER": "1"}


def test_groups_share_out_the_partitions_also_where_they_are_lost(spark):
    data = dataset(spark, [[], [(X, 1.0)], [(X, 0.0)], [(X, 0.0), (X, 1.0)]])
    expected = data.run(rows_of)
    for tasks, lost in itertools.product((2, 1), (False, True)):
        if lost:
            # As after the loss of an executor: Spark builds them again in the tasks of the groups.
            data._rdd.unpersist(blocking=True).persist()
        groups = data.group(tasks)
        assert len(groups.members) == tasks
        assert sorted(itertools.chain(*groups.members)) == [1, 2, 3]
        found = groups.run(lambda rows: [list(rows_of(rows))])
        assert [[number for number, *_ in group] for group in found] == groups.members
        assert sorted(itertools.chain(*found)) == expected
    assert data.group(9).members == [[1], [2, 3]]  # there are two slots
    data.close()


@pytest.mark.parametrize(
    ("partitions", "options", "reason"),
    [
        ([[]], {}, "the data has no rows"),
        ([[(X, 0.0)], [(X, 1.0), (X, 2.0)]], {}, "partition 1, row 1: the label is 2; allowed"),
        ([[(X, 0.0)], [(X, -1.0)]], {}, "partition 1: the label is -1, but others are"),
        ([[(X, 0.0), (X, None)]], {}, "partition 0, row 1: the label is null"),
        ([[(X, 0.0), (X, float("nan"))]], {}, "partition 0, row 1: the label is nan"),
        ([[(X, 0.0), (None, 0.0)]], {}, "partition 0, row 1: the features are null"),
        (
            [[(X, 0.0)], [(X, 0.0), (Vectors.sparse(2, [1], [float("nan")]), 0.0)]],
            {},
            "partition 1, row 1: feature 1 is nan",
        ),
        ([[(X, 0.0)], [(Vectors.dense([1.0]), 0.0)]], {}, "partition 1, row 0: it has 1 feat.* 2;"),
        ([[(X, 0.0), (X, 3.0)]], {}, r"the label is 3; .* more than two classes .*Softmax\(\)"),
        ([[(X, 0.0, None), (X, 0.0, 1.0)]], {"weight": "weight"}, "the weight is null; .*fillna"),
        ([[(X, 0.0, -1.0)]], {"weight": "weight"}, "partition 0, row 0: the weight is -1.0"),
        ([[(X, 0.0, 0.0)]], {"weight": "weight"}, "the weights sum to 0"),
        ([[(X, 1.0), (X, 2.0), (X, 3.0)]], {"positive_label": 2.0}, "row 2: .* exactly two"),
        ([[(X, 1.0)], [(X, 2.0)]], {"positive_label": 7.0}, "positive_label=7 does not occur"),
    ],
)
def test_bad_rows_are_value_errors(spark, partitions, options, reason):
    with pytest.raises(ValueError, match=reason):
        dataset(spark, partitions, **options)


@pytest.mark.parametrize(
    ("names", "kind", "reason"),
    [
        (("nothing", "label", None), ValueError, "features='nothing': the data has no such column"),
        (("text", "label", None), TypeError, "features='text' is a column of string; allowed"),
        (("features", "text", None), TypeError, "label='text' is a column of string; it must"),
        (("features", "label", "text"), TypeError, "weight='text' is a column of string"),
        (
            ("label", "label", None),
            TypeError,
            r"of one column of numbers write features=\['label'\]",
        ),
        (("feature", "label", None), ValueError, "such column, only .*; did you mean 'features'"),
        (("features", "twice", None), ValueError, r"'twice': the data has 2 .*drop\(other\["),
        (("features", 7, None), TypeError, "label=7; give the name of a column"),
        ((("label", "text"), "label", None), TypeError, r"features=\[..., 'text', ...\]: this is"),
    ],
)
def test_wrong_columns(spark, names, kind, reason):
    frame = spark.createDataFrame([Row(features=X, label=1.0, text="a", twice=1.0)])
    frame = frame.select("*", frame.twice)
    with pytest.raises(kind, match=reason):
        Dataset(frame, Columns(*names), Signs())


def test_names_of_columns(spark):
    """With dots, in quotes, in structs, several; in any case, as Spark has them."""
    frame = spark.createDataFrame(
        [(1.0, 2, True, 1.0), (3.0, 4, False, 0.0)], ["a", "b.c", "d", "y"]
    )
    frame = frame.withColumn("s", functions.struct(functions.array("a", "`b.c`").alias("x")))
    expected = [1.0, 2.0, 3.0, 4.0]
    for features in (("a", "b.c"), ("A", "`b.c`"), "s.x"):
        rows = select_columns(frame, Columns(features, "y")).collect()
        assert [value for row in rows for value in row.features] == expected
    flags = select_columns(frame, Columns(("d",), "y")).collect()
    assert [row.features for row in flags] == [[1.0], [0.0]]
    for features, kind in (((), ValueError), (("a", "a"), ValueError), (("a", 7), TypeError)):
        with pytest.raises(kind, match=r"features=.*(names no column|twice|give the name)"):
            feature_names(features)


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[2]", True), ("local[*,4]", True), ("local-cluster[2,1,1024]", False)],
)
def test_local_masters(master, local):
    assert is_local(master) is local


@pytest.mark.parametrize(
    ("blocks", "free", "expected"),
    [
        ({}, {"0": 2}, False),
        ({"0": 2, "1": 2}, {"0": 2, "1": 2}, False),
        ({"0": 2, "1": 2}, {"0": 0, "1": 3}, True),  # servers hold all slots of "0"
        ({"0": 2}, {"1": 2}, True),  # Spark has not forgotten "0" yet
        ({"0": 2, "1": 2}, {"0": 0, "1": 0}, False),  # nowhere is better
        ({"0": 6}, {"0": 1, "1": 3}, True),  # six turns for two
        ({"0": 6}, {"0": 2, "1": 2}, False),  # three turns for two
        ({"0": 1}, {"0": 1, "1": 9}, False),
    ],
)
def test_blocks_move_where_it_is_worth_it(blocks, free, expected):
    assert needs_moving(Counter(blocks), free) is expected
