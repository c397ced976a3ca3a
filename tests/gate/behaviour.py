"""Public names, plans and cost of solvers, and digests of results on several numbers of servers."""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

import distvec as dv
import optim
from benchmarks.same_bits.run import digest
from tests.golden.plans import SOLVERS, plans_of_an_iteration
from tests.optim.core.checkpoints.test_on_servers import objective
from tests.optim.registry import START, Case, cases

MODULES = (
    "distvec",
    "distvec.diagnostics",
    "distvec.losses",
    "distvec.rows",
    "distvec.spark",
    "distvec.testing",
    "optim",
    "ps_backend.client",
    "ps_backend.errors",
)
SERVERS = (1, 2, 3, 7)
_LENGTH, _COLUMNS = 70_003, 3
_ITERATIONS = 8


def lines() -> Iterator[str]:
    """All of it, a line each."""
    yield from sorted(name for module in MODULES for name in public_names(module))
    for name, make in SOLVERS.items():
        plans = hashlib.sha256(plans_of_an_iteration(make()).encode()).hexdigest()[:16]
        yield f"plans {name} {plans}"
    for case in cases():
        yield f"cost {case}: {cost(case)}"
    for name, program in PROGRAMS.items():
        found = {servers: run(program, servers) for servers in SERVERS}
        alike = len(set(found.values())) == 1
        yield f"digest {name}: {found[SERVERS[0]] if alike else f'DIFFERENT {found}'}"


def public_names(name: str) -> Iterator[str]:
    """What users find in a module, and in the classes that it exports."""
    module = importlib.import_module(name)
    for own in {*vars(module), *getattr(module, "__all__", ())}:  # some are imported when asked for
        value = getattr(module, own)
        if own.startswith("_") or isinstance(value, ModuleType):
            continue
        if getattr(value, "__module__", name) in ("typing", "__future__"):
            continue
        yield f"{name}.{own}"
        if inspect.isclass(value):
            methods = (attribute for attribute in dir(value) if not attribute.startswith("_"))
            yield from (f"{name}.{own}.{attribute}" for attribute in methods)


def cost(case: Case) -> str:
    """Of a whole run of a solver on two servers."""
    with dv.local(servers=2, in_process=True) as ps:
        start = ps.array(np.resize(START, 3000)).persist()
        fun = objective(ps, case)
        before = ps.counters.snapshot()
        result = case.make(max_iterations=_ITERATIONS).minimize(fun, start)
        counted = {name: value - before[name] for name, value in ps.counters.snapshot().items()}
    kinds = ("messages", "sweeps", "vectors_read", "vectors_written")
    spent = ", ".join(f"{counted[kind]} {kind.replace('_', ' ')}" for kind in kinds)
    return f"{result.nit} iterations, {result.nfev} evaluations, {spent}"


def run(program: Callable[[dv.Session, Any, Any, Any], Any], servers: int) -> str:
    """The bits of a program's results, or its error."""
    rng = np.random.default_rng(5)
    x, y = rng.uniform(-2, 2, _LENGTH), rng.uniform(0.5, 2, _LENGTH)
    table = rng.uniform(-1, 1, (_LENGTH // _COLUMNS, _COLUMNS))
    with dv.local(servers=servers, in_process=True) as ps:
        results = program(ps, ps.array(x), ps.array(y), ps.array(table))
        return ", ".join(map(digest, results if isinstance(results, tuple) else (results,)))


def _keyed(ps: dv.Session, x: Any, y: Any, t: Any) -> Any:
    keys = np.arange(0, 90_000, 9)
    weights = ps.keys().table(4, init=dv.uniform(-0.5, 0.5), seed=7)
    weights.optimizer(dv.rows.adagrad(0.5))
    for turn in range(3):
        some = keys[turn::2]
        weights.step(some, np.resize(np.arange(5.0), (some.size, 4)).astype(np.float32))
    return weights.pull(keys)


def _solved(make: Callable[[], Any]) -> Callable[[dv.Session, Any, Any, Any], Any]:
    def program(ps: dv.Session, x: Any, y: Any, t: Any) -> Any:
        found = make().minimize(
            lambda w: (0.5 * (w @ (y * w)) - x @ w, y * w - x), ps.zeros(_LENGTH)
        )
        return found.x, found.fun

    return program


# Operations of which any processor gives the same bits: no exponential, no logarithm.
PROGRAMS: dict[str, Callable[[dv.Session, Any, Any, Any], Any]] = {
    "elementwise": lambda ps, x, y, t: 2 * x - y / 3 + np.sqrt(y) * abs(x),
    "float32": lambda ps, x, y, t: x.astype("float32") * np.float32(1.1) + y.astype("float32"),
    "integers": lambda ps, x, y, t: (x * 50).astype("int64") // 7 % 5,
    "comparisons": lambda ps, x, y, t: np.where((x > y) | (x < -1), x, -y),
    "reductions": lambda ps, x, y, t: (x.sum(), x @ y, x.min(), np.linalg.norm(x), x.argmax()),
    "statistics": lambda ps, x, y, t: (x.mean(), x.var(), np.average(x, weights=y)),
    "fused": lambda ps, x, y, t: (lambda z: (z, z @ x, abs(z).max()))(2 * x + y),
    "slices": lambda ps, x, y, t: x[5:-7:3] * y[::-1][5:-7:3],
    "masks": lambda ps, x, y, t: (x[x > 0.5], x[x > 0].sum()),
    "gather": lambda ps, x, y, t: x[np.arange(0, _LENGTH, 17)[::-1]],
    "scatter": lambda ps, x, y, t: (x.push([3, 3, 60_000], [1.0, 2.0, 3.0]), x)[1],
    "assignment": lambda ps, x, y, t: (x.__setitem__(slice(10, 60_000, 2), 5.0), x)[1],
    "shapes": lambda ps, x, y, t: np.concatenate([np.roll(x, 3), np.pad(y, 2), np.repeat(x, 2)]),
    "scans": lambda ps, x, y, t: (np.cumsum(x), np.diff(y)),
    "sorts": lambda ps, x, y, t: (np.sort(x), np.argsort(y), np.median(x)),
    "sets": lambda ps, x, y, t: np.unique((x * 100).astype("int64")),
    "counts": lambda ps, x, y, t: np.bincount((y * 50).astype("int64"), weights=x),
    "tables": lambda ps, x, y, t: (t @ np.arange(3.0), t.T @ t, t.sum(axis=0), t.max(axis=1)),
    "columns": lambda ps, x, y, t: (t.T * 2, t[:, 1], t.ravel() + 1),
    "qr": lambda ps, x, y, t: abs(np.linalg.qr(t)[1]),
    "random": lambda ps, x, y, t: ps.random.uniform(size=_LENGTH, seed=3),
    "keyed": _keyed,
    "gradient": lambda ps, x, y, t: dv.grad(lambda w: ((w * y - x) ** 2).sum())(x),
    "L-BFGS": _solved(lambda: optim.LBFGS(history=4, max_iterations=_ITERATIONS)),
    "OWL-QN": _solved(lambda: optim.OWLQN(l1=0.01, max_iterations=_ITERATIONS)),
    "Adam": _solved(lambda: optim.Adam(max_iterations=_ITERATIONS)),
}
