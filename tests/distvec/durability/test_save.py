"""Arrays to files and back: the same bits, on any number of servers, and in other libraries."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import distvec as dv
from ps_backend.program.types import DTYPES

SERVERS = st.sampled_from([1, 2, 3, 7])
LENGTHS = st.sampled_from([0, 1, 5, 1024, 1025, 5000])


@st.composite
def arrays(draw):
    """NumPy's arrays of any dtype and bits: numbers, vectors, tables, of no or of a few blocks."""
    row = draw(st.sampled_from([None, (), (1,), (3,)]))
    shape = () if row is None else (draw(LENGTHS), *row)
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    raw = rng.integers(0, 2 if dtype.kind == "b" else 256, (*shape, dtype.itemsize), np.uint8)
    return raw.view(dtype)[..., 0]


def same(found, values) -> bool:
    """Whether they have the same shape, dtype and bits."""
    array = found if isinstance(found, np.ndarray) else found.numpy()
    return (
        array.shape == values.shape
        and array.dtype == values.dtype
        and array.tobytes() == values.tobytes()
    )


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(st.text(min_size=1, max_size=5), arrays(), min_size=1, max_size=3),
    st.sampled_from(["m.safetensors", "folder"]),
    SERVERS,
    SERVERS,
    st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2),
)
@example({"w": np.array(-0.0)}, "folder", 1, 7, {})
def test_what_some_servers_saved_others_load(
    tmp_path_factory, sessions, values, name, here, there, texts
):
    path = tmp_path_factory.mktemp("saved") / name
    put = {key: sessions[here].array(array) for key, array in values.items()}
    dv.save(path, put, metadata=texts)
    on_servers, on_client = dv.load(path, sessions[there]), dv.load(path)
    assert list(on_client) == list(on_servers) == list(values)
    assert on_client.metadata == on_servers.metadata == texts
    for key, array in values.items():
        assert same(on_client[key], array) and same(on_servers[key], array)
    if path.is_file():
        for key, array in load_file(path).items():
            assert same(array, values[key])


@settings(max_examples=20, deadline=None)
@given(arrays(), SERVERS, SERVERS)
def test_a_file_of_numpys(tmp_path_factory, sessions, values, here, there):
    path = tmp_path_factory.mktemp("saved") / "given.npy"
    dv.save(path, w=sessions[here].array(values))
    assert same(np.load(path), values) and same(dv.load(path, sessions[there])["w"], values)
    np.save(path, values)
    assert same(dv.load(path)["given"], values)
    assert same(dv.load(path, sessions[there])["given"], values)


@pytest.mark.parametrize("name", ["m.safetensors", "folder/", "memory://saved/m.safetensors"])
def test_all_that_stands_for_values_is_saved(tmp_path, ps, name):
    path = name if "://" in name else f"{tmp_path}/{name}"
    x = ps.random.normal(5000)
    t = ps.array(np.arange(6000.0).reshape(2000, 3))
    given = {
        "lazy": 2 * x + 1,
        "slice": x[3:4000:7],
        "chosen": x[x > 0],
        "turned": t.T,
        "columns": ps.space(3, split="columns").array(np.arange(6000.0).reshape(3, 2000)),
        "number": x.sum(),
        "same": x,
        "again": x,
        "numpy": np.arange(5, dtype=">i2"),
        "list": [1.5, 2.5],
    }
    for _ in range(2):  # what is there is replaced
        ps.save(path, given)
    with dv.local(servers=3, in_process=True) as other:
        found = other.load(path, progress=True)
        for key, array in given.items():
            expected = np.asarray(array)
            assert np.array_equal(np.asarray(found[key]), expected)
            assert np.array_equal(dv.load(path, names=[key])[key], expected)
    with pytest.raises(KeyError, match="no array called 'v'; it has: lazy"):
        dv.load(path, names=["v"])
    with pytest.raises(KeyError, match="no array called 'v' was loaded"):
        found["v"]


