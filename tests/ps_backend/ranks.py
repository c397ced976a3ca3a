"""A loop whose ranks run on the test's thread, one step at a time, and lose what they send."""

from contextlib import contextmanager, suppress
from itertools import count

import numpy as np

from ps_backend.client import Client
from ps_backend.client.loop import LoopRank
from ps_backend.client.server_link import RetryPolicy
from ps_backend.errors import ServerLost
from ps_backend.program.spaces import DenseSpace
from ps_backend.wire.protocol import TooEarly
from tests.ps_backend.helpers import Faulty, in_process, share

LENGTH = 5000
"""Five blocks, so that each of up to three servers has some."""

SPACE = DenseSpace(LENGTH)
F8 = np.dtype(np.float64)


class Ranks:
    """A loop on in-process servers, and its ranks; all of them run on the test's thread."""

    def __init__(self, servers, ranks, staleness, start=None):
        self.unreachable = set()
        """Servers that hear no tick."""
        transports = [
            Faulty(inner, lambda request, k=k: self._fault(request, k))
            for k, inner in enumerate(in_process(servers))
        ]
        self.client = Client(transports, retry=RetryPolicy(total=0.0))
        start = np.zeros(LENGTH) if start is None else start
        self.target = share(self.client, SPACE, start)
        self.loop = self.client.loop("test")
        self.loop.open(ranks, staleness)
        self._attempts = count(1)
        self.paces = [self._new(rank) for rank in range(ranks)]

    def _fault(self, request, server):
        lost = request.HasField("contribute") and server in self.unreachable
        return "lose request" if lost else "ok"

    def _new(self, rank):
        self._latest = next(self._attempts)
        return LoopRank(self.loop, rank, self._latest)

    def restart(self, rank):
        self.paces[rank] = self._new(rank)

    def tick_and_die(self, rank, reached):
        """The tick reaches some servers only; then another attempt takes over."""
        self.unreachable = set(range(self.client.servers)) - set(reached)
        with suppress(ServerLost):
            self.paces[rank].tick()
        self.unreachable = set()
        self.restart(rank)

    def ask(self, rank, indices, ahead=0):
        """A pull that does not wait; None if it would have to."""
        pace = self.paces[rank]
        try:
            return self.loop.try_pull(
                rank, pace.attempt, pace.now + ahead, self.target, indices, seconds=0.0
            )
        except TooEarly:
            return None

    def values(self):
        return self.client.pull(self.target)


@contextmanager
def ranks(*args, **options):
    made = Ranks(*args, **options)
    with made.client:
        yield made


def homes(number):
    """A coordinate for each rank, spread over the servers."""
    return np.array([(rank * 1999 + 7) % LENGTH for rank in range(number)])
