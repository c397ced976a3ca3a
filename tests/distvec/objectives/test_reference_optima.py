"""Some of the known optima; ``python -m tests.stress losses`` finds all of them."""

from __future__ import annotations

import pytest

from tests.distvec.objectives.reference_optima import solve


@pytest.mark.parametrize(
    ("name", "kind", "lam"),
    [
        ("heart_scale", "logistic_l2", 1e-4),
        ("heart_scale", "logistic_l1", 1e-3),
        ("heart_scale", "squared_hinge_l2", 1e-4),
        ("heart_scale", "hinge_l2", 1e-2),
        ("mushrooms", "logistic_l1", 1e-3),
        ("dna", "squared_hinge_l2", 1e-2),
        ("cpusmall", "ridge", 1e-2),
        ("cpusmall", "lasso", 1e-2),
        ("abalone", "lasso", 1e-3),
    ],
)
def test_a_known_optimum_is_found(name, kind, lam):
    found = solve(name, kind, lam)
    assert found.is_right, found
