"""Counts in bins: ``bincount`` and histograms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.array.collectives import counting
from ps_backend.kernels.collectives import counting as loops

SERVERS = st.sampled_from((1, 2, 3, 7))


@pytest.fixture(params=["NumPy", "compiled"])
def chosen_loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "COMPILED_FROM", 1 if request.param == "compiled" else 1 << 60)


@pytest.mark.usefixtures("chosen_loops")
def test_bincount(sessions: dict[int, dv.Session]) -> None:
    @settings(max_examples=25)
    @given(
        servers=SERVERS,
        count=st.sampled_from((0, 1, 1500, 5000)),
        dtype=st.sampled_from(("i8", "u1", "i4", "?")),
        most=st.sampled_from((1, 5, 200)),
        minlength=st.sampled_from((0, 3, 300, 20_000)),
        weights=st.sampled_from((None, "f8", "f4", "i4")),
    )
    def check(
        servers: int, count: int, dtype: str, most: int, minlength: int, weights: str | None
    ) -> None:
        rng, session = np.random.default_rng(count), sessions[servers]
        host = rng.integers(0, most, count).astype(dtype)
        kwargs: dict[str, Any] = {"minlength": minlength}
        ours = dict(kwargs)
        if weights:
            kwargs["weights"] = (rng.standard_normal(count) * 5).astype(weights)
            ours["weights"] = session.array(kwargs["weights"])
        found, expected = np.bincount(session.array(host), **ours), np.bincount(host, **kwargs)
        assert found.dtype == expected.dtype and found.shape == expected.shape
        if weights and len(expected) <= counting.MOST_KEPT:
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)
            one = np.bincount(
                sessions[1].array(host), sessions[1].array(kwargs["weights"]), minlength
            )
            assert found.numpy().tobytes() == one.numpy().tobytes()
        else:
            assert found.numpy().tobytes() == expected.tobytes()

    check()


@pytest.mark.usefixtures("chosen_loops")
def test_histogram(sessions: dict[int, dv.Session]) -> None:
    @settings(max_examples=40)
    @given(
        servers=SERVERS,
        dtype=st.sampled_from(("f8", "f4", "f2", "i8", "u1")),
        bins=st.sampled_from(
            (
                1,
                10,
                97,
                (-1.0, 0.0, 0.5, 0.5, 3.0),
                "sturges",
                "rice",
                "sqrt",
                "scott",
                "fd",
                "auto",
            )
        ),
        limits=st.sampled_from((None, (-1, 2), (0.1, 0.7))),
        weights=st.sampled_from((None, "f8", "i4")),
        density=st.booleans(),
    )
    def check(
        servers: int, dtype: str, bins: Any, limits: Any, weights: str | None, density: bool
    ) -> None:
        if isinstance(bins, str) and (weights or limits):
            return
        rng, session = np.random.default_rng(3), sessions[servers]
        host = np.round(rng.standard_normal(3000) * 2, 1).clip(-5, 5)
        host = (np.abs(host) if dtype == "u1" else host).astype(dtype)
        kwargs: dict[str, Any] = {"bins": bins, "range": limits, "density": density}
        ours = dict(kwargs)
        if weights:
            kwargs["weights"] = (rng.random(3000) * 5).astype(weights)
            ours["weights"] = session.array(kwargs["weights"])
        found, edges = np.histogram(session.array(host), **ours)
        with np.errstate(all="ignore"):
            expected, wanted = np.histogram(host, **kwargs)
        assert edges.numpy().tobytes() == wanted.tobytes() and edges.dtype == wanted.dtype
        assert found.dtype == expected.dtype
        if weights or density:
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
        else:
            assert found.numpy().tobytes() == expected.tobytes()

    check()


def test_nan_is_in_no_bin_and_tables_are_counted_whole(ps: dv.Session) -> None:
    host = np.array([[0.0, np.nan], [1.0, 0.25], [np.inf, -3.0]])
    for kwargs in ({"bins": 4, "range": (0, 1)}, {"bins": [0.0, 0.5, 1.0]}):
        found = np.histogram(ps.array(host), **kwargs)[0].numpy()
        assert found.tobytes() == np.histogram(host, **kwargs)[0].tobytes()
    with pytest.raises(ValueError, match=r"autodetected range of \[nan, nan\] is not finite"):
        np.histogram(ps.array(host))
    edges = np.histogram_bin_edges(ps.array([1, 2, 5]), 4)
    assert edges.numpy().tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_one_message_and_one_that_finds_the_length_once(ps: dv.Session) -> None:
    labels = ps.array(np.arange(5000) % 7)
    ps.counters.reset()
    found = np.bincount(labels)
    assert ps.counters.messages == 1 and ps.implicit_evaluations == 1
    assert found.numpy().tolist() == np.bincount(np.arange(5000) % 7).tolist()
    assert (ps.counters.messages, ps.counters.phases, ps.counters.peer_messages) == (2, 0, 0)
    with ps.strict():
        weighted = np.bincount(labels, weights=labels * 2.0, minlength=10)
    weighted.persist()
    assert ps.counters.messages == 3 and ps.implicit_evaluations == 1


def test_the_histograms_of_all_features_are_one_pass(ps: dv.Session) -> None:
    """A level of boosted trees: sums of gradients by node and bin, for each column of a table."""
    rng = np.random.default_rng(0)
    binned = rng.integers(0, 8, (5000, 3)).astype(np.uint8)
    gradient, above = rng.standard_normal(5000), rng.random(5000) < 0.5

    def level(binned: Any, gradient: Any, node: Any, nodes: int) -> Any:
        return [
            np.bincount(node * 8 + binned[:, f], weights=gradient**2, minlength=nodes * 8)
            for f in range(3)
        ]

    table, g, half = ps.array(binned), ps.array(gradient), ps.array(above)
    node: Any = ps.zeros(5000, dtype=np.int64)
    expected = np.zeros(5000, np.int64)
    for depth in range(3):
        ps.counters.reset()
        found = level(table, g, node, 2**depth)
        dv.evaluate(*found)
        # The greatest bin is found once. The bounds of the nodes follow from those before.
        assert ps.counters.messages == (2 if depth == 0 else 1)
        np.testing.assert_allclose(found, level(binned, gradient, expected, 2**depth))
        node, expected = 2 * node + half, 2 * expected + above


BOUNDED: dict[str, Any] = {
    "sum": lambda x, y: x + y,
    "difference": lambda x, y: x - y,
    "product": lambda x, y: 3 * x * y,
    "choice": lambda x, y: np.where(x > y, x + 1, 2 * y),
    "clip": lambda x, y: np.clip(x * x - y, 0, 9),
    "remainder": lambda x, y: (x - 5) % 4 + y // 3,
    "narrow": lambda x, y: (x * 100).astype(np.int8) + y,
    "from floats": lambda x, y: np.floor(x / 2.0).astype(np.int64) + y,
    "moved": lambda x, y: x[y % 3] + y[::-1] + np.maximum(x, y),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_numbers_are_counted_whatever_they_are_made_of(ps: dv.Session, name: str) -> None:
    @settings(max_examples=8)
    @given(
        most=st.sampled_from((1, 4, 90)),
        dtype=st.sampled_from(("i8", "u1", "i2")),
        minlength=st.sampled_from((1, 10, 60, 1000)),
    )
    def check(most: int, dtype: str, minlength: int) -> None:
        rng = np.random.default_rng(most)
        host = [rng.integers(0, most, 50).astype(dtype) for _ in range(2)]
        ours = [ps.array(one) for one in host]
        for least in (minlength, 2000, minlength):  # what is found out is remembered
            try:
                expected = np.bincount(BOUNDED[name](*host), minlength=least)
            except (ValueError, TypeError) as error:
                with pytest.raises(type(error)):
                    np.bincount(BOUNDED[name](*ours), minlength=least)
            else:
                found = np.bincount(BOUNDED[name](*ours), minlength=least)
                assert found.numpy().tolist() == expected.tolist()

    check()


def test_a_histogram_of_a_known_range_is_lazy(ps: dv.Session) -> None:
    x = ps.array(np.linspace(0, 1, 5000))
    ps.counters.reset()
    with ps.strict():
        counts, _ = np.histogram(2 * x, bins=10, range=(0.0, 2.0))
        share = counts / len(x)
    assert ps.counters.messages == 0
    np.testing.assert_allclose(share.numpy(), 0.1)
    assert ps.counters.messages == 1


def test_many_numbers_are_counted_where_they_belong(ps: dv.Session) -> None:
    rng = np.random.default_rng(0)
    host, weights = rng.integers(0, 40_000, 5000), rng.standard_normal(5000)
    where = ps.array(host)
    found = np.bincount(where, weights=ps.array(weights), minlength=50_000)
    ps.counters.reset()
    found.persist()
    assert ps.counters.messages == ps.counters.phases == 2
    assert not found.node.on_client
    assert found.numpy().tobytes() == np.bincount(host, weights, 50_000).tobytes()


def test_bincount_of_the_widest_integers(ps: dv.Session) -> None:
    host = np.array([3, 1, 3], np.uint64)
    np.testing.assert_array_equal(np.bincount(ps.array(host)).numpy(), np.bincount(host))


def test_what_bincount_refuses(ps: dv.Session) -> None:
    with pytest.raises(ValueError, match="must have no negative elements"):
        np.bincount(ps.array([1, -1]))
    with pytest.raises(TypeError, match="Cannot cast array data from dtype"):
        np.bincount(ps.array([1.0]))
    with pytest.raises(ValueError, match="object too deep"):
        np.bincount(ps.zeros((3, 2), np.int64))
    with pytest.raises(ValueError, match="don't have the same length"):
        np.bincount(ps.array([1, 2]), weights=ps.array([1.0]))
    with pytest.raises(ValueError, match="'minlength' must not be negative"):
        np.bincount(ps.array([1, 2]), minlength=-1)
    with pytest.raises(ValueError, match="no negative"):
        np.bincount(ps.array([2**63], dtype="uint64"))
    with ps.strict(), pytest.raises(RuntimeError, match=r"bincount\(\) at .* evaluates"):
        np.bincount(ps.array([3, 4]))


def test_sums_of_weights_have_a_gradient(ps: dv.Session) -> None:
    numbers, weights = np.arange(3000) % 7, np.linspace(1, 2, 3000)
    found = dv.grad(lambda w: np.sum(np.bincount(ps.array(numbers), weights=w) ** 2))(
        ps.array(weights)
    )
    expected = 2 * np.bincount(numbers, weights)[numbers]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
