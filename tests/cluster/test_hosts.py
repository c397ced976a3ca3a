"""What loopback hides of servers, without Spark; and that hosts leave nothing behind."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from contextlib import ExitStack

import pytest

from tests.cluster.hosts import ROOT, network
from tests.cluster.links import SLOW, has_queues

N = 300_000

ECHO = """
import socket
with socket.create_server(("", 7070)) as listener:
    print("ready", flush=True)
    connection, _ = listener.accept()
    while data := connection.recv(100):
        connection.sendall(data)
"""

ROUND_TRIPS = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 7070))
def seconds():
    began = time.monotonic()
    connection.sendall(b"x")
    connection.recv(100)
    return time.monotonic() - began
print(min(seconds() for _ in range(20)))
"""

CLIENT = """
import sys
import numpy as np
import distvec as dv

values = np.random.default_rng(0).random(300_000)
with dv.connect(sys.argv[1], token="secret") as session:
    x = session.array(values)  # beyond a message: by memory that both map, where there is some
    assert (x.numpy() == values).all()
    assert float((2 * x).max()) == 2 * values.max()
    np.testing.assert_allclose(np.cumsum(x).numpy(), np.cumsum(values))  # servers ask each other
    assert (x[::-1].numpy() == values[::-1]).all()  # and send each other what is large
    for status in session.client.status():
        print(status.bulk)
"""

HOLDER = """
from tests.cluster.hosts import network
with network("a", "b") as hosts:
    started = hosts["a"].start("sleep", "600", stdin=-3, stdout=-3, stderr=-3)
    print(*(host.first for host in hosts.values()), started.pid, flush=True)
    input()
"""


@pytest.fixture(scope="module")
def hosts():
    with network("client", "one", "two", links={"one": SLOW}) as made:
        yield made


def test_each_has_a_name_and_a_folder_of_its_own(hosts):
    names = []
    for name, host in hosts.items():
        host.path("/tmp/mine").write_text(name)
        names.append(host.run("sh", "-c", "hostname; cat /tmp/mine; getent hosts $(hostname)"))
    assert names == [f"{name}\n{name}127.0.1.1       {name}\n" for name in hosts]


def test_a_message_takes_as_long_as_the_links_say(hosts):
    command = hosts["one"].command(sys.executable, "-c", ECHO)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as echo:
        assert echo.stdout.readline() == "ready\n"
        shortest = float(hosts["client"].python(ROUND_TRIPS, hosts["one"].address))
    assert shortest >= 0.6e-3  # half of 1 ms one way, half of 0.2 ms the other


@pytest.mark.parametrize(("wall", "port"), [("", 7080), ("REJECT", 7082), ("DROP", 7084)])
def test_servers_on_other_hosts_share_no_memory_and_ask_each_other(hosts, wall, port):
    """Also behind a wall that lets nobody to the port of one for bulk data."""
    client, servers, started = hosts["client"], (hosts["one"], hosts["two"]), []
    with ExitStack() as stack:
        if wall:
            if not has_queues():
                pytest.skip("there is no iptables here")
            rule = f"INPUT --protocol tcp --dport {port + 1} --jump {wall}".split()
            hosts["one"].run("iptables", "--insert", *rule)
            stack.callback(hosts["one"].run, "iptables", "--delete", *rule)
        for host in servers:
            host.path("/tmp/token").write_text("secret")
            host.path("/tmp/token").chmod(0o600)
            words = (sys.executable, "-m", "ps_backend", "serve", "--host", host.address)
            options = ("--token-file", "/tmp/token", "--memory", "1g")
            ports = ("--port", str(port), "--bulk-port", str(port + 1))
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            started.append(stack.enter_context(host.start(*words, *options, *ports, **pipes)))
            stack.callback(started[-1].kill)
        assert all(server.stdout.readline() for server in started)
        before = client.counts()
        said = client.python(CLIENT, ",".join(f"{host.address}:{port}" for host in servers))
        after = client.counts()
    assert after.sent - before.sent > 8 * N  # all of it went over the link
    assert after.received - before.received > 3 * 8 * N
    ways = [line.split()[0] for line in said.splitlines()]
    assert ways == ["gRPC" if wall else "port", "port"]


def test_nothing_is_left_of_a_test_that_is_killed():
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    with holder:
        handles = [os.pidfd_open(int(pid)) for pid in holder.stdout.readline().split()]
        holder.kill()
    for handle in handles:
        assert select.select([handle], [], [], 60.0)[0]
        os.close(handle)
