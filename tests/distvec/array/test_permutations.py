"""Random numbers, order and choice: the same on any number of servers, and what they cost."""

from __future__ import annotations

import inspect
import random
from typing import Any

import numpy as np
import pytest
import scipy.stats

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
    with pytest.raises(ValueError, match="do not sum to 1"):
        ps.random.choice(2, 5, p=[0.5, 0.6])
    with pytest.raises(ValueError, match="Fewer non-zero entries"):
        ps.random.choice(3, 3, replace=False, p=[0.5, 0.5, 0.0])
    with pytest.raises(ValueError, match="read-only"):
        ps.random.shuffle(ps.zeros(5)[1:])


DISTRIBUTIONS: dict[str, tuple[tuple[float, ...], Any]] = {
    "random": ((), scipy.stats.uniform()),
    "uniform": ((-1.0, 3.0), scipy.stats.uniform(-1, 4)),
    "normal": ((1.0, 2.0), scipy.stats.norm(1, 2)),
    "standard_normal": ((), scipy.stats.norm()),
    "exponential": ((2.0,), scipy.stats.expon(scale=2)),
    "standard_exponential": ((), scipy.stats.expon()),
    "lognormal": ((0.0, 0.5), scipy.stats.lognorm(0.5)),
    "laplace": ((1.0, 2.0), scipy.stats.laplace(1, 2)),
    "logistic": ((1.0, 2.0), scipy.stats.logistic(1, 2)),
    "gumbel": ((1.0, 2.0), scipy.stats.gumbel_r(1, 2)),
    "rayleigh": ((2.0,), scipy.stats.rayleigh(scale=2)),
    "weibull": ((1.5,), scipy.stats.weibull_min(1.5)),
    "pareto": ((3.0,), scipy.stats.lomax(3)),
    "power": ((2.0,), scipy.stats.powerlaw(2)),
    "standard_cauchy": ((), scipy.stats.cauchy()),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_distribution_is_scipys(ps: dv.Session, name: str) -> None:
    parameters, expected = DISTRIBUTIONS[name]
    drawn = getattr(ps.random, name)(*parameters, 20_000, seed=1)
    assert scipy.stats.kstest(drawn.numpy(), expected.cdf).pvalue > 0.01
    assert drawn.dtype == np.float64
    one = getattr(ps.random, name)(*parameters, size=(), seed=2)
    assert one.shape == () and one.numpy() == one.numpy()


@pytest.mark.parametrize(
    "name", [*DISTRIBUTIONS, "integers", "shuffle", "permutation", "permuted", "choice"]
)
def test_arguments_are_those_of_numpys_generator(ps: dv.Session, name: str) -> None:
    theirs = inspect.signature(getattr(np.random.default_rng(0), name)).parameters.values()
    ours = inspect.signature(getattr(ps.random, name)).parameters.values()
    *found, seed = ((one.name, one.default, one.kind) for one in ours)
    expected = [(one.name, one.default, one.kind) for one in theirs]
    if name == "standard_exponential":
        expected[2] = found[2]  # its methods are NumPy's own
    assert found == expected
    assert seed[0] == "seed"


@pytest.mark.parametrize("name", ["pareto", "power", "weibull", "exponential", "lognormal"])
def test_parameters_of_0_are_as_numpys(ps: dv.Session, name: str) -> None:
    given = (1.0, 0.0) if name == "lognormal" else (0,)
    if name in ("pareto", "power"):
        with pytest.raises(ValueError, match=f"{name}: a <= 0: a must be greater than 0, got 0"):
            getattr(ps.random, name)(*given, 3)
    else:
        expected = getattr(np.random.default_rng(0), name)(*given, 3)
        np.testing.assert_array_equal(getattr(ps.random, name)(*given, 3).numpy(), expected)


def test_parameters_may_be_arrays(ps: dv.Session) -> None:
    means = ps.arange(3000.0)
    drawn = ps.random.normal(means, 0.0, seed=1)
    np.testing.assert_array_equal(drawn.numpy(), np.arange(3000.0))
    rows = ps.random.uniform([0.0, 5.0], [1.0, 6.0], (9, 2), seed=1).numpy()
    assert (np.floor(rows) == [0, 5]).all()
    with pytest.raises(ValueError, match="broadcast"):
        ps.random.normal(np.zeros(3), 1.0, 2)


def test_a_single_argument_without_a_name_is_the_size(ps: dv.Session) -> None:
    first = ps.random.normal(1000, seed=1).numpy()
    assert np.array_equal(ps.random.normal(size=1000, seed=1).numpy(), first)
    assert np.array_equal(ps.random.normal(0, 1, 1000, seed=1).numpy(), first)
    assert ps.random.uniform((3, 2), low=2, high=4).shape == (3, 2)
    assert ps.random.normal(7, size=2).shape == (2,)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "bool"])