def test_tables_stay_split_as_they_are(tmp_path, ps):
    t = ps.array(np.arange(6000.0).reshape(2000, 3))
    dv.save(tmp_path / "folder", t=t.T)
    dv.save(tmp_path / "t.npy", t=t.T)
    assert np.load(tmp_path / "t.npy").flags.f_contiguous
    for path in ("folder", "t.npy"):
        assert type(ps.load(tmp_path / path)["t"]) is type(t.T)
    ps.counters.reset()
    ps.load(tmp_path / "folder")
    assert ps.counters.messages == 1


def test_what_others_wrote(tmp_path, sessions):
    values = {"w": np.arange(100_000.0), "t": np.ones((3, 4, 5), np.float32)}
    save_file(values, tmp_path / "theirs.safetensors", metadata={"by": "them"})
    found = dv.load(tmp_path / "theirs.safetensors")
    assert found.metadata == {"by": "them"} and same(found["t"], values["t"])
    assert same(sessions[3].load(tmp_path / "theirs.safetensors", names=["w"])["w"], values["w"])
    with pytest.raises(NotImplementedError, match="at most 2 axes"):
        sessions[3].load(tmp_path / "theirs.safetensors")
    for version in [(1, 0), (2, 0), (3, 0)]:
        with open(tmp_path / "v.npy", "wb") as file:
            np.lib.format.write_array(file, values["w"], version)
        assert same(sessions[2].load(tmp_path / "v.npy")["v"], values["w"])
    np.save(tmp_path / "f.npy", np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    assert sessions[2].load(tmp_path / "f.npy")["f"].numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    for odd in (np.arange(3, dtype=">f8"), np.zeros(2, complex), np.array(["a"])):
        np.save(tmp_path / "odd.npy", odd)
        with pytest.raises(TypeError, match="in this machine's byte order: numpy"):
            dv.load(tmp_path / "odd.npy")


def test_what_cannot_be_saved_says_why(tmp_path, ps, sessions):
    x = ps.zeros(3)
    with pytest.raises(ValueError, match="got no arrays; pass some by name"):
        dv.save(tmp_path / "a")
    with pytest.raises(ValueError, match="two sessions"):
        dv.save(tmp_path / "a", x=x, y=sessions[1].zeros(3))
    with pytest.raises(ValueError, match=r"holds one array alone, not 2 arrays: save to .safeten"):
        dv.save(tmp_path / "a.npy", x=x, y=x)
    with pytest.raises(TypeError, match=r"save\(x=...\) got a list of dtype <U1"):
        dv.save(tmp_path / "a", x=["a"])
    with pytest.raises(TypeError, match="must be strings"):
        dv.save(tmp_path / "a", x=x, metadata={"epoch": 3})
    with pytest.raises(ValueError, match="is reserved for checksums"):
        dv.save(tmp_path / "a.safetensors", x=x, metadata={"distvec.crc32": "3"})
    with pytest.raises(NotImplementedError, match=r"save it to a \.safetensors file"):
        dv.save(tmp_path / "a", x=np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match="the path is empty"):
        dv.save("", x=x)
    assert os.listdir(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        dv.load(tmp_path / "nothing")
    Path(tmp_path, "other").write_text("something else")
    with pytest.raises(dv.CheckpointIncomplete, match="no save to it was completed"):
        dv.load(tmp_path)


def test_real_servers(tmp_path):
    with dv.local(servers=2) as ps:
        x = ps.random.normal(100_000)
        ps.save(tmp_path / "m.safetensors", x=x)
        ps.save("memory://streamed/x.npy", x=x)
        assert same(ps.load("memory://streamed/x.npy")["x"], x.numpy())
        ps.counters.reset()
        assert same(
            ps.load(tmp_path / "m.safetensors")["x"], dv.load("memory://streamed/x.npy")["x"]
        )
