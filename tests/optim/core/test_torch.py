"""PyTorch: our updates are those of torch.optim, and every solver runs on tensors."""

from __future__ import annotations

import numpy as np
import pytest

from optim import SGD, AdaDelta, AdaGrad, Adam, AdamW, InverseTime, RMSProp
from tests.optim.problems import rosenbrock
from tests.optim.registry import START, cases, ill_conditioned

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

PAIRS = [
    (SGD(step_size=1e-4), "SGD", {"lr": 1e-4}),
    (SGD(step_size=1e-4, momentum=0.9), "SGD", {"lr": 1e-4, "momentum": 0.9}),
    (
        SGD(step_size=1e-4, momentum=0.9, nesterov=True),
        "SGD",
        {"lr": 1e-4, "momentum": 0.9, "nesterov": True},
    ),
    (AdaGrad(step_size=0.3), "Adagrad", {"lr": 0.3}),
    (
        AdaGrad(step_size=InverseTime(0.3, 0.01), accumulator=0.5, epsilon=1e-6),
        "Adagrad",
        {"lr": 0.3, "lr_decay": 0.01, "initial_accumulator_value": 0.5, "eps": 1e-6},
    ),
    (AdaDelta(), "Adadelta", {}),
    (AdaDelta(step_size=2.0, decay=0.95), "Adadelta", {"lr": 2.0, "rho": 0.95}),
    (RMSProp(), "RMSprop", {}),
    (
        RMSProp(step_size=1e-3, decay=0.9, momentum=0.5, centered=True),
        "RMSprop",
        {"lr": 1e-3, "alpha": 0.9, "momentum": 0.5, "centered": True},
    ),
    (Adam(), "Adam", {}),
    (
        Adam(step_size=0.05, beta1=0.8, beta2=0.99, epsilon=1e-6),
        "Adam",
        {"lr": 0.05, "betas": (0.8, 0.99), "eps": 1e-6},
    ),
    (AdamW(), "AdamW", {}),
    (AdamW(step_size=0.05, weight_decay=0.3), "AdamW", {"lr": 0.05, "weight_decay": 0.3}),
]


def path_of_torch(name, options, x0, steps):
    """The iterates of torch.optim on Rosenbrock's function."""
    x = torch.tensor(x0, requires_grad=True)
    optimizer = getattr(torch.optim, name)([x], **options)
    yield x.detach().numpy().copy()
    for _ in range(steps):
        x.grad = torch.tensor(rosenbrock(x.detach().numpy())[1])
        optimizer.step()
        yield x.detach().numpy().copy()


@pytest.mark.parametrize(
    ("solver", "name", "options"), PAIRS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_the_same_steps_as_torch(solver, name, options):
    x0 = np.array([-1.2, 1.0, 0.7, -0.4, 2.0, 0.0])
    steps = 100
    states = solver.iterations(rosenbrock, x0)
    for state, expected in zip(states, path_of_torch(name, options, x0, steps), strict=False):
        np.testing.assert_allclose(state.x, expected, rtol=1e-12, atol=1e-14)
    assert state.iteration >= steps


@pytest.mark.parametrize("case", cases(), ids=str)
def test_the_same_path_on_tensors(case):
    solver = case.make()
    ours = solver.minimize(ill_conditioned, START)
    theirs = solver.minimize(ill_conditioned, torch.tensor(START))
    assert isinstance(theirs.x, torch.Tensor)
    assert theirs.x.dtype == torch.float64
    for one, other in zip(ours.history[:10], theirs.history[:10], strict=True):
        assert other.value == pytest.approx(one.value, rel=1e-8)
    assert theirs.outcome is ours.outcome
    assert theirs.fun == pytest.approx(ours.fun, rel=1e-9)
    np.testing.assert_allclose(theirs.x.numpy(), ours.x, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("case", cases(), ids=str)
def test_tensors_of_rank_2(case):
    def fun(x):
        value, gradient = ill_conditioned(x.reshape(-1))
        return value, gradient.reshape(x.shape)

    solver = case.make(max_iterations=6)
    ours = solver.minimize(fun, START.reshape(4, 3))
    theirs = solver.minimize(fun, torch.tensor(START.reshape(4, 3)))
    assert isinstance(theirs.x, torch.Tensor)
    np.testing.assert_allclose(theirs.x.numpy(), ours.x, rtol=1e-6, atol=1e-7)
