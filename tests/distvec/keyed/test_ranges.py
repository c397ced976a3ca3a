"""Keyed spaces over numbered keys do what plain arrays do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5000), st.data())
def test_they_are_rows_of_a_plain_table(sessions, n, data):
    keys = data.draw(st.lists(st.integers(0, n - 1), max_size=8))
    rows = np.random.default_rng(n).integers(-9, 9, (len(keys), 3)).astype(float)
    for count, ps in sessions.items():
        space = ps.keys(range(n))
        w, t = space.zeros(), space.table(3, dtype="float64", init=dv.uniform(0, 1, seed=5))
        plain = t.values.numpy()
        assert plain.shape == (n, 3) and len(np.unique(plain)) > n
        assert len(space) == n and space.keys().tolist() == [*range(n)]
        np.testing.assert_array_equal(t.pull(keys), plain[keys].reshape(-1, 3))
        t.push(keys, rows)
        np.add.at(plain, keys, rows)
        np.testing.assert_allclose(t.values.numpy(), plain)
        w.assign(keys, 1.0)
        given = ps.array(np.arange(n))  # aligned to any plain array of that length
        assert float(w.values @ given) == sum(set(keys))
        w.assign(2.0 * given)
        assert w.pull(keys).tolist() == [2 * key for key in keys]
        assert space.contains(keys).all(), count


def test_what_a_range_refuses(ps):
    space = ps.keys(range(10))
    w = space.zeros()
    for keys in ([10], [-1], [3, 10]):
        with pytest.raises(IndexError, match=r"key (10|-1) is not in range\(10\)"):
            w.push(keys, 1.0)
    with pytest.raises(TypeError, match="evict: the keys of a range cannot be removed"):
        space.evict(w.values == 0)
    with pytest.raises(TypeError, match="remove: the keys of a range cannot be removed"):
        space.remove([1])
    with pytest.raises(ValueError, match="admit= has no effect"):
        ps.keys(range(3), admit=2)
    for wrong in (10, range(1, 5), range(0, 9, 2)):
        with pytest.raises(TypeError, match=r"must be range\(n\)"):
            ps.keys(wrong)
    with pytest.raises(ValueError, match="would have no keys"):
        ps.keys(range(0))


def test_their_rows_take_steps_and_are_saved(ps, tmp_path):
    space = ps.keys(range(2000))
    t = space.table(4, dtype="float64")
    t.optimizer(dv.rows.adagrad(0.5))
    t.step([3, 1999, 3], np.ones((3, 4)))
    assert t.pull([3])[0, 0] == pytest.approx(-0.5)
    dv.save(tmp_path / "t", t=t)
    with dv.local(3, in_process=True) as other:
        again = other.load(tmp_path / "t")["t"]
        assert np.asarray(again).tobytes() == np.asarray(t).tobytes()
        assert len(again.space) == 2000
        again.push([0], np.ones((1, 4)))
    assert ps.keys(range(10**6)).state().bytes == 0
