"""Functions, integers and masks on long vectors, each beside NumPy, numexpr and numba alone.

Each line runs as users write it, on one server in this process and on two server processes; NumPy
runs the same line. numexpr and numba, which compiles a loop for each line, have two threads, no
servers, and memory for the result that is there already. What is slower than NumPy by more than the
same line takes for ten elements, a message's latency, is a defect; it is listed by name.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numba
import numexpr
import numpy as np
from scipy import special

import distvec as dv
from benchmarks.harness import (
    Case,
    Report,
    Table,
    Timing,
    interleaved,
    main,
)

SERVERS = 2
LENGTHS = (10**5, 10**6, 10**7)
QUICK_LENGTHS = (10**5,)
SECONDS = 0.1
"""A line is repeated until NumPy has run about so long, within the bounds of ``repeat_of``."""
HEATING_SECONDS = 1.5
"""So long it is run before, on the longest vectors; a kernel is compiled meanwhile."""
FEW = 10
"""Elements of which a line takes no longer than its message."""
OURS = ("in process", f"{SERVERS} servers")
PEERS = ("NumPy", "numexpr", "numba")

Vectors = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """An expression over the vectors that ``vectors`` makes."""

    text: str
    """What users write, and NumPy runs."""
    numba: str = ""
    """The same of one element, for a compiled loop; what that adds up, if the result is a
    number."""
    numexpr: str = ""
    """Where that has the functions."""
    result: str = "float"
    """The dtype of the vector, ``"float"`` being that of ``x``; or ``""`` of a number."""


FUNCTIONS = (
    Line("np.exp(x)", "math.exp(x)", "exp(x)"),
    Line("np.log(p)", "math.log(p)", "log(p)"),
    Line("np.log1p(p)", "math.log1p(p)", "log1p(p)"),
    Line("np.expm1(x)", "math.expm1(x)", "expm1(x)"),
    Line("np.tanh(x)", "math.tanh(x)", "tanh(x)"),
    Line("np.sin(x)", "math.sin(x)", "sin(x)"),
    Line("special.expit(x)", "1 / (1 + math.exp(-x))", "1 / (1 + exp(-x))"),
    Line("special.erf(x)", "math.erf(x)"),
    Line("p ** 1.5", "p ** 1.5", "p ** 1.5"),
    Line("1 / (1 + np.exp(-x))", "1 / (1 + math.exp(-x))", "1 / (1 + exp(-x))"),
    Line("np.log1p(np.exp(-abs(x)))", "math.log1p(math.exp(-abs(x)))", "log1p(exp(-abs(x)))"),
    Line("x * np.tanh(x) + np.exp(-p)", "x * math.tanh(x) + math.exp(-p)", "x*tanh(x) + exp(-p)"),
    Line("softmax(x)"),
    Line("np.exp(x).sum()", "math.exp(x)", "sum(exp(x))", ""),
    Line("np.log1p(np.exp(-abs(x))).sum()", "math.log1p(math.exp(-abs(x)))", result=""),
)
INTEGERS = (
    Line("k * l + 3", "k * l + 3", "k * l + 3", "int64"),
    Line("k // l", "k // l", result="int64"),
    Line("k // 7", "k // 7", result="int64"),
    Line("k % 7", "k % 7", result="int64"),
    Line("i * j + 3", "i * j + 3", "i * j + 3", "int32"),
    Line("i // 7", "i // 7", result="int32"),
    Line("i & j | 1", "i & j | 1", "i & j | 1", "int32"),
    Line("(i * j).sum()", "np.int64(np.int32(i * j))", "sum(i * j)", ""),
    Line("k.sum()", "k", "sum(k)", ""),
    Line("k.max()", result=""),
    Line("i + x", "i + x", "i + x"),
    Line("2 * i + x * k", "2 * i + x * k", "2 * i + x * k"),
    Line("f + x", "f + x", "f + x"),
    Line("i / j", "i / j"),
    Line("x.astype('float32')", "x", result="float32"),
    Line("x.astype('int32')", "x", result="int32"),
)
MASKS = (
    Line("x > 0", "x > 0", "x > 0", "bool"),
    Line("m & w", "m & w", "m & w", "bool"),
    Line("(x > 0) & (p < 1) | m", "((x > 0) & (p < 1)) | m", "(x > 0) & (p < 1) | m", "bool"),
    Line("np.where(x > 0, x, p)", "x if x > 0 else p", "where(x > 0, x, p)"),
    Line("np.where(m, x, p)", "x if m else p", "where(m, x, p)"),
    Line("np.where(x > 0, 1, 0)", "1 if x > 0 else 0", "where(x > 0, 1, 0)", "int64"),
    Line("m * x", "m * x", "where(m, x, 0)"),
    Line("np.maximum(x, 0) * p", "max(x, 0.0) * p", "where(x > 0, x, 0) * p"),
    Line("np.clip(x, -1, 1)", "min(max(x, -1.0), 1.0)", "where(x < -1, -1, where(x > 1, 1, x))"),
    Line("m.sum()", "m", result=""),
    Line("(x > 0).sum()", "x > 0", "sum(where(x > 0, 1, 0))", ""),
    Line("np.count_nonzero(k)", "k != 0", result=""),
    Line("((x > 0) & m).sum()", "(x > 0) & m", result=""),
    Line("x.sum(where=x > 0)", "x if x > 0 else 0.0", "sum(where(x > 0, x, 0))", ""),
    Line("x.sum(where=m)", "x if m else 0.0", "sum(where(m, x, 0))", ""),
    Line("k.sum(where=m)", "k if m else 0", "sum(where(m, k, 0))", ""),
    Line("x.max(where=m, initial=0)", result=""),
    Line("x.mean(where=m)", result=""),
    Line("x[m].mean()", result=""),
    Line("x[x > 0].sum()", "x if x > 0 else 0.0", "sum(where(x > 0, x, 0))", ""),
    Line("np.isnan(x).any()", result=""),
)
GROUPS = {"float64": FUNCTIONS, "float32": FUNCTIONS, "integers": INTEGERS, "masks": MASKS}


def configure(parser: argparse.ArgumentParser) -> None:
    """What to leave out."""
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--lines", default="*", help="those that this pattern matches")
    parser.add_argument("--lengths", nargs="+", type=float, default=None)


def measure(options: argparse.Namespace) -> Report:
    """Milliseconds of each line, and what is slower than NumPy."""
    lengths = [int(n) for n in options.lengths or ()]
    lengths = lengths or [*(QUICK_LENGTHS if options.quick else LENGTHS)]
    heating = 0.0 if options.quick else HEATING_SECONDS
    tables, slower = [], []
    with (
        dv.local(servers=1, in_process=True) as one,
        dv.local(servers=SERVERS) as two,
        ThreadPoolExecutor(SERVERS) as threads,
    ):
        bench = Bench((one, two), threads)
        for group in options.groups:
            chosen = [
                line for line in GROUPS[group] if fnmatch.fnmatchcase(line.text, options.lines)
            ]
            for n in sorted(lengths, reverse=True):  # the longest ones make a line hot
                rows = {}
                for line, timings in bench.run(chosen, group, n, heating):
                    rows[line.text] = [
                        timings[name].median * 1e3 if name in timings else None
                        for name in (*OURS, *PEERS)
                    ]
                    slower += [
                        f"\n  {group}, n = {n:.0e}, {name}: {line.text}, by {late:.2g} ms"
                        for name in OURS
                        if (late := lateness(timings, name)) > 0
                    ]
                heating /= 4
                if rows:
                    tables.append(Table(f"ms, {group}, n = {n:.0e}", [*OURS, *PEERS], rows))
            heating = 0.0 if options.quick else HEATING_SECONDS
    facts = {"slower than NumPy by more than a message": "".join(slower) or "none"}
    return Report("functions, integers and masks", [], [], facts, tables)


class Bench:
    """The lines of a group, by everybody."""

    def __init__(self, sessions: Sequence[dv.Session], threads: ThreadPoolExecutor) -> None:
        self._sessions, self._threads = sessions, threads
        few = vectors(FEW, "float64")
        self._few = [{k: ps.array(v) for k, v in few.items()} for ps in sessions]

    def run(
        self, lines: Sequence[Line], group: str, n: int, heating: float
    ) -> Iterator[tuple[Line, dict[str, Timing]]]:
        """The timings of each line on vectors of length ``n``, by who computes it."""
        given = vectors(n, "float32" if group == "float32" else "float64")
        placed = [{k: ps.array(v) for k, v in given.items()} for ps in self._sessions]
        for line in lines:
            cases = [
                Case(name, partial(evaluated, line, where))
                for name, where in zip(OURS, placed, strict=True)
            ]
            expected = self._checked(line, cases, given)
            cases.append(Case("NumPy", partial(value_of, line, given)))
            cases += [
                Case(f"{name}, few", partial(evaluated, line, where))
                for name, where in zip(OURS, self._few, strict=True)
            ]
            if line.numexpr:
                cases.append(Case("numexpr", by_numexpr(line, given, expected)))
            if line.numba:
                cases.append(Case("numba", self._by_numba(line, given, expected)))
            for case in cases[: len(OURS)]:
                until = time.perf_counter() + heating
                while time.perf_counter() < until:
                    case.run()
            began = time.perf_counter()
            cases[len(OURS)].run()
            yield line, interleaved(cases, repeat_of(time.perf_counter() - began))

    def _checked(self, line: Line, cases: Sequence[Case], given: Vectors) -> Any:
        """NumPy's result, once ours are the same."""
        expected = value_of(line, given)
        for case in cases:
            found = case.run()
            found = found.numpy() if isinstance(found, dv.DistArray) else found
            np.testing.assert_allclose(found, expected, rtol=1e-5)
        return expected

    def _by_numba(self, line: Line, given: Vectors, expected: Any) -> Callable[[], Any]:
        """One compiled loop on as many threads as there are servers."""
        names = tuple(name for name in given if name in _words(line.numba))
        loop, n = _compiled(line, names), len(given["x"])
        cuts = [n * k // SERVERS for k in range(SERVERS + 1)]
        arrays = [given[name] for name in names]
        if not line.result:
            return lambda: sum(
                self._threads.map(lambda low, high: loop(low, high, *arrays), cuts[:-1], cuts[1:])
            )
        out = np.empty_like(expected)
        return lambda: list(
            self._threads.map(lambda low, high: loop(low, high, out, *arrays), cuts[:-1], cuts[1:])
        )


def lateness(timings: Mapping[str, Timing], name: str) -> float:
    """Milliseconds by which ``name`` of ours is slower than NumPy, but for messages."""
    late = timings[name].median - timings[f"{name}, few"].median
    return (late - 1.05 * timings["NumPy"].median) * 1e3


def vectors(n: int, dtype: str) -> Vectors:
    """``x`` of both signs and ``p`` positive, integers, of which ``j`` and ``l`` are not 0, masks,
    and ``f``, which is always float32."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal(n)
    return {
        "x": x.astype(dtype),
        "p": (2 * rng.random(n) + 1e-3).astype(dtype),
        "f": x.astype("float32"),
        "i": rng.integers(-1000, 1000, n, "int32"),
        "j": rng.integers(1, 1000, n, "int32"),
        "k": rng.integers(-1000, 1000, n),
        "l": rng.integers(1, 1000, n),
        "m": rng.random(n) < 0.5,
        "w": rng.random(n) < 0.1,
    }


def softmax(x: Any) -> Any:
    """Along a vector."""
    e = np.exp(x - x.max())
    return e / e.sum()


def value_of(line: Line, given: Vectors) -> Any:
    """What the line gives; NumPy's, or lazy."""
    return eval(line.text, {"np": np, "special": special, "softmax": softmax}, {**given})


def evaluated(line: Line, given: Vectors) -> Any:
    """The same on servers, computed."""
    value = value_of(line, given)
    return value.persist() if line.result else value.item()


def by_numexpr(line: Line, given: Vectors, expected: Any) -> Callable[[], Any]:
    """One evaluation, into memory that is there."""
    numexpr.set_num_threads(SERVERS)
    out = np.empty_like(expected) if line.result else None
    return lambda: numexpr.evaluate(line.numexpr, local_dict=given, out=out, casting="unsafe")


@cache
def _compiled(line: Line, names: tuple[str, ...]) -> Any:
    body = f"out[at] = {line.numba}" if line.result else f"total += {line.numba}"
    text = "\n".join(
        [
            f"def loop(low, high, {'out, ' if line.result else ''}{', '.join(names)}):",
            "    total = 0",
            "    for at in range(low, high):",
            *(f"        {name}_ = {name}[at]" for name in names),
            "        " + _renamed(body, names),
            "    return total",
        ]
    )
    scope: dict[str, Any] = {"math": math, "np": np}
    exec(text, scope)
    return numba.njit(nogil=True)(scope["loop"])


def _renamed(text: str, names: Sequence[str]) -> str:
    return "".join(f"{word}_" if word in names else word for word in _words(text))


def _words(text: str) -> list[str]:
    """Names, with their dots, and what stands between them."""
    found = [""]
    for letter in text:
        if found[-1] and _in_name(letter) == _in_name(found[-1][-1]):
            found[-1] += letter
        else:
            found.append(letter)
    return found


def _in_name(letter: str) -> bool:
    return letter.isalnum() or letter in "._"


def repeat_of(seconds: float) -> int:
    """How often to run what takes NumPy so long."""
    return min(max(3, int(SECONDS / seconds)), 25)


if __name__ == "__main__":
    main(__doc__, measure, configure)
