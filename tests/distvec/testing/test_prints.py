"""What Hypothesis prints of the kit's strategies is complete Python."""

from __future__ import annotations

from math import inf, nan

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from distvec.testing import PROBLEMS, TestProblem, problem, vector, vectors

NAMES = {"vector": vector, "problem": problem, "inf": inf, "nan": nan, **vars(np)}


def pasted(strategy):
    """An example that fails, and what its printed form is as Python."""
    seen = []

    @settings(max_examples=3, database=None, deadline=None)
    @given(strategy)
    def fails(drawn):
        seen.append(drawn)
        raise AssertionError

    with pytest.raises(AssertionError) as caught:
        fails()
    (line,) = [
        line.strip().removeprefix("drawn=").split(",  #")[0].removesuffix(",")
        for line in "\n".join(caught.value.__notes__).splitlines()
        if line.strip().startswith("drawn=")
    ]
    return seen[-1], eval(line, NAMES)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
@pytest.mark.parametrize("length", [0, 3, 1025])
def test_vectors(dtype, length):
    drawn, again = pasted(vectors(length, dtype))
    assert again.dtype == drawn.dtype
    np.testing.assert_array_equal(again, drawn)


def test_problems():
    drawn, again = pasted(st.sampled_from(PROBLEMS))
    assert isinstance(drawn, TestProblem)
    assert again is drawn


def test_an_unknown_problem_is_refused():
    with pytest.raises(ValueError, match=r"must be one of 'quadratic'.*got 'linear'"):
        problem("linear")
