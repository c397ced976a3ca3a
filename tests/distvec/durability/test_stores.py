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
from distvec.array.core.conversion import buffer_of
from distvec.durability.load import _groups
from ps_backend.client import Client
from ps_backend.client.files import Source
from ps_backend.durability import formats
from ps_backend.durability.file_checksums import FileRange
from ps_backend.durability.stores import Directory, Remote, open_within
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
            piece = FileRange(file, 0, 0, 1000, 1024, (0,))
            with pytest.raises(dv.StoreFailed, match="distvec serve --store"):
                ps.client.load([Source(fresh.id, fresh.type, store, [piece])])
    assert (outside / "secret").read_bytes() == b"x" * 8000
    assert os.listdir(outside) == ["secret"]


def test_checkpoints_go_below_the_urls_that_clients_may_name():
    place = f"memory://distvec-{secrets.token_hex(4)}"
    with session_within(f"{place}/models/") as ps:
        w = ps.arange(300_000.0).persist()
        ps.checkpoint(f"{place}/models/run1", w=w)
        assert ps.restore(f"{place}/models/run1")["w"].numpy().tolist() == list(range(300_000))
        buffer = buffer_of(w)
        for store, file in [
            (f"{place}/models2", "w"),
            (place, "models/w"),
            (f"{place}/models/../w", "w"),
            (f"{place}/models", "run1/../../w"),
        ]:
            with pytest.raises(dv.StoreFailed, match="distvec serve --store"):
                ps.client.save({buffer.id: buffer.type}, {buffer.id: "w"}, store, [file] * 2)


def test_the_error_names_the_folder_to_allow(tmp_path):
    with session_within(tmp_path / "models") as ps, pytest.raises(dv.StoreFailed) as failed:
        ps.checkpoint(tmp_path / "run1", w=ps.ones(1000).persist())
    assert f"distvec serve --store {tmp_path / 'run1'} " in str(failed.value)


@pytest.mark.parametrize("name", ["m.safetensors", "folder"])
def test_one_server_sees_the_files_and_the_other_does_not(tmp_path, name):
    values = np.arange(5000.0)
    openers = open_within([tmp_path]), open_within([])
    made = [
        InProcess(Service(memory=1 << 28, open_store=opener), f"s{k}")
        for k, opener in enumerate(openers)
    ]
    with dv.Session(Client(made)) as ps:
        ps.save(tmp_path / name, w=ps.array(values), v=ps.array(-values))
        assert dv.load(tmp_path / name)["v"].tolist() == (-values).tolist()
        found = ps.load(tmp_path / name)
        assert found["w"].numpy().tolist() == values.tolist()
        assert found["v"].numpy().tolist() == (-values).tolist()


