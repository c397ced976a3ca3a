"""Row functions: what they mean is what they do to NumPy's rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

import distvec as dv
from distvec.rows.tracer import NotTraceable
from tests.distvec.rows.reference import run

Rows, PerKey, Number = dv.rows.RowsOf, dv.rows.PerKey, dv.rows.Number
SLOTS = 9


def adagrad(w: Any, s: Any, g: Any, lr: Any) -> Any:
    s = s + g * g
    return {"w": w - lr * g / np.sqrt(s + 1e-3), "s": s}


def in_place(w: Any, s: Any, g: Any, lr: Any) -> Any:
    w -= (1 - lr) ** 2 * g
    return {"w": w, "s": np.float32(2) * s}, (w, w * s)


def masks(w: Any, s: Any, g: Any, lr: Any) -> Any:
    new = np.where((w > 0) & (g < lr), np.minimum(w, s), np.clip(g, -lr, 3))
    return {"w": new}, np.abs(new) > s


def joined(w: Any, s: Any, g: Any, lr: Any) -> Any:
    return {"w": dv.rows.add(lr * g), "s": dv.rows.max(np.abs(g))}


def lowered(w: Any, s: Any, g: Any, lr: Any) -> Any:
    return {"w": dv.rows.replace(0.0), "s": dv.rows.min(g)}, w


def reading(w: Any, s: Any, g: Any, lr: Any) -> Any:
    return w * (s - g) / (1 + lr)


def swapped(w: Any, s: Any, g: Any, lr: Any) -> Any:
    return {"w": s, "s": w}


ANY_ROWS = (adagrad, in_place, masks, joined, lowered, reading, swapped)


def norms(w: Any, s: Any, g: Any, lr: Any) -> Any:
    norm = np.sqrt((w * w).sum(axis=1, keepdims=True))
    return {"w": w / np.maximum(norm, lr)}, (norm[:, 0], w.max(axis=-1), np.argmax(s, axis=1))


def products(w: Any, s: Any, g: Any, lr: Any) -> Any:
    table = np.arange(6.0).reshape(3, 2)
    return (w @ table).astype("float32"), np.vecdot(w, s), w[:, :2] * g[:, 1][:, None]


def rowwise(w: Any, s: Any, g: Any, lr: Any) -> Any:
    mean = np.mean(g * g, axis=1, keepdims=True)
    return {"s": s + mean, "w": np.cumsum(w, axis=1)}, np.sort(g, axis=1)[:, -1:]


TABLES = (norms, products, rowwise)


def sorted_out(returned: Any) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Updates, and values per key, of what such a function returns."""
    if isinstance(returned, dict):
        return returned, ()
    updates: dict[str, Any] = {}
    if isinstance(returned, tuple) and isinstance(returned[0], dict):
        updates, returned = returned
    return updates, returned if isinstance(returned, tuple) else (returned,)


JOINED = {"add": np.add, "min": np.minimum, "max": np.maximum}


@pytest.mark.parametrize(
    ("function", "row"),
    [(f, row) for f in ANY_ROWS for row in ((), (3,))] + [(f, (3,)) for f in TABLES],
)
@settings(max_examples=15)
@given(
    kind=st.sampled_from(["float32", "float64"]),
    slots=st.lists(st.integers(0, SLOTS - 1), unique=True, min_size=1),
    lr=st.sampled_from([0.1, 1.0, 3]),
    seed=st.integers(0, 99),
)
def test_the_program_is_the_function_on_rows(
    function: Callable[..., Any],
    row: tuple[int, ...],
    kind: str,
    slots: list[int],
    lr: float,
    seed: int,
) -> None:
    draw = np.random.default_rng(seed).normal
    w, s = draw(size=(SLOTS, *row)).astype(kind), draw(size=(SLOTS, *row)).astype(kind) ** 2
    g = draw(size=(len(slots), *row)).astype(kind)
    expected = {"w": w.copy(), "s": s.copy()}
    updates, values = sorted_out(function(w[slots], s[slots], g, lr))
    for name, new in updates.items():
        rows = expected[name]
        is_update = hasattr(new, "op") and new.op != "replace"
        new = getattr(new, "rows", new)
        rows[slots] = JOINED[updates[name].op](rows[slots], new) if is_update else new
    number = Number("int64" if isinstance(lr, int) else "float64")
    traced = dv.rows(function).trace(Rows(kind, row), Rows(kind, row), PerKey(kind, row), number)
    found = run(traced, slots, {"w": w, "s": s, "g": g, "lr": lr})
    for one, other in zip(found, values, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-6 if function in TABLES else 0)
    for name, now in {"w": w, "s": s}.items():
        np.testing.assert_allclose(now, expected[name], rtol=1e-6 if function in TABLES else 0)


