"""Random order and choice: the same on any number of servers, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest

import distvec as dv
from distvec.testing import assert_plan


def test_the_same_on_any_number_of_servers(sessions: dict[int, dv.Session]) -> None:
    values = np.arange(3000.0) ** 2
    found = []
    for ps in sessions.values():
        draw = ps.random
        order = draw.permutation(3000, seed=1)
        x = ps.array(values)
        shuffled = x.copy()
        draw.shuffle(shuffled, seed=1)
        some = draw.choice(x, 100, replace=False, seed=1)
        again = draw.choice(x, (50, 2), seed=1)
        found.append([one.numpy() for one in (order, shuffled, some, again)])
        assert draw.permutation(x, seed=1).numpy().tolist() == shuffled.numpy().tolist()
        assert np.array_equal(x.numpy(), values), "another array"
    for others in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(others, found[0], strict=True))
    order, shuffled, some, again = found[0]
    assert np.array_equal(np.sort(order), np.arange(3000))
    assert np.array_equal(shuffled, values[order])
    assert np.array_equal(some, shuffled[:100])
    assert again.shape == (50, 2)
    assert np.isin(again, values).all()


def test_rows_and_columns(ps: dv.Session) -> None:
    values = np.arange(6000).reshape(2000, 3)
    table = ps.array(values)
    order = ps.random.permutation(2000, seed=3).numpy()
    assert np.array_equal(ps.random.permutation(table, seed=3).numpy(), values[order])
    assert np.array_equal(ps.random.permutation(values, seed=3).numpy(), values[order])
    columns = ps.random.permutation(3, seed=3).numpy()
    assert np.array_equal(ps.random.permutation(table, 1, seed=3).numpy(), values[:, columns])
    rows = ps.random.choice(table, 5, seed=3).numpy()
    assert rows.shape == (5, 3)
    assert all(row in values.tolist() for row in rows.tolist())


def test_what_it_costs(ps: dv.Session) -> None:
    order = ps.random.permutation(30_000, seed=1)
    assert_plan(order + 1, messages=1, sweeps=1, vectors_read=0, vectors_written=1)
    assert_plan(ps.random.permutation(ps.zeros(30_000).persist(), seed=1), messages=2)
    total = ps.random.choice(1000, 30_000, seed=2).sum()
    assert_plan(total, messages=1, vectors_read=0, vectors_written=0)
    ps.counters.reset()
    assert len(np.unique(order[:300].numpy())) == 300
    assert ps.counters.peer_bytes <= 8 * 300
    assert not np.array_equal(ps.random.permutation(99).numpy(), ps.random.permutation(99).numpy())


def test_choice_by_probabilities(sessions: dict[int, dv.Session]) -> None:
    p = np.array([0.1, 0.0, 0.5, 0.4])
    drawn = []
    for ps in sessions.values():
        drawn.append(ps.random.choice(4, 20_000, p=p, seed=1).numpy())
        assert np.array_equal(ps.random.choice(4, 20_000, p=ps.array(p), seed=1).numpy(), drawn[-1])
    assert all(np.array_equal(one, drawn[0]) for one in drawn)
    counts = np.bincount(drawn[0], minlength=4)
    assert counts[1] == 0
    assert np.allclose(counts / 20_000, p, atol=0.02)


def test_choice_by_probabilities_without_replacement(sessions: dict[int, dv.Session]) -> None:
    p = np.array([0.6, 0.0, 0.3, 0.1])
    first = []
    for seed in range(60):
        drawn = sessions[2].random.choice(4, 3, replace=False, p=p, seed=seed).numpy()
        assert sorted(drawn.tolist()) == [0, 2, 3]
        first.append(drawn[0])
    assert 20 <= first.count(0) <= 52
    many = np.full(3000, 1 / 3000)
    found = [
        ps.random.choice(3000, 2000, replace=False, p=many, seed=1).numpy()
        for ps in sessions.values()
    ]
    assert len(np.unique(found[0])) == 2000
    assert all(np.array_equal(one, found[0]) for one in found)


def test_refused(ps: dv.Session) -> None:
    with pytest.raises(ValueError, match="larger sample than population"):
        ps.random.choice(5, 6, replace=False)
    with pytest.raises(TypeError, match="say how many"):
        ps.random.choice(5)
    with pytest.raises(ValueError, match="do not sum to 1"):
        ps.random.choice(2, 5, p=[0.5, 0.6])
    with pytest.raises(ValueError, match="Fewer non-zero entries"):
        ps.random.choice(3, 3, replace=False, p=[0.5, 0.5, 0.0])
    with pytest.raises(ValueError, match="read-only"):
        ps.random.shuffle(ps.zeros(5)[1:])
