"""Batches to one block, and a block to files and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from distvec.losses.labels import Signs
from distvec.losses.matrix_products import column_order_copy
from distvec.losses.rows import Rows
from distvec.spark.data.blocks import Block, load, local_columns, remove, save
from distvec.spark.data.build import Collector


@given(st.lists(st.integers(0, 300_000), max_size=60), st.sampled_from([300_001, 10**9]))
def test_local_columns_by_table_and_by_sorting(indices, size):
    given_indices = np.array(indices, dtype=np.int32)
    columns, local = local_columns(given_indices, size)
    assert columns.dtype == np.int64
    np.testing.assert_array_equal(columns, np.unique(given_indices))
    np.testing.assert_array_equal(columns[local], given_indices)


def make_batch(table, labels, weights):
    return pa.RecordBatch.from_pydict(
        {
            "features": pa.array(table.tolist(), type=pa.list_(pa.float64())),
            "label": pa.array(labels),
            "weight": pa.array(weights),
        }
    )


def test_batches_become_one_block():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(7, 40)) * (rng.random((7, 40)) < 0.2)
    labels, weights = rng.integers(0, 2, 7).astype(float), rng.random(7)
    collector = Collector(0, Signs())
    for part in (slice(0, 3), slice(3, 3), slice(3, 7)):
        collector.add(make_batch(table[part], labels[part], weights[part]))
    block = collector.blocks()[0]
    touched = np.flatnonzero(np.any(table != 0, axis=0))
    np.testing.assert_array_equal(block.columns, touched)
    order = [weights.tolist().index(weight) for weight in block.rows.weights]  # that of the digests
    assert sorted(order) == list(range(7))
    np.testing.assert_array_equal(block.rows.matrix.toarray(), table[np.ix_(order, touched)])
    np.testing.assert_array_equal(block.rows.labels, 2 * labels[order] - 1)
    matrix = block.rows.matrix
    assert matrix.indices.dtype == matrix.indptr.dtype == np.int32


@pytest.mark.parametrize(
    ("missing", "compact", "kept"), [(1, False, 8), (3, False, 5), (1, True, 7)]
)
def test_a_block_that_touches_most_features_has_a_column_for_each(missing, compact, kept):
    table = np.diag(np.arange(1.0, 9.0))[: 8 - missing]
    collector = Collector(0, Signs())
    collector.add(make_batch(table, np.ones(len(table)), np.ones(len(table))))
    block = collector.blocks(compact=compact)[0]
    np.testing.assert_array_equal(block.columns, np.arange(kept))
    np.testing.assert_array_equal(
        np.sort(block.rows.matrix.toarray(), axis=0), np.sort(table[:, :kept], axis=0)
    )


def test_elements_by_columns_survive_their_files(tmp_path):
    matrix = sp.csr_array(np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 4.0]]))
    rows = Rows(matrix, np.ones(2), by_columns=column_order_copy(matrix))
    save(Block(np.arange(3), rows), str(tmp_path / "0"))
    loaded = load(str(tmp_path / "0")).rows
    assert loaded.by_columns.matrix is loaded.matrix
    np.testing.assert_array_equal(loaded.by_columns.times(np.array([1.0, 2.0, 4.0])), [10.0, 19.0])
    found = loaded.by_columns.transposed_times(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(found, [6.0, 1.0, 10.0])


@pytest.mark.parametrize("weights", [None, np.array([1.0, 2.0])])
@pytest.mark.parametrize("matrix", [[[0.0, 1.0], [2.0, 0.0]], [[], []], [[0.0], [0.0]]])
def test_a_block_survives_its_files(tmp_path, matrix, weights):
    path = str(tmp_path / "set" / "0-0")
    matrix = sp.csr_array(np.array(matrix).reshape(2, -1))
    rows = Rows(matrix, np.array([1.0, -1.0]), weights)
    block = Block(np.arange(matrix.shape[1]) + 10, rows)
    save(block, path)
    loaded = load(path)
    np.testing.assert_array_equal(loaded.columns, block.columns)
    np.testing.assert_array_equal(loaded.rows.matrix.toarray(), matrix.toarray())
    np.testing.assert_array_equal(loaded.rows.labels, rows.labels)
    assert loaded.rows.by_columns is None
    assert (loaded.rows.weights is None) == (weights is None)
    remove([str(tmp_path / "set")])
    with pytest.raises(FileNotFoundError):
        load(path)
