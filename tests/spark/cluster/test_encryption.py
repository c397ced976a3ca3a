"""Servers that Spark starts, with TLS: certificates without files, replaced with their servers."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from distvec.spark import PSContext
from distvec.spark.cluster.registry import Claim, Registry, serve_registry
from distvec.spark.cluster.supervise import RegistryClient, ServerSpec, Supervisor
from distvec.spark.cluster.supervised_servers import authority_for
from distvec.spark.task_session import join
from ps_backend.client import Client, ask_once
from ps_backend.errors import ServerLost
from ps_backend.processes.certificates import Authority, held_identity, new_key
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.endpoints.tls_identity import FileIdentity
from tests.ps_backend.authorities import TestAuthority
from tests.ps_backend.helpers import TOKEN, put, served
from tests.ps_backend.stranger import certificate_shown
from tests.waiting import PATIENCE, join_all

KEY = "a key for tests"
SPACE = DenseSpace(1000)
FLOATS = array_type(SPACE, float)
X = np.arange(float(SPACE.length))


@contextmanager
def running(authority):
    """A registry and one server, which a supervisor elsewhere keeps running."""
    registry = Registry(1)
    listening = serve_registry(registry, "127.0.0.1", "127.0.0.1", KEY, authority)
    orders = ServerSpec(listening.address, KEY, 1, 1 << 26, 1, tls=authority.tls)
    supervisor = Supervisor(orders, 0, 1, RegistryClient(listening.address, KEY, authority.tls))
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        assert registry.wait_until_serving(PATIENCE)
        yield registry, listening
    finally:
        registry.stop("the test is over")
        join_all(thread)
        listening.close()


def test_a_client_follows_to_a_server_with_another_certificate():
    authority = Authority()
    with running(authority) as (registry, _):
        with Client.follow(registry, 1, token=KEY, tls=authority.tls) as client:
            put(client, SPACE, X)
            (pid,), before = registry.pids, certificate_shown(client.addresses[0], KEY)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(ServerLost):
                client.read(1, FLOATS)
            y = put(client, SPACE, X)
            assert client.read(y, FLOATS).tobytes() == X.tobytes()
            assert certificate_shown(client.addresses[0], KEY) != before
            assert client.status()[0].pid == registry.pids[0] != pid
        for tls in (None, Authority().tls):
            with pytest.raises(ServerLost):
                Client.follow(registry, 1, token=KEY, tls=tls, timeout=0.2)


def test_who_stands_at_a_servers_address_with_another_certificate_is_no_server():
    authority, false = Authority(), Authority()
    key, request = new_key()
    pretender = held_identity(key, false.sign(request), false.signer.authority)
    registry = Registry(1)
    with served(1, token=KEY, identity=pretender) as (server,):
        registry.claim(Claim(0, 7, server.address, 5), 1)
        with pytest.raises(ServerLost):
            Client.follow(registry, 1, token=KEY, tls=authority.tls, timeout=0.2)
        assert server.service.status().sessions == 0
        with Client.follow(registry, 1, token=KEY, tls=false.tls) as client:
            put(client, SPACE, X)


def test_who_has_no_key_gets_no_certificate():
    authority = Authority()
    _, request = new_key()
    with running(authority) as (_, listening):
        address, tls = listening.address, authority.tls
        with pytest.raises(ConnectionError, match="ended"):
            ask_once(address, "another key", {"certify": request}, PATIENCE, tls)
        found = ask_once(address, KEY, {"certify": request}, PATIENCE, tls)
        assert found["certificate"].startswith("-----BEGIN CERTIFICATE")
        with pytest.raises(ConnectionError, match="left"):
            ask_once(address, KEY, {"certify": "no request"}, PATIENCE, tls)
        with pytest.raises(OSError, match="certificate verify failed"):
            ask_once(address, KEY, {"locate": 0}, PATIENCE, Authority().tls)


@pytest.mark.parametrize(
    ("asked", "host", "secured"),
    [
        (None, "127.0.0.1", False),
        (None, "localhost", False),
        (None, "192.0.2.1", True),
        (None, "a.name", True),
        (True, "127.0.0.1", True),
        (False, "192.0.2.1", False),
    ],
)
def test_servers_that_others_reach_have_tls_unless_it_is_said(asked, host, secured):
    assert (authority_for(asked, host) is not None) == secured


def test_without_the_package_it_is_said_what_to_type(monkeypatch, caplog):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"pip install 'distvec\[tls\]'"):
        authority_for(True, "192.0.2.1")
    assert authority_for(None, "192.0.2.1") is None
    assert "travel as they are" in caplog.text


@pytest.mark.spark
def test_tasks_speak_to_servers_by_tls_and_follow_them(spark, kill):
    if PSContext._active is not None:
        PSContext._active.stop()
    ps = PSContext.get_or_create(spark, servers=2, tls=True)
    try:
        access, buffer = ps.access, [ps.array(X).persist().buffer_id]

        def ends(_):
            return join(access).gather(buffer[0], FLOATS, [0, SPACE.length - 1]).tolist()

        def in_tasks():
            return spark.sparkContext.parallelize([0, 1], 2).map(ends).collect()

        assert in_tasks() == [[0.0, 999.0]] * 2
        g = ps.zeros(SPACE.length)
        ps.accumulate(spark.sparkContext.parallelize([1, 2, 3]), lambda rows: sum(rows) * X, into=g)
        back = g[::-1].copy()  # the servers fetch from each other
        assert float(back[0]) == 6 * 999
        before = [certificate_shown(one, access.token) for one in ps.client.addresses]
        kill(ps.server_pids[1])
        with pytest.raises(ServerLost):
            (g + 1).sum().item()
        again = ps.array(X)
        assert float((again[::-1] * again).sum()) == float((X[::-1] * X).sum())
        after = [certificate_shown(one, access.token) for one in ps.client.addresses]
        assert after[0] == before[0] and after[1] != before[1]
        buffer = [again.persist().buffer_id]
        assert in_tasks() == [[0.0, 999.0]] * 2
        for address in ps.client.addresses:
            with pytest.raises(ServerLost):
                Client.connect([address], token=access.token, timeout=0.2)
        with pytest.raises(ValueError, match=r"tls=False, but a PSContext with TLS is running"):
            PSContext.get_or_create(spark, tls=False)
        assert PSContext.get_or_create(spark) is PSContext.get_or_create(spark, tls=True) is ps
    finally:
        ps.stop()


@pytest.mark.spark
def test_tasks_know_servers_that_run_by_themselves_by_their_authority(spark, tmp_path):
    if PSContext._active is not None:
        PSContext._active.stop()
    authority = TestAuthority(tmp_path, "authority")
    with served(2, identity=FileIdentity(*authority.issue("s"), authority.file)) as servers:
        addresses = [server.address for server in servers]
        given = {"addresses": addresses, "token": TOKEN}
        ps = PSContext.get_or_create(spark, **given, tls=authority.file)
        try:
            access, buffer = ps.access, ps.array(X).persist().buffer_id
            rows = spark.sparkContext.parallelize([0, 1], 2)
            found = rows.map(lambda _: join(access).gather(buffer, FLOATS, [0, 999]).tolist())
            assert found.collect() == [[0.0, 999.0]] * 2
            with pytest.raises(ValueError, match="a PSContext with TLS is running"):
                PSContext.get_or_create(spark, **given, tls=False)
        finally:
            ps.stop()


@pytest.mark.spark
def test_what_tls_cannot_be_is_said(spark):
    if PSContext._active is not None:
        PSContext._active.stop()
    with pytest.raises(TypeError, match="servers started here make their own certificates"):
        PSContext.get_or_create(spark, tls="authority.pem")
    with pytest.raises(ValueError, match=r"tls='authority.pem'"):
        PSContext.get_or_create(spark, addresses="127.0.0.1:1", token="t", tls=True)
