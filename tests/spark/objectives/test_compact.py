"""Spaces of the features that occur, float32 rows, and what goes over the wire as whole vectors."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from pyspark.ml.linalg import Vectors

from distvec.losses import Logistic
from distvec.losses.matrix_products import column_order_copy
from distvec.losses.rows import Rows
from distvec.spark import LogisticLoss
from distvec.spark.data.blocks import Block, local_columns, save
from distvec.spark.data.build import Descriptor
from distvec.spark.objectives.evaluation_task import (
    PRODUCTS,
    SUMS,
    Evaluation,
    LossSpec,
    evaluate_partition,
)
from distvec.spark.objectives.partition import CoordinateTransfer, Partition
from optim import LBFGS, OWLQN
from ps_backend.client import StoredArray
from ps_backend.errors import BufferLost
from ps_backend.in_process import connect_in_process
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from tests.spark.conftest import random_problem

MODES = ["job", "resident"]


# --- without Spark --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client():
    with connect_in_process(3) as made:
        yield made


@pytest.fixture(scope="module")
def rows_of(tmp_path_factory):
    """Makes a partition of rows that touch some coordinates of so many."""

    def make(touched, size):
        path = tmp_path_factory.mktemp("rows") / "block"
        columns, local = local_columns(np.array(touched, np.int32), size)
        matrix = sp.csr_array((np.ones(len(touched)), local, [0, len(touched)]))
        save(Block(columns, Rows(matrix, np.ones(1))), str(path))
        return Partition(str(path)).selection(None, 0)

    return make


@given(
    size=st.integers(1, 60),
    data=st.data(),
    dtype=st.sampled_from(["<f8", "<f4"]),
    intercept=st.booleans(),
    compact=st.booleans(),
)
def test_what_is_pulled_and_pushed(client, rows_of, size, data, dtype, intercept, compact):
    touched = data.draw(st.lists(st.integers(0, size - 1), min_size=1, unique=True))
    kept = sorted({*touched, *data.draw(st.lists(st.integers(0, size - 1)))})
    rows = rows_of(sorted(touched), size)
    buffer, stored = client.new_id(), None
    if compact:
        stored = StoredArray(client.new_id(), array_type(DenseSpace(len(kept)), np.int64))
        client.write(stored[0], stored[1].space, np.array(kept))
    full = np.array(kept) if compact else np.arange(size)
    space = DenseSpace(full.size + intercept)
    values = np.random.default_rng(size).normal(size=space.length).astype(dtype)
    client.write(buffer, space, values)

    vectors = CoordinateTransfer()
    for _ in range(2):  # the second uses memory of the first
        where = rows.coordinates(client, space, intercept=intercept, kept=stored)
        assert full[where[: len(touched)]].tolist() == sorted(touched)
        assert not intercept or where[-1] == space.length - 1
        pulled = vectors.pull(client, buffer, array_type(space, dtype), where)
        assert pulled.dtype == dtype and pulled.tobytes() == values[where].tobytes()

        expected = np.zeros(space.length, dtype)
        expected[where] = pulled
        indices, sent = vectors.contribution(array_type(space, dtype), where, pulled)
        assert indices is None or sent.nbytes + indices.nbytes < expected.nbytes
        round_name, target = str(client.new_id()), client.new_id()
        client.stage(round_name, 0, 1, space, indices, sent)
        client.commit(round_name, [(0, 1)], array_type(space, dtype), target)
        assert client.read(target, array_type(space, dtype)).tobytes() == (0 + expected).tobytes()


def test_coordinates_that_could_not_be_had_can_be_had_later(client, rows_of):
    rows, number, space = rows_of([3, 5], 9), client.new_id(), DenseSpace(3)
    kept = StoredArray(number, array_type(space, np.int64))
    where = partial(rows.coordinates, client, space, intercept=False, kept=kept)
    with pytest.raises(BufferLost):
        where()
    client.write(number, space, np.array([1, 3, 5]))
    assert where().tolist() == [1, 2]


@given(
    size=st.integers(2, 40),
    data=st.data(),
    dtype=st.sampled_from(["<f8", "<f4"]),
    intercept=st.booleans(),
    by_columns=st.booleans(),
    asked=st.sampled_from([SUMS, PRODUCTS]),
)
def test_sums_over_rows_that_are_numbered_like_what_they_pull(
    client, tmp_path_factory, size, data, dtype, intercept, by_columns, asked
):
    """Where all values come anyway: the bits of those over the touched columns alone."""
    touched = np.array(sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1))))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    dense = rng.normal(size=(7, touched.size)) * (rng.random((7, touched.size)) < 0.7)
    matrix = sp.csr_array(dense.astype(dtype))
    rows = Rows(matrix, rng.integers(0, 2, 7).astype(float), rng.random(7))
    if by_columns:
        rows = replace(rows, by_columns=column_order_copy(matrix))
    path = str(tmp_path_factory.mktemp("rows") / "block")
    save(Block(touched, rows), path)

    type = array_type(DenseSpace(size + intercept), dtype)
    stored = [StoredArray(client.new_id(), type) for _ in range(2)]
    given_arrays = [rng.normal(size=type.shape).astype(dtype) for _ in stored]
    for one, values in zip(stored, given_arrays, strict=True):
        client.write(one.buffer, type.space, values)
    where = np.append(touched, size) if intercept else touched
    request = Evaluation((stored[0],), asked, (stored[1],) if asked == PRODUCTS else ())
    contributed = []
    descriptor = Descriptor(0, path, 7, matrix.nnz, touched.size, size, 0.0, [], None)
    work = LossSpec(Logistic(), intercept)
    result = evaluate_partition(
        client, work, request, descriptor, 1, lambda _, changes: contributed.extend(changes)
    )
    assert not result.error, result

    here, direction = ((values[where],) for values in given_arrays)
    if asked == SUMS:
        sums = Logistic().sums(rows, here, intercept=intercept)
        value, (gradient,) = sums.value, sums.gradients
    else:
        value = 0.0
        (gradient,) = Logistic().products(rows, here, direction, intercept=intercept)
    expected = np.zeros(type.shape, dtype)
    expected[where] = gradient
    ((indices, sent),) = contributed
    full = np.zeros(type.shape, dtype)
    full[slice(None) if indices is None else indices] = sent
    assert result.value == value
    assert full.tobytes() == expected.tobytes()


# --- with Spark -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def few(spark):
    """Rows in four of which three columns occur; a tenth of the columns does."""
    return random_problem(spark, rows=40, size=4000, partitions=3, seed=3, density=0.003)


def touched_by(problem):
    return np.flatnonzero(np.any(problem.x != 0.0, axis=0))


pytestmark = pytest.mark.spark


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("intercept", [False, True])
def test_a_compact_space_has_what_occurs(few, ps, mode, intercept):
    occur = touched_by(few)
    options = {"weight": "weight", "l2": 0.3, "intercept": intercept, "mode": mode, "ps": ps}
    with LogisticLoss(few.frame, compact=True, **options) as loss:
        assert loss.coordinates.numpy().tolist() == occur.tolist()
        assert loss.dimension == occur.size + intercept
        w = np.random.default_rng(5).normal(size=loss.dimension)
        value, gradient = loss(ps.array(w))
        places = np.append(occur, 4000) if intercept else occur
        full = np.zeros(4000 + intercept)
        full[places] = w
        expected, slope = few.value_and_gradient(full, 0.3, intercept, weighted=True)
        np.testing.assert_allclose(float(value), expected, rtol=1e-12)
        np.testing.assert_allclose(gradient.numpy(), slope[places], atol=1e-12)
        assert loss.expand(ps.array(w)).numpy().tolist() == full.tolist()


def test_where_no_feature_occurs_the_intercept_is_left(spark, ps):
    rows = [(float(k == 0), Vectors.sparse(50, [], [])) for k in range(4)]
    frame = spark.createDataFrame(rows, ["label", "features"])
    with LogisticLoss(frame, compact=True, intercept=True, ps=ps) as loss:
        assert loss.dimension == 1
        value, gradient = loss(ps.array([0.3]))
        expected = np.log1p(np.exp([-0.3, 0.3, 0.3, 0.3])).mean()
        np.testing.assert_allclose(float(value), expected, rtol=1e-14)
        np.testing.assert_allclose(gradient.numpy(), 1 / (1 + np.exp(-0.3)) - 0.25, rtol=1e-14)
        assert loss.expand(ps.array([0.3])).numpy().tolist() == [0.0] * 50 + [0.3]


def test_a_compact_space_changes_no_optimum(few, ps):
    found = []
    for compact in (False, True):
        options = {"compact": compact, "intercept": True, "mode": "resident", "ps": ps}
        with LogisticLoss(few.frame, **options) as loss:
            for solver, penalised in (
                (LBFGS(gradient_tolerance=1e-7), loss.with_l2(0.01)),
                (OWLQN(l1=loss.l1_weights(0.01), gradient_tolerance=1e-7), loss),
            ):
                result = solver.minimize(penalised, ps.zeros(loss.dimension))
                found.append(penalised.expand(result.x).numpy())
    np.testing.assert_allclose(found[2], found[0], atol=1e-5)
    np.testing.assert_allclose(found[3], found[1], atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_rows_in_float32(few, ps, mode):
    with LogisticLoss(few.frame, dtype="float32", mode=mode, ps=ps) as loss:
        w = np.random.default_rng(6).normal(size=loss.dimension)
        value, gradient = loss(ps.array(w))
        rounded = few._replace(x=few.x.astype(np.float32))
        expected, slope = rounded.value_and_gradient(w)
        np.testing.assert_allclose(float(value), expected, rtol=1e-6)
        np.testing.assert_allclose(gradient.numpy(), slope, atol=1e-6)
        assert gradient.dtype == np.float64
        half, slope = loss(ps.array(w.astype(np.float32)))
        assert slope.dtype == np.float32
        np.testing.assert_allclose(float(half), expected, rtol=1e-6)


def test_refusals(few, ps):
    with pytest.raises(ValueError, match="dtype='int8'; allowed are 'float64', 'float32'"):
        LogisticLoss(few.frame, dtype="int8", ps=ps)
    with (
        LogisticLoss(few.frame, compact=True, ps=ps) as loss,
        pytest.raises(ValueError, match=r"w has shape \(4000,\), this objective needs"),
    ):
        loss.expand(ps.zeros(4000))


@given(parts=st.lists(st.sets(st.integers(0, 8), min_size=5), min_size=1, max_size=4))
def test_partitions_in_turn_leave_nothing_in_the_memory_they_share(parts):
    vectors, type = CoordinateTransfer(), array_type(DenseSpace(9), np.float64)
    coordinates = [np.array(sorted(part)) for part in parts]
    for number, where in enumerate([*coordinates, *coordinates, coordinates[-1]], 1):
        expected = np.zeros(9)
        expected[where] = number
        indices, sent = vectors.contribution(type, where, expected[where])
        assert indices is None
        np.testing.assert_array_equal(sent, expected)
