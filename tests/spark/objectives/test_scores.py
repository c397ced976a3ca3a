"""Margins by tasks that pull only what their rows touch."""

from __future__ import annotations

import numpy as np
import pytest

from distvec.spark import scores

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("intercept", [False, True])
def test_margins(ps, problem, intercept):
    w = np.random.default_rng(3).normal(size=3000 + intercept)
    scored = scores(problem.frame, ps.array(w), output="margin", intercept=intercept)
    assert scored.columns == ["features", "label", "weight", "margin"]
    found = [row.margin for row in scored.select("margin").collect()]
    expected = problem.x @ w[:3000] + (w[-1] if intercept else 0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_it_is_lazy_and_holds_its_weights(ps, problem):
    scored = scores(problem.frame, ps.ones(3000) * 2.0)
    assert scored.filter("score != 0").count() == np.count_nonzero(problem.x.sum(axis=1))


def test_refusals(ps, problem):
    with pytest.raises(TypeError, match="weights must be a DistArray of a PSContext"):
        scores(problem.frame, np.zeros(3000))
    with pytest.raises(TypeError, match="weights have dtype bool"):
        scores(problem.frame, ps.zeros(3000, dtype=bool))
    with pytest.raises(ValueError, match="features='nothing': the data has no such column"):
        scores(problem.frame, ps.zeros(3000), features="nothing")
    with pytest.raises(Exception, match="rows have 3000 features, the weights 7"):
        scores(problem.frame, ps.zeros(7)).collect()
