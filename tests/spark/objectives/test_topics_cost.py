"""The bytes of a step of topics and of a sweep in a task: the rows of its words, and in a sweep the
topics of its tokens, pulled and pushed.
"""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import scipy.sparse as sp

from distvec.losses.rows import Rows
from distvec.losses.topic_sampling import Tokens, TopicSampling, draw_first
from distvec.losses.topics import Topics
from distvec.spark.data.blocks import Block, load, save
from distvec.spark.data.build import Descriptor
from distvec.spark.objectives.evaluation_task import (
    Evaluation,
    LossSpec,
    evaluate_partition,
    stager,
)
from distvec.spark.objectives.partition import Span
from ps_backend.client import Client, StoredArray
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.transport import GrpcTransport
from tests.ps_backend.helpers import TOKEN, put, served

SERVERS, WORDS, TOPICS, USED = 2, 5000, 8, 60


def partition(path):
    """40 documents with few of the words, in a file; how many words each third of them has."""
    rng = np.random.default_rng(1)
    counts = rng.poisson(0.2, (40, USED)).astype(float)
    counts[0] = 1.0
    columns = np.sort(rng.choice(WORDS, USED, replace=False))
    save(Block(columns, Rows(sp.csr_array(counts), np.arange(40.0))), str(path))
    sizes = (40, int(np.count_nonzero(counts)), USED, WORDS)
    return Descriptor(0, str(path), *sizes, 40.0, [], None)


def test_a_step_moves_the_rows_of_its_words_twice(tmp_path):
    descriptor, rng = partition(tmp_path / "block"), np.random.default_rng(0)
    words = rng.gamma(2.0, 1.0, (WORDS, TOPICS))
    priors = np.vstack([words.sum(axis=0), np.full(TOPICS, 0.1)])
    work = LossSpec(Topics(TOPICS, 1e4, 40), intercept=False)
    with ExitStack() as stack:
        servers = stack.enter_context(served(SERVERS))
        transports = [GrpcTransport(server.address, token=TOKEN) for server in servers]
        client = stack.enter_context(Client(transports))
        stored = []
        for array in (words, priors):
            space = DenseSpace(len(array))
            type = array_type(space, float, (TOPICS,))
            stored.append(StoredArray(put(client, space, array), type))
        used = []
        for number, part in enumerate((None, Span(0.0, 0.25, 1))):
            request = Evaluation(tuple(stored), part=part, round=f"r{number}")
            client.counters.reset()
            found = evaluate_partition(
                client, work, request, descriptor, 7, stager(client, request)
            )
            assert found.error == "" and found.weight > 0.0
            used.append(client.counters.bytes_sent + client.counters.bytes_received)
            # Each of the two arrays is pulled and pushed.
            assert client.counters.messages <= 4 * SERVERS
    u, k, b = USED, TOPICS, 8
    formula = 2 * u * (b + k * b) + 2 * 2 * k * b
    overhead = 4 * SERVERS * 300
    assert used[0] <= formula + overhead < 0.1 * words.nbytes
    assert used[1] < used[0]


def test_a_sweep_moves_the_rows_of_its_words_and_its_tokens_twice(tmp_path):
    descriptor = partition(tmp_path / "block")
    block = load(str(tmp_path / "block"))
    tokens = Tokens.of(block.rows)
    first, own = WORDS + 40_000, -(-tokens.words.size // TOPICS)  # behind the tokens of others
    loss = TopicSampling(WORDS, (first,), (0.1,) * TOPICS, 0.01, seed=1, sweep=1)
    state = np.zeros((first + own, TOPICS), np.int32)
    counts, topics = np.zeros((USED, TOPICS), np.int32), np.zeros(own * TOPICS, np.int32)
    draw_first(tokens.words, np.uint64(1), counts, topics)
    state[block.columns], state[first:] = counts, topics.reshape(own, TOPICS)
    with ExitStack() as stack:
        servers = stack.enter_context(served(SERVERS))
        transports = [GrpcTransport(server.address, token=TOKEN) for server in servers]
        client = stack.enter_context(Client(transports))
        stored = []
        for array in (state, counts.sum(axis=0)):
            space = DenseSpace(len(array))
            type = array_type(space, array.dtype, array.shape[1:])
            stored.append(StoredArray(put(client, space, array), type))
        request = Evaluation(tuple(stored), round="r", like=stored[0])
        work = LossSpec(loss, intercept=False)
        client.counters.reset()
        found = evaluate_partition(client, work, request, descriptor, 7, stager(client, request))
        assert found.error == "", found.details
        used = client.counters.bytes_sent + client.counters.bytes_received
        assert client.counters.messages <= 3 * SERVERS  # the totals of the topics, too
    formula = 2 * (USED + own) * (8 + 4 * TOPICS)
    assert used <= formula + 3 * SERVERS * 300 < 0.1 * state.nbytes
