"""Arrays on servers, and their session's keeper: the same bits on another number of servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distvec as dv
from optim import FiniteSum, State
from tests.optim.core.checkpoints.test_every_solver import untimed
from tests.optim.registry import START, Case, cases

N = 3000  # several blocks
SOME = [case for case in cases() if str(case) in ("LBFGS", "LBFGSB", "OWLQN-l1")]
SOME += [case for case in cases() if str(case) in ("SAG-step_size-l2", "Adam-step_size-average")]
CURVATURES = np.linspace(1.0, 30.0, N)


class Stopped(Exception):
    """Raised by a callback, in the place of a kill."""


def objective(session: dv.Session, case: Case) -> Any:
    a = session.array(CURVATURES)

    def term(x: Any, i: int) -> Any:
        d = x - 1.0 - 0.1 * i
        return 0.5 * (d @ (a * d)), a * d

    step = FiniteSum(term, 3, seed=2)
    return step if case.cls.__name__ in ("SAG", "SVRG") else lambda x: term(x, 0)


def run(servers: int, case: Case, stop: int | None, **kept: Any) -> Any:
    def callback(state: State) -> None:
        if state.iteration == stop:
            raise Stopped

    with dv.local(servers=servers, in_process=True) as session:
        start = session.array(np.resize(START, N))
        solver = case.make(max_iterations=9)
        result = solver.minimize(objective(session, case), start, callback=callback, **kept)
        result.update(x=result.x.numpy(), jac=result.jac.numpy())
        return result


@pytest.mark.parametrize("case", SOME, ids=str)
def test_a_run_that_broke_off_ends_with_the_same_bits(case: Case, tmp_path: Path) -> None:
    kept: dict[str, Any] = {"checkpoint": str(tmp_path), "every": 3, "resume": True}
    whole = run(2, case, None)
    with pytest.raises(Stopped):
        run(2, case, 5, **kept)
    resumed = run(3, case, None, **kept)
    assert resumed.x.tobytes() == whole.x.tobytes()
    assert resumed.jac.tobytes() == whole.jac.tobytes()
    assert (resumed.fun, resumed.nit, resumed.nfev) == (whole.fun, whole.nit, whole.nfev)
    assert untimed(resumed) == untimed(whole)
