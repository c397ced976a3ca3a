"""Buffers to files and back, on any number of servers."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from ps_backend.client import Client
from ps_backend.client.files import Source
from ps_backend.errors import Corrupted, OutOfBudget, StoreFailed
from ps_backend.in_process import InProcess, connect_in_process
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program
from ps_backend.program.types import DTYPES, array_type
from tests.ps_backend.helpers import axpy

SERVERS = st.integers(1, 7)


@st.composite
def arrays(draw):
    """An array of any dtype, a vector or a table, some of them empty or of a few blocks."""
    length = draw(st.sampled_from([0, 1, 5, 1024, 1025, 5000]))
    row = draw(st.sampled_from([(), (1,), (3,)]))
    seed = draw(st.integers(0, 99))
    raw = np.random.default_rng(seed).integers(0, 2, (length, *row, 64), np.uint8)
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    if dtype.kind == "b":
        return raw[..., 0].astype(bool)
    bits = np.packbits(raw, axis=-1)[..., : dtype.itemsize]
    return np.ascontiguousarray(bits).view(dtype)[..., 0]


def written(client, values):
    """Buffers with these ``values``, by id, and their types."""
    types = {}
    for array in values:
        number = client.new_id()
        space = DenseSpace(len(array))
        client.write(number, space, array)
        types[number] = array_type(space, array.dtype, array.shape[1:])
    return types


@settings(max_examples=40, deadline=None)
@given(st.lists(arrays(), min_size=1, max_size=3), SERVERS, SERVERS)
def test_what_some_servers_saved_others_load(tmp_path_factory, values, here, there):
    folder = str(tmp_path_factory.mktemp("saved"))
    with connect_in_process(here) as client:
        types = written(client, values)
        names = {number: f"a{k}" for k, number in enumerate(types)}
        files = [f"part-{k}.safetensors" for k in range(here)]
        pieces = client.save(types, names, folder, files)
    parts = [load_file(path) for file in files if (path := Path(folder, file)).exists()]
    for number, array in zip(types, values, strict=True):
        name = names[number]
        whole = np.concatenate([part[name] for part in parts if name in part])
        assert whole.tobytes() == array.tobytes(), "as the library of the format reads it"
    with connect_in_process(there) as client:
        sources = [Source(number, types[number], folder, pieces[number]) for number in types]
        client.load(sources)
        client.load(sources)
        for number, array in zip(types, values, strict=True):
            assert client.read(number, types[number]).tobytes() == array.tobytes()


def test_one_flipped_bit_is_found(tmp_path):
    with connect_in_process(2) as client:
        (number, kind), *_ = written(client, [np.arange(5000.0)]).items()
        pieces = client.save({number: kind}, {number: "w"}, str(tmp_path), ["a", "b"])
        again = client.save({number: kind}, {number: "w"}, str(tmp_path), ["a", "c"])[number]
        assert again[0].file != "a", "what is there is never written to"
        with pytest.raises(StoreFailed, match=r"server 1, .*: c/d: .*File exists"):
            client.save({number: kind}, {number: "w"}, str(tmp_path), ["e", "c/d"])
        client.free([number])
        client.write(client.new_id(), DenseSpace(1), np.zeros(1))
        place = tmp_path / "b"
        data = bytearray(place.read_bytes())
        data[pieces[number][1].offset + 9000] ^= 4
        place.write_bytes(data)
        with pytest.raises(Corrupted, match=rf"array {number}: rows 3072:4096 in b have the CRC"):
            client.load([Source(number, kind, str(tmp_path), pieces[number])])


def test_a_pinned_buffer_is_never_written(tmp_path):
    with connect_in_process(2) as client:
        x = np.arange(3000.0)
        types = written(client, [x, np.ones(3000)])
        number, other = types
        assert client.pin("p") == client.pin("p") == (types, {})
        made = client.new_id()
        kind = types[number]
        (call,) = axpy(kind.space, 2.0, number, other, made).calls
        client.run(Program((call._replace(donors=(number,)),)))
        assert client.read(made, kind).tolist() == (2.0 * x + 1.0).tolist()
        pushed = client.new_id()
        client.scatter_add(other, pushed, kind, [0], [5.0], donate=True)
        names = {number: "x", other: "y"}
        pieces = client.save(types, names, str(tmp_path), ["0", "1"], pin="p")
        client.unpin("p")
        client.load([Source(n, types[n], str(tmp_path), pieces[n]) for n in types])
        assert client.read(number, kind).tolist() == x.tolist()
        assert client.read(other, kind).tolist() == [1.0] * 3000


def test_what_lacks_the_memory_of_pinned_buffers_waits_for_it():
    with connect_in_process(1, memory=1 << 20) as client:
        types = written(client, [np.ones(100_000)])
        client.pin("p")
        client.free(types)
        later = threading.Timer(0.2, client.unpin, ["p"])
        later.start()
        written(client, [np.ones(100_000)])
        later.join()
        with pytest.raises(OutOfBudget):
            written(client, [np.ones(100_000)])


def test_what_a_client_keeps_goes_with_it():
    with connect_in_process(2) as client:
        types = written(client, [np.ones(3000)])
        services = [transport.service for transport in client._transports]
        with Client([InProcess(one, "") for one in services], session=client.secret) as other:
            assert other.pin("p").arrays == types
            assert client.pin("p").arrays == types
            client.unpin("p")
            (session,) = services[1].sessions.all()
            assert len(session.store.pins) == 1
        assert len(session.store.pins) == 0
