"""Expressions over arrays with rows, before users can make such arrays by themselves."""

import numpy as np
import pytest

import distvec as dv
from distvec.array.array import DistArray

X = np.random.default_rng(0).standard_normal((5000, 3))


def table(ps: dv.Session, values: np.ndarray) -> DistArray:
    return ps.array(values)


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_rows_are_planned_and_computed_as_vectors_are(servers):
    with dv.local(servers, in_process=True) as ps:
        x, y, v = table(ps, X), table(ps, X[:, ::-1].copy()), ps.array(X[:, 0].copy())
        ps.counters.reset()
        z, w = 2 * x + y, 2 * v
        total, product = z.sum(), dv.vdot(x, y)
        dv.evaluate(z, w, total, product)
        assert (ps.counters.messages, ps.counters.sweeps) == (1, 2)
        assert z.shape == X.shape and z.numpy().tobytes() == (2 * X + X[:, ::-1]).tobytes()
        assert w.numpy().tobytes() == (2 * X[:, 0]).tobytes()
        assert float(total) == pytest.approx((2 * X + X[:, ::-1]).sum())
        assert float(product) == pytest.approx((X * X[:, ::-1]).sum())
        assert float(table(ps, X).max()) == X.max()
        with pytest.raises(ValueError, match=r"broadcast together with shapes \(5000, 3\) "):
            x + v
