"""The testing kit finds what is wrong, says where, and lets pass what is right."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad, minimize

import distvec as dv
from distvec.testing import (
    ELEMENTWISE,
    PROBLEMS,
    Expression,
    TestProblem,
    assert_plan,
    dtypes,
    engine,
    expressions,
    lengths,
    lossy_session,
    same_on_all_backends,
    scalars,
    server_counts,
    spaces,
    vectors,
)
from ps_backend.program import ops
from tests.waiting import PATIENCE

X = np.linspace(-1.0, 2.0, 3000)
K = np.arange(-5, 5)


class Pair(NamedTuple):
    value: Any
    gradient: Any


@dataclass(frozen=True)
class Step:
    x: Any
    size: float


RIGHT: dict[str, Callable[..., Any]] = {
    "a vector": lambda x, k: 2 * x + np.exp(-x * x),
    "a number": lambda x, k: float(x @ x),
    "integers": lambda x, k: (k // 2, k.sum(), int(k.max())),
    "nested": lambda x, k: {"all": [x.mean(), (x > 0, None, "text")], "pair": Pair(x @ x, 2 * x)},
    "a dataclass": lambda x, k: Step(x - 1, 0.5),
    "refused": lambda x, k: x + k,
    "changed in place": lambda x, k: x.__imul__(2),
    "nothing": lambda x, k: None,
}


@pytest.mark.parametrize("function", RIGHT.values(), ids=RIGHT)
def test_what_is_the_same_passes(function: Callable[..., Any]) -> None:
    same_on_all_backends(function, X, K, servers=(1, 3))


def _is_numpy(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def _change_on_numpy(x: Any) -> None:
    if _is_numpy(x):
        x += 1


def _by_alias(x: Any) -> Any:
    """Right on NumPy, where nobody sees x again; but it changes its argument."""
    y = x if _is_numpy(x) else x.copy()
    y *= 2
    return 0


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a value": (lambda x: x + (0 if _is_numpy(x) else 1e-9), r"1 server, numpy: result: .* at 0"),
    "a dtype": (lambda x: x if _is_numpy(x) else x.astype("float32"), "result: float32 of shape"),
    "a shape": (lambda x: x if _is_numpy(x) else x.sum(), r"shape \(\) on servers, .*\(3000,\)"),
    "a key": (lambda x: {"a": x} if _is_numpy(x) else {"b": x}, "keys of"),
    "a length": (lambda x: [x] if _is_numpy(x) else [], r"length of .*result: 0 .* 1 on"),
    "a place": (lambda x: (1, [2, x if _is_numpy(x) else -x]), r"result\[1\]\[1\]: 1.0 on servers"),
    "text": (lambda x: type(x).__name__, "'DistArray' on servers, 'ndarray' on NumPy"),
    "an exception": (
        lambda x: x.astype(complex),
        "exception: <class 'TypeError'> on servers, None on NumPy",
    ),
    "an argument": (_change_on_numpy, "argument 0: -1.0 on servers, 0.0 on NumPy at 0"),
    "an alias": (_by_alias, "argument 0"),
    "servers": (
        lambda x: 3 if _is_numpy(x) else x.session.client.servers + 2,
        "2 servers, numpy: result: 4 on servers, 3 on NumPy",
    ),
}


@pytest.mark.parametrize(("function", "text"), WRONG.values(), ids=WRONG)
def test_what_differs_is_found_and_named(function: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        same_on_all_backends(function, X, engines=("numpy",))


def test_the_next_check_has_the_session_unless_it_was_changed() -> None:
    seen: list[dv.Session] = []
    kept: list[Any] = []

    def double(x: Any) -> Any:
        if not _is_numpy(x):
            seen.append(x.session)
        return 2 * x

    def keep(x: Any) -> Any:
        kept.append(x[1:])
        return double(x)

    def fail(x: Any) -> Any:
        return double(x) + (not _is_numpy(x))

    def check(function: Callable[..., Any]) -> dv.Session:
        same_on_all_backends(function, X, servers=[5], engines=["numpy"])
        return seen[-1]

    first = check(double)
    assert check(double) is first
    assert first.counters.messages == 0
    assert check(keep) is first
    assert first.client.is_closed
    with pytest.raises(AssertionError, match="result"):
        check(fail)
    assert seen[-1].client.is_closed


def test_bits_are_compared_on_demand() -> None:
    def halves(x: Any) -> Any:
        return x / 3 if _is_numpy(x) else x * (1 / 3)

    same_on_all_backends(halves, X, engines=("numpy",))
    same_on_all_backends(halves, X, engines=("numpy",), rtol=0, ulps=1)
    with pytest.raises(AssertionError, match="elements are off"):
        same_on_all_backends(halves, X, engines=("numpy",), rtol=0)


def test_numbers_of_servers_must_agree_to_the_bit() -> None:
    def nearly(x: Any) -> Any:
        return x if _is_numpy(x) else x * (1 + 2e-16 * (x.session.client.servers > 1))

    with pytest.raises(AssertionError, match="2 servers, numpy beside 1 server: result"):
        same_on_all_backends(nearly, X, engines=("numpy",))


def test_engines(ps: dv.Session) -> None:
    from ps_backend.kernels import engine_for

    sweep = ps.plan(ps.ones(4) + 1).programs[0].sweeps[0].structure
    before = engine_for(sweep, 4)
    with engine("numba"):
        assert engine_for(sweep, 1) == "numba"
        with engine("numpy"):
            assert engine_for(sweep, 1 << 40) == "numpy"
        with engine("numexpr"):
            assert engine_for(sweep, 1) == "numexpr"
    assert engine_for(sweep, 4) == before
    with pytest.raises(
        ValueError, match=r"engine must be one of 'numpy', 'numexpr', 'mixed', 'numba', got 'gpu'"
    ):
        engine("gpu").__enter__()


def test_assert_plan(ps: dv.Session) -> None:
    x, y = ps.array(X), ps.array(X)
    z = x + y
    assert_plan(z, z @ x, messages=1, programs=1, sweeps=1, vectors_read=2, vectors_written=1)
    with pytest.raises(AssertionError, match=r"messages is 2, not 1 in this plan:\n2 programs"):
        assert_plan(z / np.linalg.norm(z), messages=1, programs=2)
    with pytest.raises(TypeError, match="at least one of messages"):
        assert_plan(z)
    with pytest.raises(TypeError, match="needs arrays"):
        assert_plan(messages=1)
    assert not z.node.known, "nothing ran"


@pytest.mark.parametrize("problem", PROBLEMS, ids=repr)
@pytest.mark.parametrize("n", [1, 7])
def test_problems_have_their_gradients(problem: TestProblem, n: int) -> None:
    start = problem.start(n)
    error = check_grad(lambda x: float(problem.fun(x)[0]), lambda x: problem.fun(x)[1], start)
    assert error <= 1e-5 * max(1.0, float(np.linalg.norm(problem.fun(start)[1])))


@pytest.mark.parametrize("problem", PROBLEMS, ids=repr)
@pytest.mark.parametrize("n", [2, 7])
def test_problems_have_their_minima(problem: TestProblem, n: int) -> None:
    start = problem.start(n)
    found = minimize(problem.fun, start, jac=True, method="BFGS", options={"gtol": 1e-9})
    assert problem.fun(start)[0] > problem.minimum(n) + 1e-3
    assert found.fun == pytest.approx(problem.minimum(n), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("problem", PROBLEMS, ids=repr)
def test_problems_are_the_same_on_servers(problem: TestProblem) -> None:
    same_on_all_backends(problem.fun, problem.start(1500), engines=("numpy",))


@pytest.mark.parametrize("problem", PROBLEMS, ids=repr)
def test_problems_cost_few_messages(ps: dv.Session, problem: TestProblem) -> None:
    value, gradient = problem.fun(ps.array(problem.start(1500)))
    coupled = {"penalty I": 2, "variably dimensioned": 2, "log-sum-exp": 3}
    assert_plan(value, gradient, messages=coupled.get(problem.name, 1))


@given(data=st.data(), length=lengths(), dtype=dtypes())
def test_vectors(data: st.DataObject, length: int, dtype: str) -> None:
    values = data.draw(vectors(length, dtype, special=False, scale=2.0))
    assert values.shape == (length,) and values.dtype == dtype
    assert np.isfinite(values).all()
    assert (np.abs(values) <= 2.0).all() or values.dtype.kind != "f"
    assert data.draw(vectors(length, dtype)).dtype == dtype
    assert data.draw(scalars(dtype)).dtype == dtype


@given(space=spaces(1), count=server_counts())
def test_spaces_and_servers(space: Any, count: int) -> None:
    assert space.length >= 1
    assert space.range_of(count - 1, count)[1] == space.length


@given(expression=expressions(2), length=lengths(1), data=st.data())
@settings(max_examples=25)
def test_expressions_have_numpys_bits(
    expression: Expression, length: int, data: st.DataObject
) -> None:
    given = [data.draw(vectors(length)) for _ in range(2)]
    same_on_all_backends(expression, *given, servers=(1, 3), engines=("numpy",), rtol=0)


def test_an_expression_prints_as_its_steps() -> None:
    add = next(one for one in ELEMENTWISE if one.name == "add")
    twice = Expression(1, [(add, (0, 0)), (add, (1, 0))])
    assert repr(twice) == "(v0): v1 = add(v0, v0); v2 = add(v1, v0)"
    assert twice(2.0) == 6.0
    with pytest.raises(TypeError, match="takes 1 arguments, got 2"):
        twice(1, 2)


def test_every_operation_of_the_table_is_tested() -> None:
    names = {operation.name for operation in ELEMENTWISE}
    assert set(ops.PUBLIC) <= names


def test_faults_are_checked() -> None:
    with pytest.raises(ValueError, match=r"faults must be among .*lose reply.*got \['explode'\]"):
        lossy_session(2, ["explode"])


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )


def test_only_the_kit_needs_hypothesis() -> None:
    without = "import sys; sys.modules['hypothesis'] = None; import distvec; "
    assert _python(without + "distvec.local").returncode == 0
    refused = _python(without + "import distvec.testing")
    assert "ImportError: distvec.testing needs Hypothesis" in refused.stderr
    assert "pip install distvec[test]" in refused.stderr
