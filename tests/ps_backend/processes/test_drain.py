"""SIGTERM: a server takes no new session, serves those it has, tells clients, and ends."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest

import distvec as dv
from tests.waiting import PATIENCE


@contextmanager
def serving(folder, grace):
    """The process, its address, token and HTTP address."""
    token = folder / "token"
    command = [sys.executable, "-m", "ps_backend", "serve", "--port", "0", "--http-port", "0"]
    command += ["--memory", "64m", "--token-file", str(token), "--grace", str(grace)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = [process.stdout.readline() for _ in range(3)]
            web = re.search(r"http://([\d.:]+)/", lines[2])[1]
            yield process, lines[0].split()[-1], token.read_text().strip(), web
        finally:
            process.kill()


def is_ready(web):
    connection = http.client.HTTPConnection(web, timeout=PATIENCE)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    finally:
        connection.close()


def await_drain(web):
    while is_ready(web):
        time.sleep(0.05)


def test_open_sessions_go_on_and_their_end_ends_it(tmp_path, caplog):
    with serving(tmp_path, grace=600) as (process, address, token, web):
        with dv.connect(address, token=token) as ps:
            x = ps.array(np.arange(10.0))
            assert ps.leaving == {}
            process.send_signal(signal.SIGTERM)
            await_drain(web)
            with pytest.raises(dv.ServerDraining, match="takes no new session"):
                dv.connect(address, token=token)
            assert float(x @ x) == 285.0
            assert 0.0 < ps.leaving[address] <= 600.0
            x.push([3], [1.0])
            assert float(x.sum()) == 46.0
            assert sum("was told to end" in one.message for one in caplog.records) == 1
        assert process.wait(PATIENCE) == 0


def test_it_ends_when_time_is_up(tmp_path):
    with (
        serving(tmp_path, grace=0.2) as (process, address, token, _),
        dv.connect(address, token=token) as ps,
    ):
        x = ps.ones(10).persist()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        with pytest.raises(dv.ServerLost):
            float(x.sum())


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it(tmp_path, second):
    with (
        serving(tmp_path, grace=600) as (process, address, token, web),
        dv.connect(address, token=token),
    ):
        process.send_signal(signal.SIGTERM)
        await_drain(web)
        process.send_signal(second)
        assert process.wait(PATIENCE) == 0


def test_without_sessions_it_ends_at_once(tmp_path):
    with serving(tmp_path, grace=600) as (process, *_):
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
