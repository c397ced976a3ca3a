"""Where servers may write, and what happens where they may not, or do not see the driver's disk."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

import distvec as dv
from distvec.array.values import buffer_of
from ps_backend.client import Client
from ps_backend.client.kept_arrays import Source
from ps_backend.durability.confined import open_within
from ps_backend.durability.parts import Piece
from ps_backend.in_process import InProcess
from ps_backend.server.service import Service


@contextmanager
def session_within(*folders):
    """A session on two servers whose clients may name files in ``folders`` alone."""
    opener = open_within(folders)
    made = [InProcess(Service(memory=1 << 28, open_store=opener), f"s{k}") for k in range(2)]
    with dv.Session(Client(made)) as ps:
        yield ps


def traffic(ps, act):
    """Bytes that ``act`` brings to the client, and sends from it."""
    ps.counters.reset()
    act()
    return ps.counters.bytes_received, ps.counters.bytes_sent


@pytest.mark.parametrize("name", ["m.safetensors", "m.npy", "folder"])
def test_values_go_through_the_client_where_servers_may_not_write(tmp_path, name):
    values = np.random.default_rng(0).normal(size=300_000)
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    with session_within(tmp_path / "here") as ps:
        w = ps.array(values)
        for folder, through_client in (("here", False), ("elsewhere", True)):
            path = tmp_path / folder / name
            received, _ = traffic(ps, lambda path=path: ps.save(path, w=w))
            assert (received >= values.nbytes) == through_client
            assert dv.load(path)["w"].tobytes() == values.tobytes()
            _, sent = traffic(ps, lambda path=path: ps.load(path))
            assert (sent >= values.nbytes) == through_client
            assert ps.load(path)["w"].numpy().tobytes() == values.tobytes()


def test_no_name_leads_out_of_the_folders(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    os.symlink(outside, inside / "link")
    (outside / "secret").write_bytes(b"x" * 8000)
    with session_within(inside) as ps:
        w = ps.ones(1000).persist()
        buffer = buffer_of(w)
        for store, file in [
            (str(outside), "secret"),
            (str(inside), "../outside/secret"),
            (str(inside), "link/secret"),
            (str(inside / "link"), "secret"),
            (f"file://{outside}", "secret"),
            ("memory://somewhere", "secret"),
        ]:
            with pytest.raises(dv.StoreFailed, match="distvec serve --store"):
                ps.client.save({buffer.id: buffer.type}, {buffer.id: "w"}, store, [file] * 2)
            fresh = ps.new_buffer(buffer.type)
            piece = Piece(file, 0, 0, 1000, 1024, (0,))
            with pytest.raises(dv.StoreFailed, match="distvec serve --store"):
                ps.client.load([Source(fresh.id, fresh.type, store, [piece])])
    assert (outside / "secret").read_bytes() == b"x" * 8000
    assert os.listdir(outside) == ["secret"]


def test_large_values_are_mapped_on_their_way(tmp_path, monkeypatch):
    monkeypatch.setattr("distvec.durability.load._MOST_IN_MEMORY", 1 << 10)
    values = np.arange(30_000.0).reshape(10_000, 3)
    np.save(tmp_path / "t.npy", values)
    with session_within() as ps:
        assert np.array_equal(ps.load(tmp_path / "t.npy")["t"].numpy(), values)


def test_serve_refuses_unless_it_is_told(tmp_path):
    token = tmp_path / "token"
    token.write_text(secrets.token_urlsafe(16))
    token.chmod(0o600)
    options = ["--port", "0", "--token-file", str(token), "--memory", "64m"]
    command = [sys.executable, "-m", "ps_backend", "serve", *options]
    allowed = ["--store", str(tmp_path)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first,
        subprocess.Popen([*command, *allowed], stdout=subprocess.PIPE, text=True) as second,
    ):
        try:
            for server, through_client in ((first, True), (second, False)):
                address = server.stdout.readline().split()[-1]
                with dv.connect(address, token=token.read_text()) as ps:
                    w = ps.array(np.arange(50_000.0))
                    path = tmp_path / "m.safetensors"
                    received, _ = traffic(ps, lambda ps=ps, w=w, path=path: ps.save(path, w=w))
                    assert (received >= w.nbytes) == through_client
                    assert np.array_equal(dv.load(path)["w"], w.numpy())
        finally:
            for server in (first, second):
                server.terminate()