def test_integers_of_all_dtypes_reach_both_ends(ps: dv.Session, dtype: str) -> None:
    high = 1 if dtype == "bool" else 100
    drawn = ps.random.integers(0, high, 5000, dtype, endpoint=True, seed=1).numpy()
    assert drawn.dtype == dtype
    assert (int(drawn.min()), int(drawn.max())) == (0, high)
    assert ps.random.integers(5).shape == ()


def test_elements_are_permuted_each_row_in_an_order_of_its_own(ps: dv.Session) -> None:
    values = np.arange(3000).reshape(1000, 3)
    rows = ps.random.permuted(values, axis=1, seed=1).numpy()
    assert np.array_equal(np.sort(rows, axis=1), values)
    assert len(np.unique(rows % 3, axis=0)) == 6
    table = ps.array(values)
    assert ps.random.permuted(table, out=table, seed=1) is table
    assert np.array_equal(np.sort(table.numpy().ravel()), np.arange(3000))


def test_columns_are_chosen(ps: dv.Session) -> None:
    values = np.arange(12).reshape(3, 4)
    drawn = ps.random.choice(values, 9, axis=1, seed=1).numpy()
    assert drawn.shape == (3, 9)
    assert all(column in values.T.tolist() for column in drawn.T.tolist())


def test_floats_of_32_bits_are_below_1(ps: dv.Session) -> None:
    drawn = ps.random.random(100_000, "float32", seed=1)
    assert drawn.dtype == np.float32 and float(drawn.max()) < 1
    out = ps.zeros(9)
    assert ps.random.random(out=out) is out and float(out.min()) > 0


@pytest.mark.filterwarnings("ignore:you are shuffling")
def test_shuffles_of_the_client_are_refused(ps: dv.Session) -> None:
    ps.counters.reset()
    for x in (ps.arange(5000.0), ps.ones((3000, 2)).T):
        for rng in (np.random.default_rng(0), np.random, random):
            with pytest.raises(TypeError, match=r"ps\.random\.shuffle\(x\)"):
                rng.shuffle(x)  # type: ignore[arg-type]
    assert ps.counters.messages == 0
    x = ps.arange(5)
    x[1], x[2] = x[2], x[1]
    assert x.numpy().tolist() == [0, 2, 1, 3, 4]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda draw: draw.gamma(2.0, size=9), AttributeError, r"default_rng\(seed\)\.gamma"),
        (lambda draw: draw.normal(0, -1, 9), ValueError, "scale < 0"),
        (lambda draw: draw.uniform(3, 1, 9), ValueError, "high - low < 0"),
        (lambda draw: draw.integers(5, 5), ValueError, "low < high"),
        (lambda draw: draw.integers(300, dtype="int8"), ValueError, "high is out of bounds"),
        (lambda draw: draw.integers(-1, 3, dtype="uint8"), ValueError, "low is out of bounds"),
        (lambda draw: draw.integers(3, dtype="float64"), TypeError, "astype"),
        (lambda draw: draw.random(3, dtype="int32"), TypeError, "float64 or float32"),
    ],
)
def test_refused_draws_say_what_to_type(
    ps: dv.Session, call: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        call(ps.random)
