"""The differential check of iterations: judged by the problem's condition, and where paths part."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distvec as dv
from distvec.testing import PROBLEMS, TestProblem, same_on_all_backends
from distvec.testing.rounding import rounded_anew, spread

Fun = Callable[[Any], tuple[Any, Any]]
CONDITIONS = (1e0, 1e2, 1e5, 1e10)


def quadratic(condition: float, n: int) -> Fun:
    def fun(x: Any) -> tuple[Any, Any]:
        d = x - 3.0
        curved = x.__array_namespace__().linspace(1.0, condition, n) * d
        return 0.5 * (d @ curved), curved

    return fun


def barzilai_borwein(fun: Fun, x: Any, step: float, iterations: int = 40) -> Iterator[Any]:
    """As a user types it; the wrong ones below are right on NumPy."""
    value, gradient = fun(x)
    for _ in range(iterations):
        following = x - step * gradient
        value, change = fun(following)
        s, y = following - x, change - gradient
        if float(s @ y) == 0:
            return
        step = float(s @ s) / float(s @ y)
        x, gradient = following, change
        yield x, value


def last(fun: Fun, x: Any, step: float, iterations: int = 40) -> Any:
    *_, (x, value) = barzilai_borwein(fun, x, step, iterations)
    return x, value


def check(function: Callable[..., Any], *arguments: Any, rtol: float | None = None) -> None:
    same_on_all_backends(function, *arguments, servers=(2,), engines=("numpy",), rtol=rtol)


@pytest.mark.parametrize("function", [barzilai_borwein, last])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_right_one_passes_whatever_the_condition(
    function: Callable[..., Any], condition: float
) -> None:
    for seed, n in enumerate((2, 50, 1500)):
        x = np.random.default_rng(seed).normal(size=n)
        check(function, quadratic(condition, n), x, 1 / condition)


@pytest.mark.parametrize("problem", PROBLEMS, ids=repr)
def test_a_right_one_passes_on_all_problems(problem: TestProblem) -> None:
    for n in (5, 1500):
        x = problem.start(n)
        step = 1 / float(np.linalg.norm(problem.fun(x)[1]))
        check(barzilai_borwein, problem.fun, x, step, 12)


def test_by_rounding_alone_it_fails_a_fixed_tolerance() -> None:
    """On some of these paths: which, the rounding of the processor's own dot product decides."""
    said = []
    for n in range(50, 60):
        fun, x = quadratic(100.0, n), np.linspace(-1.0, 1.0, n)
        check(last, fun, x, 1e-3, 100)
        try:
            check(last, fun, x, 1e-3, 100, rtol=1e-12)
        except AssertionError as error:
            said.append(str(error))
    assert said and all(re.search(r"result\[.\]: .* on servers", one) for one in said)


def wrong(fault: str, since: int) -> Callable[..., Iterator[Any]]:
    """Barzilai-Borwein with a fault on servers, from iteration ``since`` on."""

    def function(fun: Fun, x: Any, step: float, iterations: int = 40) -> Iterator[Any]:
        value, gradient = fun(x)
        for iteration in range(iterations):
            faulty = iteration >= since and isinstance(x, dv.DistArray)
            if faulty and fault == "sign":
                step = -step
            if faulty and fault == "off by 1e-6":
                step *= 1 + 1e-6
            following = x - step * gradient
            value, change = fun(following)
            s, y = following - x, change - gradient
            if float(s @ y) == 0:
                return
            step = float(s @ s) / float(s @ y)
            stale = faulty and fault == "stale gradient"
            x, gradient = following, gradient if stale else change
            yield x, value

    return function


@pytest.mark.parametrize("condition", CONDITIONS[1:])
@pytest.mark.parametrize(
    ("fault", "since", "parts"),
    [("sign", 0, 0), ("sign", 4, 4), ("off by 1e-6", 3, 3), ("stale gradient", 3, 4)],
)
def test_a_wrong_one_fails_where_the_paths_part(
    fault: str, since: int, parts: int, condition: float
) -> None:
    x = np.random.default_rng(5).normal(size=50)
    with pytest.raises(AssertionError) as failure:
        check(wrong(fault, since), quadratic(condition, 50), x, 1 / condition)
    message = str(failure.value)
    assert f"result[{parts}]" in message
    assert f"the paths part at iteration {parts} of 0 to " in message
    apart = re.search(rf"\b{parts}: (\S+?)(,|$)", message)
    assert apart and float(apart[1]) > 1e-11, message


@pytest.mark.parametrize("fault", ["sign", "off by 1e-6", "stale gradient"])
def test_a_wrong_one_fails_at_its_end_too(fault: str) -> None:
    def end(*arguments: Any) -> Any:
        return list(wrong(fault, 3)(*arguments))[-1]

    x = np.random.default_rng(5).normal(size=50)
    with pytest.raises(AssertionError, match="let the function yield its iterates"):
        check(end, quadratic(1e5, 50), x, 1e-5, 15)


def test_without_iterates_it_says_how_to_get_them() -> None:
    def doubled(x: Any) -> Any:
        return x + 1.0 if isinstance(x, np.ndarray) else x + 1.000001

    with pytest.raises(AssertionError, match="let the function yield its iterates"):
        check(doubled, np.ones(3))


def test_a_list_of_iterates_is_a_path_too() -> None:
    def grown(x: Any) -> Any:
        factor = 2.0 if isinstance(x, np.ndarray) else 2.0 + 1e-9
        return [x, x, factor * x]

    with pytest.raises(AssertionError, match=r"part at iteration 2 of 0 to 2; .*5\.0e-10"):
        check(grown, np.ones(3))


def test_iterates_that_change_in_place_are_seen_as_they_were() -> None:
    def grown(x: Any) -> Any:
        for _ in range(3):
            x += 1.0
            yield x

    check(grown, np.zeros(3), rtol=0)


def test_counts_may_differ_only_as_rounding_makes_them() -> None:
    def iterations(fun: Fun, x: Any, late: int = 0) -> int:
        path = list(barzilai_borwein(fun, x, 1e-3, 100))
        return len(path) + (late if isinstance(x, dv.DistArray) else 0)

    problem = PROBLEMS[4]
    assert problem.name == "log-sum-exp"
    check(iterations, problem.fun, problem.start(5))
    with pytest.raises(AssertionError, match=r"result: .* on servers"):
        check(iterations, problem.fun, problem.start(5), 90)


def test_what_is_exact_is_not_rounded_anew() -> None:
    x = rounded_anew(np.arange(5.0), np.random.default_rng(0))
    assert (x + 1 == np.arange(1.0, 6.0)).all() and x @ x == 30 and x.sum() == 10
    assert np.floor(x / 3).tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_rounds_is_rounded_to_neighbours(dtype: str) -> None:
    thirds = np.arange(1, 60, dtype=dtype) / np.array(3, dtype)
    unit = np.spacing(thirds)
    x = rounded_anew(np.arange(1, 60, dtype=dtype), np.random.default_rng(0))
    anew = x / 3
    assert anew.dtype == dtype and isinstance(anew, np.ndarray)
    moved = np.asarray(anew) - thirds
    assert set(np.abs(moved) / unit) == {0.0, 1.0}
    for product in (np.linalg.norm, np.sum, np.mean, lambda y: y.dot(y), lambda y: y @ y):
        plain = product(thirds)
        distances = [abs(product(anew) - plain) / np.spacing(plain) for _ in range(9)]
        assert 0 < max(distances) < 20
    x /= 3
    assert 0 < spread([np.asarray(x)], thirds) <= unit.max()
