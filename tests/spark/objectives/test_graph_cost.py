"""What a step of an algorithm on a graph costs a task, in messages and bytes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from distvec.losses.graph_steps import LEAST, SUM, NeighbourStep, combine
from distvec.losses.rows import Rows
from distvec.spark.data.blocks import Block, save
from distvec.spark.data.build import Descriptor
from distvec.spark.objectives.evaluation_task import (
    Evaluation,
    LossSpec,
    evaluate_partition,
    stager,
)
from ps_backend.client import Client, StoredArray, Total, Winner
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.transport import GrpcTransport
from tests.ps_backend.helpers import TOKEN, put, served

SERVERS, VERTICES = 2, 100_000
NUMBER, INDEX = 8, 8
OVERHEAD = 1000
"""Bytes of a message beside numbers."""


@pytest.mark.parametrize(("sources", "targets"), [(3000, 500), (70_000, 4000)])
@pytest.mark.parametrize("kind", [SUM, LEAST])
def test_a_step_pulls_named_sources_and_pushes_own_vertices(tmp_path, sources, targets, kind):
    """``s (r + b)`` bytes down, ``t (r + b)`` up, and two messages to each server; see the table of
    costs of PageRank on parameter servers. Whole vectors travel if they are fewer bytes."""
    rng = np.random.default_rng(0)
    columns = np.sort(rng.choice(VERTICES, sources, replace=False))
    vertices = rng.choice(VERTICES, targets, replace=False)
    indices = np.append(np.arange(sources), rng.integers(0, sources, 5 * targets))
    ends = np.append(np.sort(rng.choice(indices.size - 1, targets - 1, replace=False)) + 1, 0)
    starts = np.append(np.sort(ends), indices.size)
    matrix = sp.csr_array((rng.random(indices.size), indices, starts), shape=(targets, sources))
    save(Block(columns, Rows(matrix, vertices.astype(float))), str(tmp_path / "block"))
    sizes = (targets, indices.size, sources, VERTICES)
    descriptor = Descriptor(0, str(tmp_path / "block"), *sizes, float(targets), [], None)
    space = DenseSpace(VERTICES)
    values = rng.integers(0, VERTICES, VERTICES)
    values = values.astype(float) if kind == SUM else values
    type = array_type(space, values.dtype)
    with (
        served(SERVERS) as servers,
        Client([transport(one) for one in servers]) as driver,
        Client([transport(one) for one in servers], session=driver.secret) as task,
    ):
        about = StoredArray(put(driver, space, values), type)
        request = Evaluation((about,), round="r", like=about)
        work = LossSpec(NeighbourStep(kind), intercept=False)
        task.counters.reset()
        evaluate_partition(task, work, request, descriptor, 7, stager(task, request))
        cost = task.counters.snapshot()
        total = Total(driver.new_id(), type, [Winner(0, 7)])
        driver.commit_totals("r", [total])
        found = driver.read(total.target, type)
    expected = np.zeros(VERTICES, values.dtype)
    expected[vertices] = combine(kind, matrix, values[columns])
    assert (found == expected).all()
    whole = VERTICES * NUMBER
    is_sparse = sources * (INDEX + NUMBER) < whole
    up = targets * (INDEX + NUMBER) + is_sparse * sources * INDEX
    down = sources * NUMBER if is_sparse else whole
    assert cost["messages"] <= 2
    assert 0 <= cost["bytes_received"] - down < SERVERS * OVERHEAD
    assert 0 <= cost["bytes_sent"] - up < SERVERS * OVERHEAD


def transport(server):
    return GrpcTransport(server.address, token=TOKEN)
