"""What programs say of expressions: which steps are one linear combination, what is a product."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import distvec as dv
from ps_backend.program.sweep import Combination, Sweep


@pytest.fixture
def ps() -> Iterator[dv.Session]:
    with dv.local(servers=1) as session:
        yield session


def vectors(ps: dv.Session, count: int, dtype: str = "float64") -> list[dv.DistArray]:
    rng = np.random.default_rng(count)
    return [ps.array(rng.uniform(-2.0, 2.0, 10).astype(dtype)) for _ in range(count)]


def planned(*arrays: dv.DistArray) -> Sweep:
    ((sweep,),) = [program.sweeps for program in arrays[0].session.plan(*arrays).programs]
    return sweep.structure


def said(*arrays: dv.DistArray) -> list[str]:
    """The steps and reductions of the only sweep."""
    sweep = planned(*arrays)
    return [*map(str, sweep.steps), *(f"{r.op}{r.args}" for r in sweep.reductions)]


def test_links_of_every_form(ps: dv.Session) -> None:
    a, b, c, d = vectors(ps, 4)
    value = b - 3.0 * a
    value = 5.0 - value / 2.0
    value = value - -(c * 7.0)
    value = -value
    value = (-d) * 9.0 + value
    assert said(value) == ["combine(%1, -%5*%2, /%6, negate, +%7, +%8*%3, negate, -%4*%0)"]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_two_loop_recursion_is_one_step(ps: dv.Session, dtype: str) -> None:
    g, *pairs = vectors(ps, 9, dtype)
    direction = g
    for k, y in enumerate(pairs[:4]):
        direction = direction - (0.5 + k) * y
    direction = 0.3 * direction
    for k, s in enumerate(pairs[4:]):
        direction = direction + (0.1 + k) * s
    direction = -direction
    (step,) = planned(direction).steps
    assert isinstance(step, Combination) and step.vectors == 9 and step.type.dtype == dtype


def test_what_others_need_cuts_a_combination(ps: dv.Session) -> None:
    a, b, c = vectors(ps, 3)
    half = a - b
    assert said(half + c, abs(half)) == ["combine(%0, -%1)", "combine(%3, +%2)", "abs(%3)"]


def test_what_is_scaled_is_shared(ps: dv.Session) -> None:
    """A vector times a number costs so little that each combination computes its own."""
    a, b = vectors(ps, 2)
    found = said(2.0 * a + b, 2.0 * a - b)
    assert found == ["combine(%2*%0, +%1)", "combine(%2*%0, -%1)"]


def test_single_steps_integers_and_casts_stay_as_they_are(ps: dv.Session) -> None:
    a, b = vectors(ps, 2)
    assert said(2.0 * a) == ["multiply(%1, %0)"]
    assert said(a * b + 1.0) == ["multiply(%0, %1)", "add(%3, %2)"]
    i, j = vectors(ps, 2, "int64")
    assert said(i + j - i) == ["add(%0, %1)", "subtract(%2, %0)"]
    assert said(a.astype("float32") + b.astype("float32"))[-1].startswith("add")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_inner_products(ps: dv.Session, dtype: str) -> None:
    a, b = vectors(ps, 2, dtype)
    assert said(a @ b) == said(np.dot(a, b)) == ["dot(0, 1)"]
    assert said(a @ a) == ["dot(0, 0)"]


def test_products_that_are_no_inner_products(ps: dv.Session) -> None:
    """Rounded before they are summed, or of integers, or of two dtypes."""
    a, b = vectors(ps, 2, "float32")
    assert said(np.sum(a * b))[-1] == "sum(2,)"
    i, j = vectors(ps, 2, "int64")
    assert said(i @ j)[-1] == "sum(2,)"
    (c,) = vectors(ps, 1)
    assert said(np.sum(c * a))[-1].startswith("sum")


def test_squares_and_multiples_are_inner_products(ps: dv.Session) -> None:
    (a,) = vectors(ps, 1)
    of_squares = said(np.sum(np.square(a)))
    of_multiples = said(np.sum(3.0 * a))
    assert (of_squares, of_multiples) == (["dot(0, 0)"], ["dot(1, 0)"])
    product = a * a
    assert said(product, np.sum(product)) == ["multiply(%0, %0)", "dot(0, 0)"]
