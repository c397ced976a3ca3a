"""Penalties on arrays of servers: NumPy's results, and no message for the penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import distvec as dv
from distvec.losses.loss import Loss, Parameter, Sums
from distvec.objectives.base import ObjectiveBase
from optim import Box, ElasticNet, GroupLasso, Outcome
from optim.core.arrays import vdot

LENGTH = 40


@dataclass(frozen=True)
class Quadratic(Loss):
    """It has no rows: the objective knows it."""

    row: tuple[int, ...]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(row=self.row),)

    @property
    def has_products(self) -> bool:
        return True

    def sums(self, *_: Any, **__: Any) -> Sums:
        raise NotImplementedError


class Objective(ObjectiveBase):
    """``|scale * (x - centre)|^2 / 2``, for arrays of any library."""

    intercept = True

    def __init__(self, library: Any, row: tuple[int, ...], penalty: Any, standard: bool) -> None:
        rng = np.random.default_rng(1)
        made = library.asarray if library is np else library.array
        self.scale, self.centre = (made(1.0 + rng.random((LENGTH, *row))) for _ in range(2))
        self.sigma = made(np.append(np.append(0.0, 0.5 + rng.random(LENGTH - 2)), 1.0))
        self.library, self.loss = library, Quadratic(row)
        self._set_penalty(penalty, standardization=standard)

    def model(self, x: Any) -> Any:
        raise NotImplementedError

    def _mean(self, arrays: Any) -> Any:
        far = self.scale * (arrays[0] - self.centre)
        return 0.5 * vdot(far, far), (self.scale * far,)

    def _mean_product(self, arrays: Any, directions: Any) -> Any:
        return (self.scale * self.scale * directions[0],)

    def _zeros(self, parameter: Parameter) -> Any:
        return self.library.zeros((LENGTH, *parameter.row))

    def _is_penalised(self, parameter: Parameter) -> Any:
        mask = self.library.arange(LENGTH) < LENGTH - 1
        return mask[:, None] if parameter.row else mask

    def _deviations(self, parameter: Parameter) -> Any:
        return self.sigma[:, None] if parameter.row else self.sigma

    def _means(self) -> Any:
        return self.library.zeros(LENGTH - 1)


CASES = {
    "elastic net, vector": ((), ElasticNet(0.3, 0.2), (None, Box(-0.5, 1.0))),
    "elastic net, table": ((2,), ElasticNet(0.3, 0.2), (None,)),
    "weights": ((), ElasticNet(np.full(LENGTH, 0.3), np.linspace(0.1, 0.2, LENGTH - 1)), ()),
    "groups": ((2,), [GroupLasso(np.arange(2 * LENGTH).reshape(-1, 2) % 3, 3, 2.0)], (None,)),
}


@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize(("row", "penalty", "boxes"), CASES.values(), ids=CASES)
def test_penalties_are_numpys_and_cost_no_message(
    sessions: dict[int, dv.Session],
    row: tuple[int, ...],
    penalty: Any,
    boxes: tuple[Box | None, ...],
    standard: bool,
) -> None:
    ps = sessions[2]
    x, v = np.random.default_rng(0).normal(size=(2, LENGTH, *row))
    there_x, there_v = ps.array(x), ps.array(v)
    here, there = Objective(np, row, penalty, standard), Objective(ps, row, penalty, standard)
    ps.evaluate(there.scale, there.centre, there.sigma, there_x, there_v)
    before = ps.counters.messages
    value, gradient = there(there_x)
    ps.evaluate(value, gradient, there.hessp(there_x, there_v), there.penalty_value(there_x))
    assert ps.counters.messages == before + 1
    np.testing.assert_allclose(float(value), here(x)[0], rtol=1e-13)
    np.testing.assert_allclose(gradient.numpy(), here(x)[1], rtol=1e-13)
    np.testing.assert_allclose(there.hessp(there_x, there_v).numpy(), here.hessp(x, v))
    np.testing.assert_allclose(there.total(there_x).item(), here.total(x), rtol=1e-13)
    for bounds in boxes:
        expected, found = here.minimize(bounds=bounds), there.minimize(bounds=bounds)
        assert found.outcome is expected.outcome is Outcome.CONVERGED_GRADIENT
        np.testing.assert_allclose(found.x.numpy(), expected.x, atol=1e-6)
        assert not standard or not found.x.numpy()[0].any()
