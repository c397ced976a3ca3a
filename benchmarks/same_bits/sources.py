"""Random programs as source text, which means the same on NumPy arrays and on distributed ones.

Every line is tried on tiny NumPy arrays first: that says which dtypes it leaves, and drops what
NumPy refuses or what has a dtype that servers do not know.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DTYPES = ("float64", "float32", "int64", "int32", "bool")
LENGTHS = (7, 1000, 1501, 70_003, 300_003, 300_003)
"""Around the length of a block and the lengths from which other engines run."""
SERVERS = (1, 3)
_COMPILED_LENGTH = 2503

_UNARY = (
    "abs", "negative", "positive", "sign", "square", "sqrt", "exp", "expm1", "log", "log1p",
    "log2", "log10", "sin", "cos", "tanh", "floor", "ceil", "trunc", "rint", "reciprocal",
    "isfinite", "isnan", "isinf", "logical_not",
)  # fmt: skip
_BINARY = (
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "maximum",
    "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "logical_and", "logical_or", "logical_xor",
)  # fmt: skip
_REDUCTIONS = (
    "sum", "mean", "prod", "min", "max", "any", "all", "argmin", "argmax", "count_nonzero",
    "linalg.norm",
)  # fmt: skip
_SOLVERS = (
    "optim.LBFGS(history=4, max_iterations=6)",
    "optim.OWLQN(l1=0.01, max_iterations=6)",
    "optim.ConjugateGradient(max_iterations=6)",
    "optim.GradientDescent(max_iterations=6)",
    "optim.TruncatedNewton(max_iterations=3)",
    "optim.ProximalGradient(penalty=optim.L1Norm(0.01), max_iterations=6)",
)


@dataclass(frozen=True)
class Program:
    """One run: ``source`` over ``inputs`` (dtype by name), vectors of ``length`` on ``servers``."""

    seed: int
    servers: int
    length: int
    engine: str
    """Of ``distvec.testing.engine``; empty where the length decides."""
    special: bool
    """Whether some inputs are infinite, subnormal or no numbers."""
    inputs: dict[str, str]
    source: str
    results: list[str] = field(default_factory=list)


def programs(seed: int, count: int) -> Iterator[Program]:
    """So many programs, the same ones for the same ``seed``; every tenth is compiled as a whole."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        compiled = number % 10 == 9
        writer = _Writer(rng)
        source, results = writer.solver() if number % 20 == 10 else writer.lines()
        length = _COMPILED_LENGTH if compiled else int(rng.choice(LENGTHS))
        for servers in SERVERS:
            engine, special = "numba" if compiled else "", number % 5 == 4
            yield Program(number, servers, length, engine, special, writer.inputs, source, results)