def test_what_is_not_needed_is_not_gathered_and_not_sent() -> None:
    f = dv.rows(lambda w, z, g, unused: {"z": g, "w": dv.rows.add(2 * g)})
    traced = f.trace(Rows("float64"), Rows("float64"), PerKey("float64"), PerKey("float32"))
    assert traced.arrays == ("w", "z")
    assert traced.given == ("g",)
    assert traced.program.gathers == ()
    assert traced.program.changes


def test_it_is_traced_once_for_each_signature() -> None:
    calls = []

    @dv.rows
    def f(w: Any, lr: Any = 0.5) -> Any:
        calls.append(1)
        return lr * w

    assert f.trace(Rows("float32"), Number()) is f.trace(w=Rows("float32"), lr=Number())
    f.trace(Rows("float32", (3,)), Number())
    assert len(calls) == 2
    one = f.trace(Rows("float32"), Number())
    assert one.scalars({"lr": 0.25}) == (0.25,)


def test_numbers_are_weak_as_pythons_are() -> None:
    def f(w: Any, lr: Any, k: Any) -> Any:
        return w * (1 - lr) ** k, np.maximum(w, lr / 3), np.where(w > k, lr, w), k * w

    kinds = Rows("float32"), Number(), Number("int64")
    traced = dv.rows(f).trace(*kinds)
    w = np.array([0.7, -3.0], np.float32)
    found = run(traced, [0, 1], {"w": w, "lr": 0.1, "k": 2})
    for one, other in zip(found, f(w, 0.1, 2), strict=True):
        assert one.dtype == other.dtype == np.float32
        np.testing.assert_array_equal(one, other)
    strong = dv.rows(lambda w, lr: w * lr).trace(Rows("float32"), Number(weak=False))
    assert strong.program.sweep.stored[0].dtype == "float64"


def test_what_follows_of_numbers_alone_is_computed_by_the_client() -> None:
    f = dv.rows(lambda w, a, b: w * (2 * a / (1 - b) + 1))
    traced = f.trace(Rows("float64"), Number(), Number())
    assert len(traced.program.sweep.scalars) == 1
    assert traced.scalars({"a": 3.0, "b": 0.5}) == (13.0,)


def test_other_numbers_in_the_function_make_the_same_program() -> None:
    one, other = (
        dv.rows(lambda w, g, step=step: {"w": w - step * g}).trace(
            Rows("float32"), PerKey("float32"), Number()
        )
        for step in (0.1, 1.0)
    )
    assert one.program == other.program


def test_an_argument_called_keys_gets_them() -> None:
    f = dv.rows(lambda keys, w: {"w": w + keys % 3})
    traced = f.trace(w=Rows("float64"))
    assert traced.program.with_keys
    w = np.zeros(3)
    run(traced, [2, 0], {"w": w}, keys=[7, -2])
    assert w.tolist() == [1.0, 0.0, 1.0]


def test_transposes_of_rows_are_for_each_key() -> None:
    def f(w: Any) -> Any:
        return {"w": (2 * w.T + np.ones((3, 1))).T}

    w = np.arange(6.0).reshape(2, 3)
    run(dv.rows(f).trace(w=Rows("float64", (3,))), [0, 1], {"w": w})
    np.testing.assert_array_equal(w, 2 * np.arange(6.0).reshape(2, 3) + 1)