def test_a_server_that_finds_another_file_there(tmp_path):
    """As on a machine with a copy of its own, that was not renewed."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()

    def open_there(url):
        return Directory(url.replace("/here", "/there"))

    made = [InProcess(Service(memory=1 << 28, open_store=open_there), "elsewhere")]
    with dv.Session(Client(made)) as ps:
        dv.save(tmp_path / "there" / "w.npy", w=np.zeros(3000))
        ps.save(tmp_path / "here" / "w.npy", w=ps.array(np.arange(3000.0)))
        assert dv.load(tmp_path / "here" / "w.npy")["w"].tolist() == list(range(3000))
        assert ps.load(tmp_path / "here" / "w.npy")["w"].numpy().tolist() == list(range(3000))
        assert not dv.load(tmp_path / "there" / "w.npy")["w"].any(), "and it is let be"


class Interrupted(Remote):
    """Uploads of more than so many bytes break off."""

    def __init__(self, url, most):
        super().__init__(url)
        self.most = most

    def write(self, name, chunks):
        def some():
            size = 0
            for chunk in chunks:
                size += len(chunk)
                if size > self.most:
                    raise OSError("connection reset")
                yield chunk

        return super().write(name, some())


@pytest.mark.parametrize("name", ["m.safetensors", "m.npy", "folder"])
def test_uploads_that_break_off_leave_what_was_there(tmp_path, ps, name):
    root = f"memory://{tmp_path.name}"
    inner = "" if name == "folder" else name
    old, new = np.zeros(3000), np.ones(3000)
    ps.save(f"{root}/{inner}", w=ps.array(old))
    before = Remote(root).names()
    for most in (10, 500, 9000):
        with pytest.raises(OSError, match="connection reset"):
            ps.save(name, w=ps.array(new), store=Interrupted(root, most))
        assert Remote(root).names() == before
        assert dv.load(f"{root}/{inner}")["w"].tolist() == old.tolist()
    ps.save(f"{root}/{inner}", w=ps.array(new))
    assert dv.load(f"{root}/{inner}")["w"].tolist() == new.tolist()
    assert len(Remote(root).names()) == len(before)


def test_many_small_arrays_go_together(tmp_path, ps):
    arrays = {f"a{k}": ps.full(3, k) for k in range(300)}
    dv.evaluate(*arrays.values())
    ps.counters.reset()
    ps.save(tmp_path / "many.safetensors", arrays)
    assert ps.counters.messages == 2, "256 arrays in one, and the rest"
    found = ps.load(tmp_path / "many.safetensors")
    assert ps.counters.messages == 4
    assert [int(found[name][0]) for name in ("a0", "a255", "a256", "a299")] == [0, 255, 256, 299]


class Counting(Directory):
    """Counts the bytes that are read."""

    nbytes = 0

    def read(self, name, start, into):
        self.nbytes += len(into)
        super().read(name, start, into)


@pytest.mark.parametrize("name", ["w.npy", "w.safetensors"])
def test_what_has_no_room_is_refused_before_its_rows_are_read(tmp_path, ps, name):
    rows = 10**11
    head = formats.npy_header("float64", (rows,), by_columns=False)
    if name != "w.npy":
        head, _ = formats.safetensors_header([("w", "float64", (rows,))])
    with open(tmp_path / name, "wb") as file:
        file.write(head)
        file.truncate(len(head) + 8 * rows)  # sparse: it takes no room
    store = Counting(tmp_path)
    with pytest.raises(dv.OutOfBudget, match=rf"loading {tmp_path}/{name} needs \d{{12}} bytes on"):
        ps.load(name, store=store)
    assert store.nbytes < 1000


def test_own_arrays_that_have_no_room_are_refused_before_any_is_loaded(tmp_path):
    with dv.local(1, in_process=True, memory=64 << 20) as ps:
        ps.save(tmp_path / "w", a=ps.ones(3 << 20), b=ps.zeros(3 << 20))
    with dv.local(1, in_process=True, memory=40 << 20) as ps:
        with pytest.raises(dv.OutOfBudget, match="needs 50331648 bytes on server 0"):
            ps.load(tmp_path / "w")
        assert ps.client.status()[0].peak < 1 << 20


def test_files_of_others_are_read_once_without_a_session(tmp_path):
    np.save(tmp_path / "w.npy", np.arange(3e5))
    store = Counting(tmp_path)
    assert dv.load("w.npy", store=store)["w"].tolist() == np.arange(3e5).tolist()
    assert store.nbytes < 8 * 3e5 + 1000


def test_groups_of_arrays_take_linear_time():
    class Array:
        looks = 0

        @property
        def nbytes(self):
            Array.looks += 1
            return 8

    assert len(list(_groups([Array() for _ in range(1000)]))) == 4
    assert Array.looks == 1000


def test_what_is_no_file_of_arrays_says_what_to_do(tmp_path, ps):
    np.savez(tmp_path / "x.npz", w=np.ones(3))
    (tmp_path / "x.bin").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"ps\.array\(numpy\.load\('.*/x\.npz'\)\['w'\]\)"):
        ps.load(tmp_path / "x.npz")
    with pytest.raises(ValueError, match=r"x\.bin is a file, but neither \.safetensors nor \.npy"):
        dv.load(tmp_path / "x.bin")
    with pytest.raises(ValueError, match=r"\.npz files are not supported; .* \.safetensors"):
        ps.save(tmp_path / "x.npz", w=ps.ones(3))
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder .*/nothing$"):
        ps.load(tmp_path / "nothing")


def test_checkpoints_are_for_restore(tmp_path, ps):
    ps.checkpoint(tmp_path, w=ps.ones(3))
    with pytest.raises(ValueError, match=r"holds checkpoints of a session; .*ps\.restore"):
        ps.load(tmp_path)
    (folder,) = tmp_path.glob("ckpt-*")
    with pytest.raises(ValueError, match=r"ps\.restore"):
        ps.load(folder)
    with pytest.raises(FileExistsError, match="contains a checkpoint"):
        ps.save(folder, w=ps.ones(3))


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
