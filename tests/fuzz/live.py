"""Server processes that are sent what they should not be, and a good client that must be served."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import numpy as np

from ps_backend.client import Client
from ps_backend.processes.launcher import LocalServers, launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.transport.grpc_transport import SERVICE, TOKEN_KEY
from ps_backend.transport.tls import open_channel
from ps_backend.wire.protocol import CHUNK_BYTES, chunk_field
from tests.fuzz.batches import messages
from tests.fuzz.http2 import ABUSES, KEPT_BY_GRPC, Metadata, abuse
from tests.fuzz.recordings import ADDRESSES, STORE, Recorded, written

MEMORY = 64 << 20
MARGIN = 160 << 20
"""Resident memory that a process may take besides its budget: kernels, caches, gRPC, threads."""
_EACH_SECONDS = 0.1
_WAIT_SECONDS = 5.0
"""So long a call of a stranger may take; then it is abandoned."""
_METHODS = ("Call", "Call", "Stream", "Shared")


@dataclass
class Good:
    """A client that works meanwhile."""

    asked: int = 0
    slowest: float = 0.0
    late: int = 0
    """How often it waited for more than a second."""
    wrong: list[str] = field(default_factory=list)


@dataclass
class Live:
    """Two servers under attack, and what is known of them."""

    servers: LocalServers
    good: Good
    folder: str
    before: list[int]

    @property
    def grown(self) -> int:
        """Bytes by which the larger one has grown."""
        now = map(resident, self.servers.pids)
        return max(after - before for after, before in zip(now, self.before, strict=True))

    def looks(self) -> list[str]:
        """What is wrong."""
        wrong = list(dict.fromkeys(self.good.wrong))
        if self.grown > MEMORY + MARGIN:
            wrong.append(f"a server has grown by {self.grown >> 20} MiB")
        for seat, pid in zip(self.servers._seats, self.servers.pids, strict=True):
            wrote = seat.kept.log_tail() if hasattr(seat.kept, "log_tail") else ""
            if "a request failed" in wrote:
                wrong.append(f"unexpected: {wrote[-300:]}")
            if not Path(f"/proc/{pid}").exists():
                wrong.append(f"server {pid} has died")
        return wrong


@contextmanager
def live() -> Iterator[Live]:
    """Servers, and the good client at work beside the block."""
    with TemporaryDirectory() as folder, launch_local(2, memory=MEMORY) as servers:
        shutil.copytree(written(), folder, dirs_exist_ok=True)
        good, over = Good(), threading.Event()
        with Client.connect(servers.addresses, token=servers.token) as client:
            before = list(map(resident, servers.pids))
            thread = threading.Thread(target=_work, args=(client, good, over))
            thread.start()
            try:
                yield Live(servers, good, folder, before)
            finally:
                over.set()
                thread.join()


def _work(client: Client, good: Good, over: threading.Event) -> None:
    space, values = DenseSpace(10_000), np.random.default_rng(1).normal(size=10_000)
    client.write(x := client.new_id(), space, values)
    while not over.wait(_EACH_SECONDS):
        began = time.perf_counter()
        try:
            got = client.read(x, array_type(space, float))
            client.write(y := client.new_id(), space, got)
            client.free([y])
            if got.tobytes() != values.tobytes():
                good.wrong.append("the array of the good client has changed")
        except Exception as error:  # noqa: BLE001 - whatever it is, it should not be
            good.wrong.append(f"the good client: {error!r}")
        seconds = time.perf_counter() - began
        good.asked += 1
        good.slowest = max(good.slowest, seconds)
        good.late += seconds > 1.0


def resident(pid: int) -> int:
    """Bytes of memory that a process has now; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0


# --- messages -------------------------------------------------------------------------------------


class Stranger:
    """A connection to each server, and what their answers were."""

    def __init__(self, live: Live, token: str | None) -> None:
        self._live = live
        self._metadata = ((TOKEN_KEY, token),) if token is not None else None
        options = (("grpc.use_local_subchannel_pool", 1),)
        self._channels = [
            open_channel(address, options, None, live.servers.token)
            for address in live.servers.addresses
        ]
        self.answers: Counter[str] = Counter()

    def send_all(self, seeds: Sequence[int]) -> int:
        """The messages of these seeds; how many."""
        sent = 0
        for seed in seeds:
            for number, (_, one) in enumerate(messages(seed)):
                self._send(one, number)
                sent += 1
        return sent

    def _send(self, one: Recorded | bytes, number: int) -> None:
        payload = b""
        if isinstance(one, bytes):
            server, data = number % len(self._channels), one
        else:
            self._localise(one)
            server, data, payload = one.server, one.request.SerializeToString(), one.payload
        method = _METHODS[number % len(_METHODS)]
        pieces = [data]
        if method == "Call" and payload:
            pieces = [data + chunk_field([memoryview(payload)])]
        elif payload:
            pieces += [
                chunk_field([memoryview(payload[at : at + CHUNK_BYTES])])
                for at in range(0, len(payload), CHUNK_BYTES)
            ]
        call: Any = self._channels[server].stream_stream(f"/{SERVICE}/{method}", None, None)
        try:
            for _ in call(iter(pieces), metadata=self._metadata, timeout=_WAIT_SECONDS):
                pass
            self.answers["answered"] += 1
        except grpc.RpcError as error:
            self.answers[error.code().name] += 1

    def _localise(self, one: Recorded) -> None:
        """Where the servers of the recordings are the live ones, and their folder this one."""
        request = one.request
        known = dict(zip(ADDRESSES, self._live.servers.addresses, strict=True))
        if request.HasField("run"):
            request.run.peers[:] = [known.get(peer, peer) for peer in request.run.peers]
        saves = [request.save] if request.HasField("save") else []
        loads = list(request.load.arrays) if request.HasField("load") else []
        for some in (*saves, *loads):
            folder = some.store.removeprefix(STORE) if some.store.startswith(STORE) else ""
            some.store = f"{self._live.folder}/{folder}"

    def close(self) -> None:
        """Leave."""
        for channel in self._channels:
            channel.close()


def send_messages(live: Live, seeds: Sequence[int], tokens: Sequence[str | None]) -> Counter[str]:
    """By a stranger for each token at once; what became of all messages."""
    strangers = [Stranger(live, token) for token in tokens]
    threads = [
        threading.Thread(target=one.send_all, args=(seeds[place :: len(strangers)],))
        for place, one in enumerate(strangers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total: Counter[str] = Counter()
    for one in strangers:
        total += one.answers
        one.close()
    return total


def abuse_all(
    live: Live, connections: int, seconds: float, names: Iterable[str] = ABUSES
) -> dict[str, int]:
    """Every abuse by so many connections, without the token and, unless gRPC keeps what comes, with
    it; bytes sent, by name."""
    sent = dict.fromkeys(names, 0)
    for name in sent:
        for number in range(connections):
            known = number % 2 and name not in KEPT_BY_GRPC
            metadata: Metadata = ((TOKEN_KEY, live.servers.token),) if known else ()
            address = live.servers.addresses[number % 2]
            listens = number % 4 < 2
            sent[name] += abuse(address, name, metadata, listens=listens, seconds=seconds)
    return sent
