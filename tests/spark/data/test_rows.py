"""Arrow columns to rows, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distvec.losses.labels import Signs
from distvec.spark.data.build import Collector, Descriptor
from distvec.spark.data.rows import BadRow, read_features, read_numbers, read_weights, row_digests

# As Spark 4.3 sends a VectorUDT column.
VECTOR = pa.struct(
    [
        pa.field("type", pa.int8(), nullable=False),
        pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        pa.field("values", pa.list_(pa.field("element", pa.float64(), nullable=False))),
    ]
)


def sparse(size, entries):
    return {"type": 0, "size": size, "indices": list(entries), "values": list(entries.values())}


def dense(*values):
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


def vectors(*rows):
    return pa.array(rows, type=VECTOR)


def densify(rows):
    assert rows.matrix.shape[1] == rows.size
    return rows.matrix if isinstance(rows.matrix, np.ndarray) else rows.matrix.toarray()


def batch(features, labels, weights=None):
    columns = {"features": features, "label": pa.array(labels, type=pa.float64())}
    if weights is not None:
        columns["weight"] = pa.array(weights, type=pa.float64())
    return pa.RecordBatch.from_pydict(columns)


@given(
    st.integers(1, 6).flatmap(
        lambda size: st.tuples(
            st.lists(
                st.tuples(
                    st.booleans(),
                    st.lists(st.sampled_from([0.0, -0.0, 1.5, -2.0]), min_size=size, max_size=size),
                ),
                min_size=1,
                max_size=8,
            ),
            st.integers(0, 7),
        )
    )
)
def test_any_mix_of_sparse_dense_and_empty_rows(case):
    rows, skip = case
    skip = min(skip, len(rows) - 1)
    size = len(rows[0][1])
    arrow = vectors(
        *(
            sparse(size, {k: v for k, v in enumerate(values) if v}) if is_sparse else dense(*values)
            for is_sparse, values in rows
        )
    )
    read = read_features(arrow[skip:])  # a slice has an offset into the children
    assert read.size == size
    np.testing.assert_array_equal(densify(read), [values for _, values in rows[skip:]])
    assert read.nnz == np.count_nonzero(densify(read))
    np.testing.assert_array_equal(densify(read.as_sparse()), densify(read))
    assert np.all(read.as_sparse().values != 0.0)
    np.testing.assert_array_equal(row_digests(read), row_digests(read.as_sparse()))


@given(
    st.integers(0, 40),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.3, 0.6, 1.0]),
    st.booleans(),
    st.sampled_from(["float64", "float32"]),
)
def test_a_block_of_dense_vectors_is_that_of_sparse_ones(count, size, density, compact, dtype):
    rng = np.random.default_rng([count, size])
    table = np.where(rng.random((count + 1, size)) < density, rng.normal(size=(count + 1, size)), 0)
    table[:, : size // 2] *= rng.random() < 0.5  # features that no row has
    forms = (
        [dense(*row) for row in table.tolist()],
        [sparse(size, {k: x for k, x in enumerate(row) if x}) for row in table.tolist()],
    )
    blocks = []
    for rows in forms:
        collector = Collector(0, Signs())
        for part in (rows[: count // 2], rows[count // 2 :]):
            collector.add(batch(vectors(*part), [1.0 if k % 2 else -1.0 for k in range(len(part))]))
        assert collector.nnz == np.count_nonzero(table)
        blocks.append((collector.blocks(dtype, compact=compact)[0], collector.digest))
    (ours, digest), (theirs, other) = blocks
    assert digest == other
    np.testing.assert_array_equal(ours.columns, theirs.columns)
    matrices = ours.rows.matrix, theirs.rows.matrix
    assert type(matrices[0]) is type(matrices[1])
    assert {one.dtype for one in matrices} == {np.dtype(dtype)}
    for one, of in zip(blocks, matrices, strict=True):
        assert of.shape == (count + 1, one[0].columns.size)
    arrays = [one if isinstance(one, np.ndarray) else one.toarray() for one in matrices]
    np.testing.assert_array_equal(*arrays)
    np.testing.assert_array_equal(ours.rows.labels, theirs.rows.labels)


def test_stored_zeros_are_dropped():
    read = read_features(vectors(sparse(4, {0: 0.0, 2: 5.0}), dense(0.0, 0.0, 0.0, 0.0)))
    assert read.nnz == 1
    assert read.lengths.tolist() == [1, 0]
    assert read.indices.tolist() == [2]


def test_arrays_of_double():
    read = read_features(pa.array([[0.0, 2.0], [3.0, 0.0]], type=pa.list_(pa.float64())))
    np.testing.assert_array_equal(densify(read), [[0.0, 2.0], [3.0, 0.0]])


@pytest.mark.parametrize(
    ("column", "row", "reason"),
    [
        (vectors(dense(1.0), None), 1, "features are null"),
        (vectors(dense(1.0, 2.0), dense(1.0)), 1, "1 features where rows before it have 2"),
        (vectors(sparse(9, {1: 1.0}), sparse(8, {1: 1.0})), 1, "8 features where .* have 9"),
        (vectors(dense(), sparse(3, {})), 1, "3 features where rows before it have 0"),
        (vectors(dense(1.0, 2.0), sparse(2, {1: np.nan})), 1, "feature 1 is nan"),
        (vectors(dense(1.0, -np.inf)), 0, "feature 1 is -inf"),
        (vectors(sparse(99, {}), sparse(99, {7: 1.0, 70: np.inf})), 1, "feature 70 is inf"),
        (
            pa.array([[1.0, 2.0], [3.0, None]], type=pa.list_(pa.float64())),
            1,
            "feature 1 is null; drop such rows, or fill them before",
        ),
    ],
)
def test_bad_features(column, row, reason):
    with pytest.raises(BadRow, match=reason) as caught:
        read_features(column)
    assert caught.value.row == row


def test_bad_features_of_several_columns_are_told_by_their_columns():
    several = pa.array([[1.0, np.nan], [3.0, None]], type=pa.list_(pa.float64()))
    with pytest.raises(BadRow, match=r"feature 1, the column 'b', is null; .*data\.fillna"):
        read_features(several, ["a", "b"])
    with pytest.raises(BadRow, match="feature 1, the column 'b', is nan"):
        read_features(several[:1], ["a", "b"])


def test_what_is_infinite_is_no_case_for_dropna():
    with pytest.raises(BadRow, match=r"offset is inf; it must be finite: .*where\(abs\(offset"):
        read_numbers(pa.array([1.0, np.inf]), "offset")
    with pytest.raises(BadRow, match=r"offset is nan; drop such rows: data\.dropna\(\)"):
        read_numbers(pa.array([1.0, np.nan]), "offset")


@pytest.mark.parametrize("bad", [None, np.nan, np.inf])
def test_bad_labels_and_weights(bad):
    column = pa.array([1.0, bad], type=pa.float64())
    for read, name in ((partial(read_numbers, name="label"), "label"), (read_weights, "weight")):
        with pytest.raises(BadRow, match=f"the {name} is") as caught:
            read(column)
        assert caught.value.row == 1


def test_a_negative_weight_is_refused():
    with pytest.raises(BadRow, match=r"the weight is -2\.0; weights are finite and 0 or more"):
        read_weights(pa.array([0.0, -2.0]))


def test_a_collector_names_partition_and_row_over_all_batches():
    collector = Collector(3, Signs())
    collector.add(batch(vectors(dense(1.0), dense(2.0)), [0.0, 1.0]))
    collector.add(batch(vectors(dense(1.0), dense(np.nan)), [0.0, 1.0]))
    collector.add(batch(vectors(None), [5.0]))
    assert collector.error.startswith("partition 3, row 3: feature 0 is nan; features are finite")


@pytest.mark.parametrize(
    ("labels", "positive", "error"),
    [
        ([0.0, 1.0, 2.0], None, "row 2: the label is 2; allowed are"),
        ([0.0, -1.0], None, "row 1: the label is -1, but others are"),
        ([3.0, 5.0, 4.0], 5.0, "row 2: the label is 4, but others are .*exactly two"),
    ],
)
def test_a_collector_refuses_labels(labels, positive, error):
    collector = Collector(0, Signs(positive))
    collector.add(batch(vectors(*[dense(1.0)] * len(labels)), labels))
    with pytest.raises(ValueError, match=error):
        raise ValueError(collector.error)


@pytest.mark.parametrize(
    ("partitions", "positive", "error"),
    [
        ({0: [0.0], 1: [1.0]}, None, None),
        ({0: [-1.0], 1: [1.0]}, None, None),
        ({0: [1.0]}, None, None),
        ({0: [0.0], 2: [-1.0]}, None, "partition 2: the label is -1, but others are"),
        ({0: [1.0, 2.0]}, 2.0, None),
        ({0: [1.0, 2.0], 1: [3.0]}, 2.0, "partition 1: the label is 3, .*exactly two"),
        ({0: [1.0, 2.0]}, 3.0, r"positive_label=3 does not occur; the labels are \[1.0, 2.0\]"),
    ],
)
def test_numbers_of_all_partitions_together(partitions, positive, error):
    if error is None:
        Signs(positive).check_all(partitions)
        return
    with pytest.raises(ValueError, match=error):
        Signs(positive).check_all(partitions)


def test_signs():
    np.testing.assert_array_equal(Signs().encode(np.array([0.0, 1.0])), [-1, 1])
    np.testing.assert_array_equal(Signs().encode(np.array([-1.0, 1.0])), [-1, 1])
    np.testing.assert_array_equal(Signs(1.0).encode(np.array([1.0, 2.0])), [1, -1])


@given(st.from_type(Descriptor))
def test_a_descriptor_is_read_as_it_was_written(descriptor):
    (text,) = descriptor.encode().column("descriptor").to_pylist()
    assert repr(Descriptor.decode(text)) == repr(descriptor)


def test_to_read_rows_loads_no_pandas(tmp_path):
    rows = batch(vectors(dense(0.0, 1.0), sparse(2, {1: 2.0}), dense(3.0, 4.0)), [0, 1, 1])
    with pa.ipc.new_file(tmp_path / "rows", rows.schema) as file:
        file.write(rows)
    code = """
import sys
import pyarrow as pa
from distvec.losses.labels import Signs
from distvec.spark.data.build import Collector, Descriptor
rows = pa.ipc.open_file(sys.argv[1]).get_batch(0)
for some in (rows, rows.slice(1, 1), rows.slice(2, 1)):
    collector = Collector(0, Signs())
    collector.add(some)
    block = collector.blocks()[0]
    print(block.rows.labels, Descriptor(0, "", *[1] * 4, 1.0, [], None).encode().num_rows)
print("pandas" in sys.modules)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "rows")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[-2] == "False", ran.stdout
