"""Elements in another shape and order, of tables split by rows and by columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from distvec.testing import assert_plan
from tests.distvec.alike import arrays, assert_alike
from tests.distvec.conftest import SERVER_COUNTS

SHAPES = ((6,), (3000,), (6, 2), (1000, 3), (1500, 4))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), servers=st.sampled_from(SERVER_COUNTS))
def test_reshape(data: st.DataObject, servers: int, sessions: dict[int, dv.Session]) -> None:
    x = data.draw(arrays(SHAPES, "int64"))
    order = data.draw(st.sampled_from(("C", "F", "A", "f")))
    width = data.draw(st.sampled_from((1, 2, 3, 6)))
    shape = data.draw(st.sampled_from((-1, (-1, width), (width, -1), (x.size // width, width))))
    begin, stop = data.draw(st.integers(-3, 6)), data.draw(st.sampled_from((None, -1, 7)))
    step = data.draw(st.sampled_from((1, 1, 2, -1)))
    number = data.draw(st.integers(0, 2))

    def function(a: Any) -> Any:
        if number:
            a = number * a + 1
        return np.reshape(a, shape, order=order)[begin:stop:step]

    assert_alike(sessions[servers], function, x)
    assert_alike(sessions[servers], lambda a: np.ravel(a, order)[begin:stop] + number, x)
    assert_alike(sessions[servers], lambda a: a[6:].reshape(-1, width)[1:].ravel()[begin:], x)


@pytest.mark.parametrize("servers", [2, 3])
def test_what_it_costs(sessions: dict[int, dv.Session], servers: int) -> None:
    ps = sessions[servers]
    x = ps.array(np.arange(30_000.0))
    t = x.reshape(-1, 3)
    once = {"messages": 1, "sweeps": 1, "vectors_read": 1, "vectors_written": 1}
    assert_plan((2 * x + 1).reshape(-1, 3) * 3, **once)
    assert_plan(x[6:].reshape(-1, 3)[5:] * 3, **once)
    assert_plan((2 * t + 1).ravel()[7:] - 1, **once)
    assert_plan((ps.arange(30_000.0) - 1)[6:].reshape(-1, 2)[1:], messages=1, vectors_read=0)
    assert_plan(np.ravel(t.persist(), order="F"), **once)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "concatenate": lambda a: np.concatenate([a, 2 * a]),
    "concatenate columns": lambda a: np.concatenate([a, 2 * a], axis=1),
    "vstack": lambda a: np.vstack([a, a[1], np.arange(a.shape[1])]),
    "hstack": lambda a: np.hstack([a, a[:, :2]]),
    "append": lambda a: np.append(a, a[:1], axis=0),
    "flip": np.flip,
    "flip rows": lambda a: np.flip(a, 0),
    "fliplr": np.fliplr,
    "flipud": np.flipud,
    "roll all": lambda a: np.roll(a, 3),
    "append all": lambda a: np.append(a, 3),
    "concatenate all": lambda a: np.concatenate([a, a[0][:5][None]], axis=None),
    "roll": lambda a: np.roll(a, (1, 5), (0, 1)),
    "repeat": lambda a: np.repeat(a, 2, axis=1),
    "tile": lambda a: np.tile(a, (2, 1)),
    "pad": lambda a: np.pad(a, ((1, 0), (2, 3)), constant_values=((1, 2), (3, 4))),
    "diff": lambda a: np.diff(a, axis=1, prepend=0),
    "diff down": lambda a: np.diff(a, axis=0),
    "gradient": lambda a: np.gradient(a, 0.5),
    "gradient across": lambda a: np.gradient(a, axis=1),
    "delete": lambda a: np.delete(a, 1, axis=0),
    "insert": lambda a: np.insert(a, 1, 7, axis=1),
    "insert rows": lambda a: np.insert(a, 1, np.arange(a.shape[1]), axis=0),
    "split": lambda a: np.split(a, [10, 20], axis=1),
    "unstack": np.unstack,
    "tril": lambda a: np.tril(a, 1),
    "triu": np.triu,
    "diagonal": lambda a: np.diagonal(a, 1),
    "trace": np.trace,
    "swapaxes": lambda a: np.swapaxes(a, 0, 1),
    "turn": lambda a: np.rot90(a) + np.rot90(a, 3) + np.rot90(np.rot90(a, 2)),
    "ravel": np.ravel,
    "ravel down": lambda a: np.ravel(a, order="F"),
    "reshape": lambda a: a.reshape(-1, 2),
    "reshape down": lambda a: np.reshape(a, (-1, 3), order="F"),
    "as a stack": lambda a: np.stack([a[0], a[2]]) + np.vstack([a[1], a[0]]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_of_tables_split_by_columns(sessions: dict[int, dv.Session], name: str) -> None:
    values = np.arange(6000.0).reshape(3, 2000) % 7
    expected = FUNCTIONS[name](values)
    for servers in (1, 3):
        x = sessions[servers].space(3, split="columns").array(values)
        found = FUNCTIONS[name](x)
        pairs = zip(found, expected, strict=True) if isinstance(found, tuple | list) else []
        for ours, theirs in pairs or [(found, expected)]:
            assert ours.shape == theirs.shape
            np.testing.assert_array_equal(ours.numpy(), theirs)


def test_refused(ps: dv.Session) -> None:
    columns = ps.zeros((2000, 3)).T
    with pytest.raises(ValueError, match="order must be one of"):
        columns.T.reshape(-1, order="X")
    with pytest.raises(ValueError, match="cannot reshape"):
        columns.T.reshape(7, 7, order="F")
