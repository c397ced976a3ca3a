"""Health and metrics of a real server process by HTTP, and garbage at that port."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

import distvec as dv
from ps_backend.client.status import ServerStatus, slow_table
from ps_backend.metrics import SlowRequest
from ps_backend.processes.cli import main
from ps_backend.processes.http_server import HttpServer, Page
from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server's address, token file and HTTP address."""
    token = tmp_path_factory.mktemp("served") / "token"
    command = [sys.executable, "-m", "ps_backend", "serve", "--port", "0", "--http-port", "0"]
    command += ["--memory", "64m", "--token-file", str(token)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        address = lines[0].split()[-1]
        web = re.search(r"http://([\d.:]+)/", lines[2])[1]
        yield address, token, web
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def _get(web, path, method="GET"):
    connection = http.client.HTTPConnection(web, timeout=PATIENCE)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()
    finally:
        connection.close()


def test_health_and_metrics(served):
    address, token, web = served
    assert _get(web, "/healthz")[::2] == (200, "ok\n")
    assert _get(web, "/readyz")[::2] == (200, "ready\n")
    with dv.connect(address, token=token.read_text().strip()) as ps:
        float(ps.ones(10).sum())
        status, kind, text = _get(web, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert families["distvec_sessions"].samples[0].value == 1
    assert families["process_resident_memory_bytes"].samples[0].value > 1e7
    assert token.read_text().strip() not in text


def test_other_requests(served):
    web = served[2]
    assert _get(web, "/")[0] == 404
    assert _get(web, "/metrics", "POST")[0] == 405
    assert _get(web, "/metrics", "HEAD")[::2] == (200, "")
    assert _get(web, "/" + "a" * 5000)[0] == 431


def test_garbage_leaves_it_alive(served):
    host, port = served[2].split(":")
    for data in (b"\x00" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b""):
        with socket.create_connection((host, int(port)), PATIENCE) as stranger:
            stranger.sendall(data)
    assert _get(served[2], "/healthz")[0] == 200


def test_status_lists_slow_requests(served, capsys):
    address, token, _ = served
    assert main(["status", address, "--token-file", str(token), "--slow"]) == 0
    out = capsys.readouterr().out
    assert out == "no request took longer than a second\n" or out.startswith("ended (UTC)")


def test_slow_requests_of_all_servers_are_listed_by_their_ends():
    slow = [SlowRequest(10.0 + k, f"command{k}", 1.5, 2048, "abcdefgh") for k in range(3)]
    facts = {"version": "1", "instance": "i", "pid": 1, "uptime": 1.0, "sessions": 0, "buffers": 0}
    servers = [
        ServerStatus(address=f"s{k}:1", used=0, peak=0, budget=1, slow=tuple(part), **facts)
        for k, part in enumerate((slow[1:], slow[:1]))
    ]
    head, *lines = slow_table(servers).splitlines()
    assert head.split() == ["ended", "(UTC)", "server", "session", "request", "seconds", "bytes"]
    assert [line.split() for line in lines] == [
        ["1970-01-01", f"00:00:1{k}", "s1:1" if not k else "s0:1", "abcdefgh", f"command{k}",
         "1.50", "2.0", "KiB"]
        for k in range(3)
    ]  # fmt: skip


def test_connections_are_bounded():
    """Who only connects takes no more than the places; they end when he leaves."""
    server = HttpServer(lambda path, headers: Page(b"here\n"), "127.0.0.1", 0)
    try:
        address = ("127.0.0.1", server.port)
        silent = [socket.create_connection(address, PATIENCE) for _ in range(40)]
        for one in silent:
            one.close()
        status = 0
        while status != 200:  # until the places are free again
            try:
                status = _get(server.address, "/")[0]
            except (OSError, http.client.HTTPException):
                continue
    finally:
        server.close()
