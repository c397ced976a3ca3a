"""The text of the function that is compiled for a checked tree: all of it is ours.

Of the tree there are only integers and finite floats in it, written by ``repr``; all names are made
here. Each round of a loop counts down, and looks at the clock from time to time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ps_backend.program.kernel_language.check import Checked, type_of, wider
from ps_backend.program.kernel_language.table import BOOL, FLOAT, INT, NUMERIC, OPS

DONE, LATE, NO_STEP = 0, 1, 2
"""What a kernel returns."""
_ROUNDS = 1 << 12
"""Of loops, between two looks at the clock."""
_ZERO = {INT: "int64(0)", FLOAT: "0.0", BOOL: "False"}


def source(tree: Checked) -> str:
    """A function ``kernel(a0, a1, ..., clock)`` that works on the arguments, and returns a code."""
    return "\n".join(_Writer(tree).function()) + "\n"


class _Writer:
    def __init__(self, tree: Checked) -> None:
        self.tree = tree
        self.loops = 0

    def function(self) -> Iterator[str]:
        names = [f"a{k}" for k in range(len(self.tree.values))]
        yield f"def kernel({', '.join([*names, 'clock'])}):"
        yield f"    left = {_ROUNDS}"
        for k, kind in enumerate(self.tree.locals):
            yield f"    v{k} = {_ZERO[kind]}"
        yield from self.block(self.tree.body, 1)
        yield f"    return {DONE}"

    def block(self, body: list[Any], depth: int) -> Iterator[str]:
        pad = "    " * depth
        if not body:
            yield f"{pad}pass"
        for node in body:
            match node:
                case ["set", k, x]:
                    yield f"{pad}v{k} = {self.as_kind(x, self.tree.locals[k])}"
                case ["put", a, places, x]:
                    given = self.as_kind(x, self.tree.values[a].kind)
                    yield f"{pad}{self.element(a, places)} = {given}"
                case ["for", *rest]:
                    yield from self.counted(rest, depth)
                case ["while", x, inner]:
                    yield f"{pad}while True:"
                    yield from self.round(depth + 1)
                    yield f"{pad}    if not {self.as_kind(x, BOOL)}:"
                    yield f"{pad}        break"
                    yield from self.block(inner, depth + 1)
                case ["if", x, inner, other]:
                    yield f"{pad}if {self.as_kind(x, BOOL)}:"
                    yield from self.block(inner, depth + 1)
                    if other:
                        yield f"{pad}else:"
                        yield from self.block(other, depth + 1)
                case [word]:
                    yield f"{pad}{'break' if word == 'break' else 'continue'}"

    def counted(self, loop: list[Any], depth: int) -> Iterator[str]:
        k, start, stop, step, inner = loop
        pad, n = "    " * depth, self.loops
        self.loops += 1
        yield f"{pad}i{n} = {self.as_kind(start, INT)}"
        yield f"{pad}s{n} = {self.as_kind(step, INT)}"
        yield f"{pad}if s{n} == 0:"
        yield f"{pad}    return {NO_STEP}"
        yield f"{pad}n{n} = rounds(i{n}, {self.as_kind(stop, INT)}, s{n})"
        yield f"{pad}while n{n} > 0:"
        yield f"{pad}    n{n} -= 1"
        yield f"{pad}    v{k} = {'float64' if self.tree.locals[k] == FLOAT else 'int64'}(i{n})"
        yield f"{pad}    i{n} += s{n}"
        yield from self.round(depth + 1)
        yield from self.block(inner, depth + 1)

    def round(self, depth: int) -> Iterator[str]:
        pad = "    " * depth
        yield f"{pad}left -= 1"
        yield f"{pad}if left <= 0:"
        yield f"{pad}    left = {_ROUNDS}"
        yield f"{pad}    if is_late(clock):"
        yield f"{pad}        return {LATE}"

    def element(self, a: int, places: list[Any]) -> str:
        return f"a{a}[{', '.join(self.as_kind(one, INT) for one in places)}]"

    def kind(self, x: list[Any]) -> str:
        return type_of(x, self.tree.values, self.tree.locals)

    def as_kind(self, x: list[Any], wanted: str) -> str:
        """The expression, converted. A float becomes no integer but by an op that says so."""
        text, kind = self.expression(x), self.kind(x)
        if kind == wanted:
            return text
        if wanted == BOOL:
            return f"({text} != 0)"
        if kind == BOOL:
            text = f"(int64(1) if {text} else int64(0))"
        return f"float64({text})" if wanted == FLOAT else text

    def expression(self, x: list[Any]) -> str:
        match x:
            case ["int", value]:
                return f"int64({int(value)!r})"
            case ["float", value]:
                return f"({float(value)!r})"
            case ["bool", value]:
                return "True" if value else "False"
            case ["const", name]:
                return "math.inf" if name == "inf" else "math.nan"
            case ["local", k]:
                return f"v{k}"
            case ["number", a]:
                return f"a{a}"
            case ["get", a, places]:
                convert = {INT: "int64", FLOAT: "float64", BOOL: "bool"}[self.tree.values[a].kind]
                return f"{convert}({self.element(a, places)})"
            case ["extent", a, axis]:
                return f"int64(a{a}.shape[{axis}])"
            case ["select", condition, one, other]:
                kind = self.kind(x)
                yes, no = self.as_kind(one, kind), self.as_kind(other, kind)
                return f"({yes} if {self.as_kind(condition, BOOL)} else {no})"
        op = OPS[x[0]]
        takes = op.takes
        if takes == NUMERIC:
            takes = INT
            for one in x[1:]:
                takes = wider(takes, self.kind(one))
        code = op.of_floats if takes == FLOAT and op.of_floats else op.code
        return code.format(*(self.as_kind(one, takes) for one in x[1:]))
