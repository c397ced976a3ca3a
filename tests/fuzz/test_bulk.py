"""Malformed messages and strange frames at the port for bulk data."""

from __future__ import annotations

import time
from collections import defaultdict
from random import Random

import pytest

from ps_backend.server.endpoints.framed_server import FramedServer
from ps_backend.server.endpoints.tokens import Tokens
from ps_backend.server.service import Service
from ps_backend.wire import ps_pb2 as pb
from tests.fuzz.batches import Tally, run_batch
from tests.fuzz.bulk import TOKEN, BulkTarget, gone, known, leave, strange
from tests.fuzz.target import Watch


@pytest.mark.parametrize("seed", [0, 3])
def test_a_few_seeds_over_sockets(seed):
    tallies: dict[str, Tally] = defaultdict(Tally)
    with Watch() as watch:
        assert not list(run_batch(seed, tallies, watch, BulkTarget))
    assert tallies["honest"].accepted and tallies["field"].refused
    assert any("unanswered" in one.errors for one in tallies.values())


def test_strangers_are_sent_away_and_a_good_client_is_served():
    with Watch() as watch:
        door = FramedServer(Service(memory=1 << 20).handle, Tokens(TOKEN), None)
        door.bind("127.0.0.1", 0)
        door.start()
        status = pb.Request(status=pb.StatusQuery()).SerializeToString()
        for seed in range(120):
            strange(door, Random(seed))
            if seed % 20 == 0:
                good = known(door)
                good.send(status, [], leave)
                message, _ = good.receive(leave) or (b"", 0)
                assert pb.Reply.FromString(message).status.budget == 1 << 20
                good.close()
        assert gone(door)
        assert not watch.said
        door.end(time.monotonic())
