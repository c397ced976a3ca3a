"""Tables, slices and masks on servers that are processes, between which things move by gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distvec as dv
from tests.distvec.array.test_tables import EXACT, SUMS, value_of

HOST = np.round(np.random.default_rng(0).standard_normal((2500, 3)), 1)
VECTOR = np.random.default_rng(1).standard_normal(5000)


@pytest.fixture(scope="module")
def apart() -> Iterator[dv.Session]:
    with dv.local(servers=3) as session:
        yield session


@pytest.mark.parametrize("functions", [EXACT, SUMS], ids=["bits", "sums"])
def test_functions_of_tables(apart: dv.Session, functions: dict[str, Callable[..., Any]]) -> None:
    table = apart.array(HOST)
    for name, function in functions.items():
        if "axis 2" in name or "twice" in name or "wrong" in name:
            continue
        ours, theirs = value_of(function(table)), np.asarray(function(HOST))
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9, err_msg=name, strict=True)


def heat(u: Any) -> Any:
    u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    u[::3] *= 2
    u[u > 1] = 0.5
    u[[3, -3, 3]] = [1.0, 2.0, 3.0]
    return u


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[1:] - x[:-1],
        lambda x: x[::2] + x[1::2],
        lambda x: x[::-1] * x,
        lambda x: x[1024:] + x[:-1024],
        lambda x: x[x > 0],
        lambda x: x[4990:].max() + x[-1],
        lambda x: x.reshape(1000, 5)[::7, 1:3],
        lambda x: np.flatnonzero(x > 1),
        lambda x: x[[4999, 0, 0, 2500]],
        lambda x: heat(x.copy()),
    ],
)
def test_parts_of_vectors(apart: dv.Session, function: Callable[[Any], Any]) -> None:
    ours, theirs = value_of(function(apart.array(VECTOR))), function(VECTOR.copy())
    np.testing.assert_array_equal(ours, np.asarray(theirs), strict=True)


def test_what_indices_name_and_where_values_belong(apart: dv.Session) -> None:
    rng = np.random.default_rng(2)
    where, values = rng.integers(0, 5000, 30_000), rng.standard_normal(30_000)
    x, i, v = apart.array(VECTOR), apart.array(where), apart.array(values)
    expected = VECTOR.copy()
    expected[where] = values
    np.add.at(expected, where, values)
    x[i] = v
    np.add.at(x, i, v)
    assert x.numpy().tobytes() == expected.tobytes()
    assert x[i].numpy().tobytes() == expected[where].tobytes()
    assert np.bincount(i).numpy().tobytes() == np.bincount(where).tobytes()
    table = np.sort(VECTOR)
    found = np.searchsorted(apart.array(table), v)
    assert found.numpy().tobytes() == np.searchsorted(table, values).tobytes()