def no_value(w: Any) -> Any:
    return w if w.sum() > 0 else 2 * w


@pytest.mark.parametrize(
    ("function", "hint"),
    [
        (no_value, r"x\.sum\(axis=1\)"),
        (lambda w: w @ w, r"float\(w @ w\)"),
        (lambda w: w[1:], "belongs to each key"),
        (lambda w: w[::-1], "belongs to each key"),
        (np.sort, "belongs to each key"),
        (np.cumsum, "belongs to each key"),
        (lambda w: w[np.array([0, 0])], "rows of all keys"),
        (lambda w: w[w > 0], r"dv\.where\(mask, x, 0\)"),
        (lambda w: w.numpy(), "return what you want to read"),
        (lambda w: [float(one) for one in w], "all of them at once"),
        (lambda w: w / len(w), "differs from server to server"),
        (lambda w: w.sum().item(), r"x\.sum\(axis=1\)"),
        (lambda w: w.explain(), r"f\.explain"),
    ],
)
def test_what_needs_more_than_the_rows_of_each_key_is_refused(
    function: Callable[..., Any], hint: str
) -> None:
    def refused(w: Any) -> Any:
        return function(w)

    with pytest.raises(NotTraceable, match=hint) as caught:
        dv.rows(refused).trace(Rows("float64"))
    assert f"{Path(__file__).name}:" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda w: None, "returns no rows and no values"),
        (lambda w: {"z": w}, "returns new rows for 'z', but its arrays are: w"),
        (lambda w: {"w": 1j * np.ones(3)}, "complex128"),
        (lambda w: {"w": w * 0.5}, r"float64.*\.astype\('int64'\)"),
        (lambda w: 3.0, "one value per key"),
        (lambda w: ({"w": w}, w, w), "a tuple of values"),
        (lambda w: {"w": np.take_along_axis(w, w % 2, axis=1)}, "after some servers had written"),
    ],
)
def test_what_it_returns_is_checked(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        dv.rows(function).trace(Rows("int64", (2,)))


def test_new_rows_must_fit() -> None:
    with pytest.raises(ValueError, match=r"'w' have shape \(n, 2\).*\(n, 3\)"):
        dv.rows(lambda w: {"w": w[:, :2]}).trace(Rows("float64", (3,)))
    traced = dv.rows(lambda w: {"w": w.sum(axis=1, keepdims=True)}).trace(Rows("float64", (3,)))
    w = np.arange(6.0).reshape(2, 3)
    run(traced, [1], {"w": w})
    assert w.tolist() == [[0, 1, 2], [12, 12, 12]]


def test_any_number_of_arguments_is_none() -> None:
    with pytest.raises(TypeError, match=r"fixed number of arguments.*\*arrays"):
        dv.rows(lambda *arrays: arrays[0])


def test_it_shows_what_servers_do() -> None:
    f = dv.rows(lambda w, hits, g: ({"w": w - g, "hits": dv.rows.add(1)}, w))
    text = f.explain(Rows("float32", (4,)), Rows("int64"), PerKey("float32", (4,)))
    for line in (
        "<- rows of w",
        "<- g, per key",
        "is added to the rows of hits",
        "is returned",
    ):
        assert line in text
    reading = dv.rows(lambda w: w > 0).explain(Rows("float32"))
    assert "it only reads" in reading


@dv.rows
def scaled(w: Any, factor: Any) -> Any:
    """So much of w."""
    return factor * w


def test_it_is_pickled_as_functions_are() -> None:
    assert pickle.loads(pickle.dumps(scaled)) is scaled
    factor = 3
    again = pickle.loads(cloudpickle.dumps(dv.rows(lambda w: factor * w)))
    assert again.__wrapped__(2) == 6
    assert scaled.__doc__ == "So much of w."
    assert repr(scaled) == "<row function scaled(w, factor)>"
