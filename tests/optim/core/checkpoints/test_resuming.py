"""What may be resumed, and what is refused; processes that are killed; other array libraries."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import optim
from optim import (
    ADMM,
    LBFGS,
    LBFGSB,
    OWLQN,
    SAG,
    SGD,
    Box,
    Constant,
    FiniteSum,
    GradientDescent,
    L1Norm,
    MeanOf,
    NonMonotone,
    Outcome,
    SmoothTerm,
    minimize,
)
from optim.core.checkpoints.encode import Decoder, Encoder
from tests.optim.core.checkpoints.test_every_solver import same_results, term
from tests.optim.problems import quadratic, rosenbrock
from tests.optim.registry import START, ill_conditioned

SCRIPT = """
import os, signal, sys
import numpy as np
from optim import {name}
from tests.optim.registry import START, ill_conditioned

calls = 0

def fun(x):
    global calls
    calls += 1
    if calls == {kill}:
        os.kill(os.getpid(), signal.SIGKILL)
    return ill_conditioned(x)

result = {solver}.minimize(fun, START, checkpoint=sys.argv[1], every=3, resume=True)
np.savez(sys.argv[2], x=result.x, rest=[result.fun, result.nit, result.nfev, len(result.history)])
"""


@pytest.mark.parametrize(
    ("name", "solver", "kills"),
    [
        ("LBFGS", "LBFGS()", [1, 9, 0]),
        ("Adam", "Adam(step_size=0.1, average=True, max_iterations=40)", [12, 0]),
    ],
)
def test_processes_that_are_killed(
    tmp_path: Path, name: str, solver: str, kills: list[int]
) -> None:
    """The same script is run again and again, until it comes to its end."""
    kept, out = tmp_path / "run", tmp_path / "out.npz"
    ends = []
    for kill in kills:
        script = SCRIPT.format(name=name, solver=solver, kill=kill)
        ends.append(subprocess.run([sys.executable, "-c", script, kept, out]).returncode)
    assert ends == [-signal.SIGKILL if kill else 0 for kill in kills]
    whole = eval(f"optim.{solver}").minimize(ill_conditioned, START)
    with np.load(out) as found:
        assert found["x"].tobytes() == whole.x.tobytes()
        assert list(found["rest"]) == [whole.fun, whole.nit, whole.nfev, whole.nit + 1]


def test_a_directory_in_use_is_not_written_over(tmp_path: Path) -> None:
    LBFGS(max_iterations=3).minimize(quadratic, START, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"holds checkpoints already; give resume=True"):
        LBFGS().minimize(quadratic, START, checkpoint=tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("")
    assert LBFGS().minimize(quadratic, START, checkpoint=tmp_path / "other").success


def test_two_processes_are_not_in_one_directory(tmp_path: Path) -> None:
    script = SCRIPT.format(name="LBFGS", solver="LBFGS()", kill=0)
    states = LBFGS().iterations(quadratic, START, checkpoint=tmp_path)
    next(states)
    command = [sys.executable, "-c", script, tmp_path, tmp_path / "out.npz"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert "another running process writes its checkpoints there" in refused.stderr
    assert list(states)[-1].outcome is Outcome.CONVERGED_GRADIENT
    assert subprocess.run(command).returncode == 0


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (
            OWLQN(),
            r"made by LBFGS, so OWLQN cannot continue from it; resume it with LBFGS\(\.\.\.\)",
        ),
        (LBFGS(history=5), r"made with LBFGS\(history=10\), but history is 5 now"),
        (LBFGS(search=optim.StrongWolfe(c2=0.5)), r"c2=0\.9.*c2=0\.5.* now"),
    ],
)
def test_another_solver_or_other_steps(tmp_path: Path, solver: Any, message: str) -> None:
    LBFGS(max_iterations=3).minimize(quadratic, START, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=message):
        solver.minimize(quadratic, START, checkpoint=tmp_path, resume=True)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (LBFGSB(bounds=[(0, 1)] * 12), LBFGSB(bounds=[(0, 2)] * 12)),
        (LBFGSB(bounds=Box(np.zeros(12))), LBFGSB(bounds=Box(np.full(12, -0.0)))),
        (OWLQN(l1=0.1), OWLQN(l1=0.2)),
        (ADMM(penalty=L1Norm(0.1)), ADMM(penalty=L1Norm(0.2))),
        (SGD(step_size=0.1), SGD(step_size=Constant(0.1))),
        (
            GradientDescent(),
            GradientDescent(search=NonMonotone(reference=MeanOf(0.5))),
        ),
    ],
)
def test_parameters_with_parts(tmp_path: Path, before: Any, now: Any) -> None:
    before.minimize(quadratic, START, checkpoint=tmp_path)
    before.minimize(quadratic, START, checkpoint=tmp_path, resume=True)
    with pytest.raises(ValueError, match="so further steps would differ; give the same value"):
        now.minimize(quadratic, START, checkpoint=tmp_path, resume=True)


@pytest.mark.parametrize(
    "limit",
    [{"max_iterations": 6}, {"max_evaluations": 9}, {"max_seconds": 0.0}, {"value_tolerance": 1.0}],
    ids=str,
)
def test_limits_and_tolerances_may_be_others(tmp_path: Path, limit: dict[str, Any]) -> None:
    first = LBFGS(**limit).minimize(rosenbrock, START, checkpoint=tmp_path)
    assert first.outcome not in (Outcome.CONVERGED_GRADIENT, Outcome.CONVERGED_PRECISION)
    resumed = LBFGS().minimize(rosenbrock, START, checkpoint=tmp_path, resume=True)
    assert resumed.success
    if "max_evaluations" not in limit:  # a search that had no more of them took what it had
        same_results(resumed, LBFGS().minimize(rosenbrock, START))


class Pair(NamedTuple):
    w: Any
    b: Any


def squared(x: Any) -> tuple[float, Any]:
    leaves = list(x.values()) if isinstance(x, dict) else list(x)
    gradients = [2.0 * leaf for leaf in leaves]
    value = float(sum(np.vdot(leaf, leaf) for leaf in leaves))
    return value, dict(zip(x, gradients, strict=True)) if isinstance(x, dict) else tuple(gradients)


@pytest.mark.parametrize(
    ("x0", "message"),
    [
        (np.zeros(11), r"shape \(12,\), float64, but x0 is x: numpy.ndarray, shape \(11,\)"),
        (np.zeros((12, 1)), r"but x0 is .* shape \(12, 1\)"),
        (np.zeros(12, "f4"), r"float64, but x0 is .* float32"),
        ({"w": np.zeros(12)}, r"but x0 is x\['w'\]: numpy"),
    ],
)
def test_another_start(tmp_path: Path, x0: Any, message: str) -> None:
    LBFGS(max_iterations=1).minimize(quadratic, START, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=message):
        LBFGS().minimize(quadratic, x0, checkpoint=tmp_path, resume=True)


def test_another_structure(tmp_path: Path) -> None:
    start = Pair(np.ones(3), np.ones(2))
    LBFGS(max_iterations=1).minimize(squared, start, checkpoint=tmp_path)
    resumed = LBFGS().minimize(squared, start, checkpoint=tmp_path, resume=True)
    assert type(resumed.x) is Pair and resumed.success
    for other in ({"w": start.w, "b": start.b}, tuple(start), list(start)):
        with pytest.raises(ValueError, match="x0"):
            LBFGS().minimize(squared, other, checkpoint=tmp_path, resume=True)


def test_resume_needs_a_place(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give checkpoint=directory, or open the session with"):
        LBFGS().minimize(quadratic, START, resume=True)
    with pytest.raises(ValueError, match="every=0: must be the iterations between checkpoints"):
        LBFGS().minimize(quadratic, START, checkpoint=tmp_path, every=0)
    with pytest.raises(
        TypeError, match=r"checkpoint=True: must be a directory, for instance 'run1'"
    ):
        LBFGS().minimize(quadratic, START, checkpoint=True)  # type: ignore[arg-type]


def test_a_callback_that_stops_may_be_followed_by_more(tmp_path: Path) -> None:
    """As where a machine is about to be taken away."""
    kept: dict[str, Any] = {"checkpoint": tmp_path, "resume": True}
    first = LBFGS().minimize(rosenbrock, START, callback=lambda s: s.iteration == 5, **kept)
    assert (first.nit, first.outcome) == (5, Outcome.STOPPED_BY_CALLBACK)
    resumed = LBFGS().minimize(rosenbrock, START, callback=lambda s: s.iteration == 5, **kept)
    same_results(resumed, LBFGS().minimize(rosenbrock, START))


@pytest.mark.parametrize("jac", [None, "2-point", "3-point", "cs"])
def test_scipys_minimize(tmp_path: Path, jac: str | None) -> None:
    """`nfev` counts calls for differences, before and after the break."""

    def fun(x: np.ndarray) -> Any:
        return ((x - 1.0) ** 2).sum() + ((x[1:] - x[:-1]) ** 4).sum()

    def breaking(x: np.ndarray) -> Any:
        if next(calls) > 60:
            raise LookupError
        return fun(x)

    calls = iter(range(1000))
    options: dict[str, Any] = {"method": "L-BFGS-B", "jac": jac, "bounds": [(-1.0, 2.0)] * 12}
    whole = minimize(fun, START, **options)
    options |= {"checkpoint": tmp_path, "every": 2, "resume": True}
    with pytest.raises(LookupError):
        minimize(breaking, START, **options)
    same_results(minimize(fun, START, **options), whole)


def test_inner_runs_keep_nothing(tmp_path: Path) -> None:
    solver = ADMM(penalty=L1Norm(0.1), terms=(SmoothTerm(quadratic),), max_iterations=5)
    solver.minimize(quadratic, START, checkpoint=tmp_path)
    assert len(list(tmp_path.glob("*.npz"))) == 2


def test_an_order_is_not_written_down(tmp_path: Path) -> None:
    """Neither functions nor what can be drawn again are in a checkpoint."""
    sums = FiniteSum(term, 10, seed=3)
    solver = SAG(step_size=0.02, max_iterations=25)
    whole = solver.minimize(sums, START)
    solver.minimize(sums, START, checkpoint=tmp_path, callback=lambda s: s.iteration == 13)
    same_results(solver.minimize(sums, START, checkpoint=tmp_path, resume=True), whole)


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_other_libraries_go_through_numpy(tmp_path: Path, library: str) -> None:
    xp = pytest.importorskip(library)
    pytest.importorskip("array_api_compat")
    start = xp.asarray(START)

    def fun(x: Any) -> Any:
        return xp.sum((x - 3.0) ** 4), 4.0 * (x - 3.0) ** 3

    solver = LBFGS()
    whole = solver.minimize(fun, start)
    kept: dict[str, Any] = {"checkpoint": tmp_path, "every": 3, "resume": True}
    with warnings.catch_warnings():
        solver.minimize(fun, start, callback=lambda s: s.iteration == 5, **kept)
        resumed = solver.minimize(fun, start, **kept)
    assert type(resumed.x) is type(whole.x) and bool(xp.all(resumed.x == whole.x))
    assert (resumed.fun, resumed.nit, resumed.nfev) == (whole.fun, whole.nit, whole.nfev)


def test_what_cannot_be_kept_is_named() -> None:
    with pytest.raises(TypeError, match=r"cannot hold last.memory.0, a Generator; states may"):
        Encoder().encode((np.random.default_rng(),), "last.memory")
    with pytest.raises(TypeError, match=r"hold last, a tests.*Pair|cannot hold last, a Pair"):
        Encoder().encode(Pair(1, 2), "last")
    with pytest.raises(TypeError, match="of dtype object; give real or complex numbers"):
        Encoder().encode(np.array([None]), "last")


@pytest.mark.parametrize(
    "node",
    [
        {"object": "os:system", "fields": {}},
        {"object": "optim.core.result:os", "fields": {}},
        {"object": "optim.core.result:State", "fields": {"x": 1}},
        {"object": "optim.core.gone:State", "fields": {}},
        {"enum": "optim.core.result:Outcome", "name": "PERHAPS"},
        {"enum": "optim.core.result:State", "name": "x"},
        {"array": "absent"},
        {"float": "00"},
        {"scalar": ["O", "00"]},
        {"unheard": 1},
        {"type": "os:system"},
        {},
        {"list": 3},
    ],
    ids=str,
)
def test_nothing_is_made_of_garbage(node: Any) -> None:
    with pytest.raises(optim.Corrupted):
        Decoder({}).decode(node)


@pytest.mark.parametrize(
    "value",
    [
        *(0.1, -0.0, float("inf"), float("-inf"), np.float32(0.1), np.float64("nan")),
        *(np.bool_(True), None, True, 2**70, "é", (), [1, (2.5, [])], {3: (1,), "a": {}}),
        Outcome.STALLED,
    ],
    ids=repr,
)
def test_values_come_back(value: Any) -> None:
    encoder = Encoder()
    found = Decoder(encoder.arrays).decode(encoder.encode(value, "v"))
    assert type(found) is type(value) and repr(found) == repr(value)


def test_an_array_that_is_there_twice_is_kept_once() -> None:
    x = np.arange(3.0)
    encoder = Encoder()
    node = encoder.encode({"a": x, "b": (x, np.arange(3.0))}, "v")
    assert len(encoder.arrays) == 2
    found = Decoder(encoder.arrays).decode(node)
    assert found["a"] is found["b"][0] and found["a"] is not found["b"][1]
