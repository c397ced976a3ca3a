"""Servers that die or stop, and drivers that die, at random moments: what counts, and what is left.

A failure: an array that is neither right nor called lost, a list of names that no driver published,
an answer of a server whose place another one has, a process that is left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np

import distvec as dv
from distvec.spark.cluster.registry import Registry, serve_registry
from distvec.spark.cluster.supervise import RegistryClient, ServerSpec, Supervisor
from ps_backend.transport import GrpcTransport
from ps_backend.wire import ps_pb2 as pb
from tests.ps_backend.helpers import TOKEN, served
from tests.stress.row import Row
from tests.waiting import has_ended, join_all

_ROOT = str(Path(__file__).parents[2])
_LENGTH = 30_000
_STOPPED_SECONDS = 8.0

_DRIVER = """
import sys
import numpy as np, distvec as dv

ps = dv.connect(sys.argv[1], token=sys.argv[2], name="run")
w = ps.array(np.zeros(30_000))
for number in range(1_000_000):
    w = w + 1
    ps.publish(w=w, twice=2 * w)
    print(number + 1, flush=True)
"""

_SUPERVISOR = """
import json, sys
from distvec.spark.cluster import supervise

address, key = tuple(json.loads(sys.argv[1])), sys.argv[2]
orders = supervise.ServerSpec(address, key, 1, 1 << 26, 1)
supervise.Supervisor(orders, 0, 1, supervise.RegistryClient(address, key)).run()
"""


def run(scale: float) -> list[Row]:
    """Four rows; ``scale`` is of the trials."""
    return [
        _killed(max(1, round(40 * scale))),
        _stopped(max(1, round(4 * scale))),
        _drivers(max(1, round(60 * scale))),
        _zombies(max(1, round(4 * scale))),
    ]


def _killed(trials: int) -> Row:
    """Powers of two, begun again where a server was lost."""
    failures, lost = 0, 0
    for seed in range(trials):
        rng = random.Random(seed)
        with dv.local(2, memory="64m") as ps:
            pids = set(ps._owner.pids)
            victim = ps._owner.pids[rng.randrange(2)]
            threading.Timer(rng.uniform(0.0, 0.5), os.kill, (victim, signal.SIGKILL)).start()
            began = time.monotonic()
            while time.monotonic() < began + 1.0 or victim in ps._owner.pids:
                try:
                    x = ps.ones(_LENGTH).persist()
                    for k in range(1, 20):
                        x = (x + x).persist()
                        failures += float(x.sum()) != _LENGTH * 2.0**k
                except dv.ServerLost:
                    lost += 1
            pids |= set(ps._owner.pids)
        failures += not all(pid == 0 or has_ended(pid) for pid in pids)
    return Row("servers of dv.local killed", trials, failures, f"{lost} times ServerLost")


def _stopped(trials: int) -> Row:
    """For less time than it takes to be given up: nothing is lost."""
    failures = 0
    for seed in range(trials):
        rng = random.Random(seed)
        with dv.local(2, memory="64m") as ps:
            x = ps.ones(_LENGTH).persist()
            pid = ps._owner.pids[rng.randrange(2)]
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(_STOPPED_SECONDS, os.kill, (pid, signal.SIGCONT)).start()
            try:
                failures += float((x + 1).sum()) != 2.0 * _LENGTH or pid not in ps._owner.pids
            except dv.ServerLost:
                failures += 1
    return Row(f"servers of dv.local stopped {_STOPPED_SECONDS:g} s", trials, failures)


def _drivers(trials: int) -> Row:
    """Killed between, before or while it publishes: the list of some iteration is there, whole."""
    failures, newer = 0, 0
    for seed in range(trials):
        with served(2) as servers:
            addresses = ",".join(one.address for one in servers)
            command = [sys.executable, "-c", _DRIVER, addresses, TOKEN]
            environment = os.environ | {"PYTHONPATH": _ROOT}
            with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
                known = int(process.stdout.readline())
                threading.Timer(random.Random(seed).uniform(0.0, 0.2), process.kill).start()
                for line in process.stdout:
                    known = int(line) if line.endswith(b"\n") else known
            with dv.attach("run", addresses, token=TOKEN) as ps:
                w, twice = ps["w"].numpy(), ps["twice"].numpy()
                newer += w[0] > known
                right = w[0] in (known, known + 1) and np.all(w == w[0]) and np.all(twice == 2 * w)
                held = max(one.buffers for one in ps.client.status())
                failures += not right or held != 2
            failures += any(one.service.memory.used for one in servers)
    detail = f"{newer} had published more than they could say"
    return Row("drivers killed, and another one attached", trials, failures, detail)


def _zombies(trials: int) -> Row:
    """A server and its supervisor stopped until another has their place; the server wakes first."""
    failures, waited = 0, []
    for _ in range(trials):
        registry = Registry(1)
        listening = serve_registry(registry, "127.0.0.1", "127.0.0.1", TOKEN)
        command = [sys.executable, "-c", _SUPERVISOR, json.dumps(listening.address), TOKEN]
        with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": _ROOT}) as first:
            registry.wait_until_serving(60)
            (pid,), zombie = registry.pids, registry.locate(0)
            for one in (first.pid, pid):
                os.kill(one, signal.SIGSTOP)
            began = time.monotonic()
            orders = ServerSpec(listening.address, TOKEN, 1, 1 << 26, 1)
            second = Supervisor(orders, 0, 2, RegistryClient(listening.address, TOKEN))
            thread = threading.Thread(target=second.run)
            thread.start()
            while (found := registry.locate(0)) is None or found == zombie:
                time.sleep(0.1)
            waited.append(time.monotonic() - began)
            with closing(GrpcTransport(zombie.address, token=TOKEN)) as transport:
                os.kill(pid, signal.SIGCONT)
                request = pb.Request(session="s", client="c", life=zombie.life)
                request.status.SetInParent()
                failures += transport.call(request).reply.error.kind != "EpochFenced"
            os.kill(first.pid, signal.SIGCONT)
            failures += not has_ended(pid)
            registry.stop("the trial is over")
            join_all(thread)
        listening.close()
    detail = f"another one answered after {max(waited):.1f} s at most"
    return Row("zombies beside their successors", trials, failures, detail)
