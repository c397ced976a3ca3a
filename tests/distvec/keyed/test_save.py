"""Keyed spaces in files, and back on other servers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from ps_backend.errors import Corrupted


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40),
    st.sampled_from([1, 2, 3, 7]),
    st.sampled_from([1, 2, 3, 7]),
)
def test_what_was_saved_comes_back_on_other_servers(tmp_path_factory, sessions, keys, one, other):
    path = tmp_path_factory.mktemp("keyed") / "model.safetensors"
    space = sessions[one].keys(most_bytes=1 << 30)
    w, t = space.zeros("int64"), space.table(3, init=dv.normal(seed=1))
    for key in keys:  # in this order, which is none of their own
        w.push([key], [1])
        t.push([key, 0], 1.0)
    space.remove(keys[:3])
    dv.save(path, {"w": w, "t": t}, metadata={"trained": "today"})
    loaded = sessions[other].load(path)
    assert loaded.metadata == {"trained": "today"} and [*loaded] == ["w", "t"]
    again = loaded["w"].space
    assert again.keys().tolist() == space.keys().tolist()
    for before, after in ((w, loaded["w"]), (t, loaded["t"])):
        assert np.asarray(before).tobytes() == np.asarray(after).tobytes()
        wanted = [*keys, 5]
        assert before.pull(wanted).tobytes() == after.pull(wanted).tobytes()
    t.push(keys, 2.0)
    loaded["t"].push(keys, 2.0)
    assert again.keys().tolist() == space.keys().tolist()
    plain = dv.load(path)
    assert plain["keys"].dtype == np.int64 and plain["t"].shape[1:] == (3,)


def test_it_says_what_cannot_be_saved_together(ps, tmp_path):
    w, v = ps.keys().zeros(), ps.keys().zeros()
    with pytest.raises(ValueError, match="plain arrays to paths of their own"):
        dv.save(tmp_path / "m", w=w, v=v)
    with pytest.raises(ValueError, match="one keyed space and no others"):
        dv.save(tmp_path / "m", w=w, x=ps.zeros(3))
    with pytest.raises(ValueError, match="'keys' is the name of the saved keys"):
        dv.save(tmp_path / "m", keys=w)


def test_what_is_no_keyed_space_is_refused(ps, tmp_path):
    path = tmp_path / "m.safetensors"
    keys = np.array([1, 1])
    mark = '{"space": {}, "fills": {"w": {"kind": "Constant", "value": 0}}}'
    dv.save(path, keys=keys, w=np.ones(2), metadata={"distvec.keyed": mark})
    with pytest.raises(dv.InvalidProgram, match="must be unique and in the order of their buckets"):
        ps.load(path)
    dv.save(path, keys=keys, w=np.ones(2), metadata={"distvec.keyed": "{}"})
    with pytest.raises(Corrupted, match="describes the keyed space is damaged"):
        ps.load(path)
    assert ps.load(path, names=["w"])["w"].numpy().tolist() == [1, 1]
