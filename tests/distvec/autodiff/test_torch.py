"""Gradients of random programs are those of PyTorch, on any number of servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from tests.distvec.conftest import SERVER_COUNTS

torch = pytest.importorskip("torch")


class Piece(NamedTuple):
    """A step of a program; ``m`` is NumPy or PyTorch, which call these functions alike."""

    takes: str
    """What its arguments are: v a vector, t a table, r a row, s a number."""
    gives: str
    call: Callable[..., Any]


PIECES = {
    "add": Piece("vv", "v", lambda m, x, y: x + y),
    "multiply": Piece("vv", "v", lambda m, x, y: x * y),
    "ratio": Piece("vv", "v", lambda m, x, y: x / (1.5 + y * y)),
    "tanh": Piece("v", "v", lambda m, x: m.tanh(x)),
    "exp": Piece("v", "v", lambda m, x: m.exp(-m.abs(x))),
    "logaddexp": Piece("vv", "v", lambda m, x, y: m.logaddexp(x, y)),
    "hypot": Piece("vv", "v", lambda m, x, y: m.hypot(x, y + 3.0)),
    "maximum": Piece("vv", "v", lambda m, x, y: m.maximum(x, y)),
    "where": Piece("vv", "v", lambda m, x, y: m.where(x > 0.1, y, x * 0.5)),
    "scaled": Piece("sv", "v", lambda m, s, x: s * x + 0.25),
    "neighbours": Piece("v", "v", lambda m, x: m.concatenate([x[1:] * x[:-1], x[:1]])),
    "rolled": Piece("v", "v", lambda m, x: m.roll(x, 2) - x),
    "backwards": Piece("v", "v", lambda m, x: m.flip(x, (0,)) * x),
    "running": Piece("v", "v", lambda m, x: m.cumsum(x, 0) / x.shape[0]),
    "every other": Piece("v", "s", lambda m, x: m.sum(x[::2] ** 2)),
    "elements": Piece("v", "s", lambda m, x: x[0] * x[-1]),
    "sum": Piece("v", "s", lambda m, x: m.tanh(m.sum(x))),
    "mean": Piece("v", "s", lambda m, x: m.mean(x * x)),
    "dot": Piece("vv", "s", lambda m, x, y: (x @ y) / (1.0 + x @ x)),
    "largest": Piece("v", "s", lambda m, x: m.amax(x)),
    "norm": Piece("v", "s", lambda m, x: m.linalg.norm(x + 0.5)),
    "row of": Piece("vt", "r", lambda m, x, t: m.tanh(x @ t)),
    "times row": Piece("tr", "v", lambda m, t, r: t @ r),
    "columns": Piece("t", "r", lambda m, t: m.mean(t, 0)),
    "rows": Piece("t", "v", lambda m, t: m.sum(t * t, 1)),
    "greatest of rows": Piece("t", "v", lambda m, t: m.amax(t, 1)),
    "column": Piece("t", "v", lambda m, t: t[:, 1] * t[:, 0]),
    "shifted": Piece("tv", "t", lambda m, t, x: m.tanh(t + x[:, None])),
    "weighted": Piece("tr", "t", lambda m, t, r: t * r - 0.5),
    "inner table": Piece("tt", "r", lambda m, t, u: m.mean(t.T @ u, 0) / t.shape[0]),
    "softmax": Piece("t", "t", lambda m, t: m.exp(t) / m.sum(m.exp(t), 1)[:, None]),
}
Program = list[tuple[str, list[int]]]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Steps with the numbers of their arguments; the values 0 to 4 are those of ``inputs``."""
    kinds, steps = list("vvtrs"), []
    for _ in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from(sorted(PIECES)))
        chosen = [
            draw(st.sampled_from([k for k, kind in enumerate(kinds) if kind == wanted]))
            for wanted in PIECES[name].takes
        ]
        steps.append((name, chosen))
        kinds.append(PIECES[name].gives)
    return steps


def result(m: Any, program: Program, inputs: list[Any]) -> Any:
    """Something of all values that nothing was made of."""
    values, used = list(inputs), set()
    for name, chosen in program:
        values.append(PIECES[name].call(m, *[values[k] for k in chosen]))
        used.update(chosen)
    ends = [m.sum(m.tanh(one)) for k, one in enumerate(values) if k not in used]
    return sum(ends[1:], ends[0])


@settings(deadline=None, max_examples=30)
@given(
    program=programs(),
    length=st.sampled_from([3, 8, 1500]),
    seed=st.integers(0, 1000),
    count=st.sampled_from(SERVER_COUNTS),
)
def test_random_programs(
    sessions: dict[int, dv.Session], program: Program, length: int, seed: int, count: int
) -> None:
    rng = np.random.default_rng(seed)
    shapes: list[tuple[int, ...]] = [(length,), (length,), (length, 3), (3,), ()]
    host = [rng.uniform(-1.5, 1.5, shape) for shape in shapes]
    tensors = [torch.tensor(one, requires_grad=True) for one in host]
    expected = result(torch, program, tensors)
    expected.backward()
    ours = [sessions[count].array(one) for one in host]
    value, gradients = dv.value_and_grad(lambda given: result(np, program, given))(ours)
    assert float(value) == pytest.approx(expected.item(), rel=1e-10, abs=1e-10)
    dv.evaluate(*gradients)
    for one, tensor in zip(gradients, tensors, strict=True):
        theirs = np.zeros(one.shape) if tensor.grad is None else tensor.grad.numpy()
        np.testing.assert_allclose(np.asarray(one), theirs, rtol=1e-8, atol=1e-8)