class _Writer:
    """The lines of one program, and what its names stand for on NumPy."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        float_first = ("float64", "float64", "float64", "float32", "float32")
        dtypes = [*float_first, *(str(rng.choice(DTYPES)) for _ in range(3))]
        self.inputs = {f"x{k}": dtype for k, dtype in enumerate(dtypes)}
        self._names: dict[str, Any] = {"np": np}
        for name, dtype in self.inputs.items():
            self._names[name] = rng.uniform(1.0, 2.0, 3).astype(dtype)
        self._lines: list[str] = []

    def lines(self) -> tuple[str, list[str]]:
        """Statements of all kinds; what is left is asked for at once or name by name."""
        kinds: Sequence[tuple[Callable[[], str], int]] = (
            (self._elementwise, 6), (self._combination, 6), (self._reduction, 3), (self._dot, 6),
            (self._arithmetic, 3), (self._in_place, 3), (self._cast, 1), (self._evaluation, 2),
            (self._dropped, 1), (self._direction, 1),
        )  # fmt: skip
        weights = np.array([weight for _, weight in kinds], float)
        for _ in range(int(self._rng.integers(4, 30))):
            kind = int(self._rng.choice(len(kinds), p=weights / weights.sum()))
            self._try(kinds[kind][0]())
        results = sorted(name for name, _ in self._arrays())
        if self._rng.random() < 0.7:
            self._lines.append(f"dv.evaluate({', '.join(results)})")
        return "\n".join(self._lines), results

    def solver(self) -> tuple[str, list[str]]:
        """A few iterations of a solver on a curved valley."""
        solver = str(self._rng.choice(_SOLVERS))
        lines = (
            "def fun(x):",
            "    d = x - 0.5",
            "    g = d * (1.0 + abs(x1)) + 0.1 * d * d * d",
            "    return float(d @ g), g" if self._rng.random() < 0.5 else "    return d @ g, g",
            f"result = {solver}.minimize(fun, x0)",
            "point, value, iterations = result.x, result.fun, result.nit",
        )
        return "\n".join(lines), ["point", "value", "iterations"]

    def _try(self, text: str) -> None:
        """Keep ``text`` if NumPy takes it, and all is of known dtypes then."""
        names = {
            name: value.copy() if isinstance(value, np.ndarray) else value
            for name, value in self._names.items()
        }
        runnable = "\n".join(line for line in text.split("\n") if not line.startswith("dv."))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec(runnable, names)
            except (ArithmeticError, NameError, TypeError, ValueError):
                return
        names.pop("__builtins__", None)
        values = [value for name, value in names.items() if name != "np"]
        if text and all(np.asarray(value).dtype.name in DTYPES for value in values):
            self._names = names
            self._lines.append(text)

    # --- names and numbers ---

    def _arrays(self) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in self._names.items() if name != "np"]

    def _new(self) -> str:
        return f"v{len(self._lines)}"

    def _one(self, dtypes: Sequence[str] = DTYPES, *, ndim: int = 1) -> str:
        """A name of such an array: half the time an input; ``x0`` if there is none."""
        found = [
            name
            for name, value in self._arrays()
            if np.ndim(value) == ndim and np.asarray(value).dtype.name in dtypes
        ]
        inputs = [name for name in found if name in self.inputs]
        among = inputs if inputs and self._rng.random() < 0.5 else found
        return str(self._rng.choice(among)) if among else "x0"

    def _number(self) -> str:
        """A literal, or the name of a scalar that was computed."""
        scalars = [
            name for name, value in self._names.items() if np.ndim(value) == 0 and name != "np"
        ]
        if scalars and self._rng.random() < 0.4:
            return str(self._rng.choice(scalars))
        return str(self._rng.choice(["2", "-3", "1.0", "0.5", "-0.125", "1.7", "0.3"]))

    # --- statements ---

    def _elementwise(self) -> str:
        a, b = self._one(), self._one()
        if self._rng.random() < 0.3:
            b = self._number()
        kind = self._rng.random()
        if kind < 0.4:
            return f"{self._new()} = np.{self._rng.choice(_UNARY)}({a})"
        if kind < 0.9:
            order = (a, b) if self._rng.random() < 0.7 else (b, a)
            return f"{self._new()} = np.{self._rng.choice(_BINARY)}({', '.join(order)})"
        return f"{self._new()} = np.where({self._one()} > {self._number()}, {a}, {self._one()})"

    def _combination(self) -> str:
        """A linear combination of up to a dozen vectors, with links of all kinds."""
        dtype = str(self._rng.choice(["float64", "float64", "float32"]))
        text = self._term(dtype)
        for _ in range(int(self._rng.integers(1, 12))):
            link = self._rng.choice(["+", "-", "after", "scale", "divide", "shift", "negate"])
            if link in ("+", "-"):
                text = f"{text} {link} {self._term(dtype)}"
            elif link == "after":
                text = f"{self._term(dtype)} - ({text})"
            elif link == "negate":
                text = f"-({text})"
            else:
                sign = {"scale": "*", "divide": "/", "shift": "+"}[str(link)]
                text = f"({text}) {sign} {self._number()}"
        return f"{self._new()} = {text}"

    def _term(self, dtype: str) -> str:
        vector = self._one([dtype])
        kind = self._rng.random()
        if kind < 0.3:
            return vector
        if kind < 0.4:
            return f"(-{vector})"
        factors = [self._number(), vector] if self._rng.random() < 0.6 else [vector, self._number()]
        return " * ".join(factors)

    def _reduction(self) -> str:
        return f"{self._new()} = np.{self._rng.choice(_REDUCTIONS)}({self._one()})"

    def _dot(self) -> str:
        """Inner products, one or many, in the ways that they are typed."""
        lines = []
        for k in range(int(self._rng.choice([1, 1, 2, 7]))):
            dtype = str(self._rng.choice(["float64", "float64", "float32", "int64", "int32"]))
            a = self._one([dtype])
            b = a if self._rng.random() < 0.3 else self._one([dtype])
            text = str(
                self._rng.choice([
                    f"{a} @ {b}", f"{a} @ {b}", f"np.sum({a} * {b})", f"np.sum(np.square({a}))",
                    f"np.dot({a}, {b})", f"np.sum({a} * {b} + {a})",
                    f"np.sum({a}.astype('float64') * {b}.astype('float64'))",
                ])
            )  # fmt: skip
            lines.append(f"{self._new()}_{k} = {text}")
        return "\n".join(lines)

    def _arithmetic(self) -> str:
        sign = self._rng.choice(["+", "-", "*", "/"])
        return f"{self._new()} = {self._one(ndim=0)} {sign} {self._number()}"

    def _in_place(self) -> str:
        sign = self._rng.choice(["+", "-", "*", "/"])
        other = self._one() if self._rng.random() < 0.6 else self._number()
        return f"{self._one()} {sign}= {other}"

    def _cast(self) -> str:
        return f"{self._new()} = {self._one()}.astype('{self._rng.choice(DTYPES)}')"

    def _evaluation(self) -> str:
        names = dict.fromkeys(self._one(ndim=int(self._rng.integers(2))) for _ in range(2))
        return f"dv.evaluate({', '.join(names)})"

    def _dropped(self) -> str:
        name = self._one()
        return f"del {name}" if name not in self.inputs else ""

    def _direction(self) -> str:
        """The two-loop recursion of L-BFGS over some vectors."""
        dtype = str(self._rng.choice(["float64", "float64", "float32"]))
        pairs = [(self._one([dtype]), self._one([dtype])) for _ in range(3)]
        new = self._new()
        lines = [f"{new} = {self._one([dtype])}"]
        for k, (s, y) in enumerate(pairs):
            lines.append(f"_a{k} = ({s} @ {new}) / ({s} @ {y} + 3.0)")
            lines.append(f"{new} = {new} - _a{k} * {y}")
        for k, (s, y) in reversed(list(enumerate(pairs))):
            lines.append(f"{new} = {new} + (_a{k} - ({y} @ {new}) / ({s} @ {y} + 3.0)) * {s}")
        return "\n".join(lines)
