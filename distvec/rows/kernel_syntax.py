"""From Python's syntax to the tree of a kernel; what the language does not have is refused."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ps_backend.program.kernel_language.table import CONSTANTS, OF_MATH, OPS

_BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.BitAnd: "bitand", ast.BitOr: "bitor", ast.BitXor: "bitxor",
}  # fmt: skip
_COMPARED = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip
_MATH = "math"


class KernelSyntax(TypeError):
    """A function says what kernels cannot; the text names the line."""


class Lowering:
    """One function, whose arguments have these places in the tree, and ranks; 0 of numbers."""

    def __init__(self, name: str, places: Mapping[str, int], ranks: Mapping[str, int]) -> None:
        self.put: set[str] = set()
        """The arrays that are assigned to."""
        self._name, self._places, self._ranks = name, places, ranks
        self._locals: dict[str, int] = {}

    def block(self, body: Sequence[ast.stmt]) -> list[Any]:
        """Statements of the tree. ``KernelSyntax``."""
        found: list[Any] = []
        for node in body:
            found += self._statement(node)
        return found

    def _statement(self, node: ast.stmt) -> list[Any]:
        match node:
            case ast.Expr(ast.Constant(str())) | ast.Pass():
                return []
            case ast.Assign([target], value):
                return [self._assign(target, self._expression(value))]
            case ast.AnnAssign(target, _, value) if value is not None:
                return [self._assign(target, self._expression(value))]
            case ast.AugAssign(target, op, value):
                return [self._assign(target, self._binary(op, target, value, node))]
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), args, []), body, []):
                if not 1 <= len(args) <= 3:
                    self._refuse(node, "range has one to three arguments")
                bounds = [self._expression(one) for one in args]
                bounds = [["int", 0], *bounds] if len(bounds) == 1 else bounds
                bounds = [*bounds, ["int", 1]] if len(bounds) == 2 else bounds
                return [["for", self._local(name, node), *bounds, self.block(body)]]
            case ast.For():
                self._refuse(node, "a loop is 'for i in range(...)', without else")
            case ast.While(test, body, []):
                return [["while", self._expression(test), self.block(body)]]
            case ast.If(test, body, other):
                return [["if", self._expression(test), self.block(body), self.block(other)]]
            case ast.Break():
                return [["break"]]
            case ast.Continue():
                return [["continue"]]
            case ast.Return():
                self._refuse(node, "a kernel returns nothing; fill an array that returns= names")
        self._refuse(node, f"{type(node).__name__} is no statement of kernels")

    def _assign(self, target: ast.expr, value: list[Any]) -> list[Any]:
        match target:
            case ast.Name(name):
                return ["set", self._local(name, target), value]
            case ast.Subscript(ast.Name(name)) if self._ranks.get(name):
                self.put.add(name)
                return ["put", self._places[name], self._indices(target, name), value]
        self._refuse(target, "assign to a name, or to an element of an argument")

    def _local(self, name: str, node: ast.AST) -> int:
        if name in self._places:
            self._refuse(node, f"{name} is an argument; give the local another name")
        return self._locals.setdefault(name, len(self._locals))

    def _expression(self, node: ast.expr) -> list[Any]:
        match node:
            case ast.Constant(value):
                return self._constant(value, node)
            case ast.Name(name):
                return self._named(name, node)
            case ast.BinOp(left, op, right):
                return self._binary(op, left, right, node)
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
                return self._constant(-value, node)
            case ast.UnaryOp(ast.USub(), x):
                return ["neg", self._expression(x)]
            case ast.UnaryOp(ast.UAdd(), x):
                return self._expression(x)
            case ast.UnaryOp(ast.Not(), x):
                return ["not", self._expression(x)]
            case ast.BoolOp(op, values):
                word = "and" if isinstance(op, ast.And) else "or"
                return self._folded(word, [self._expression(one) for one in values])
            case ast.Compare(left, ops, others):
                return self._compared([left, *others], ops, node)
            case ast.IfExp(test, x, y):
                return ["select", *map(self._expression, (test, x, y))]
            case ast.Subscript(ast.Attribute(ast.Name(name), "shape"), ast.Constant(int() as axis)):
                if self._ranks.get(name, 0) > axis >= 0:
                    return ["extent", self._places[name], axis]
                self._refuse(node, f"{name} has no axis {axis}")
            case ast.Subscript(ast.Name(name)) if self._ranks.get(name):
                return ["get", self._places[name], self._indices(node, name)]
            case ast.Attribute(ast.Name("math"), name):
                if name in CONSTANTS:
                    return ["const", name]
                if name in ("pi", "e", "tau"):
                    return ["float", getattr(math, name)]
                self._refuse(node, f"math.{name} is no constant of kernels")
            case ast.Call(function, args, []):
                return self._call(function, args, node)
        self._refuse(node, f"{ast.unparse(node)[:60]!r} is no expression of kernels")

    def _constant(self, value: Any, node: ast.AST) -> list[Any]:
        kind = {bool: "bool", int: "int", float: "float"}.get(type(value))
        if kind is None:
            self._refuse(node, f"{value!r:.40} is no number")
        if kind == "float" and not math.isfinite(value):
            return ["const", "inf"] if value > 0 else ["neg", ["const", "inf"]]
        return [kind, value]

    def _named(self, name: str, node: ast.AST) -> list[Any]:
        if name in self._places:
            if self._ranks[name]:
                self._refuse(node, f"{name} is an array; take an element, len or shape")
            return ["number", self._places[name]]
        if name not in self._locals:
            self._refuse(
                node, f"{name} is not assigned before; what is outside comes as an argument"
            )
        return ["local", self._locals[name]]

    def _binary(
        self, op: ast.operator, left: ast.expr, right: ast.expr, node: ast.AST
    ) -> list[Any]:
        word = _BINARY.get(type(op))
        if word is None:
            self._refuse(node, f"{type(op).__name__} is no operator of kernels")
        return [word, self._expression(left), self._expression(right)]

    def _compared(
        self, values: Sequence[ast.expr], ops: Sequence[ast.cmpop], node: ast.AST
    ) -> list[Any]:
        if not all(isinstance(one, ast.Name | ast.Constant) for one in values[1:-1]):
            self._refuse(node, "of three that are compared the middle is a name; else write and")
        if not all(type(op) in _COMPARED for op in ops):
            self._refuse(node, "compare by <, <=, >, >=, == and !=")
        return self._folded("and", [
            [_COMPARED[type(op)], self._expression(one), self._expression(other)]
            for op, one, other in zip(ops, values, values[1:], strict=False)
        ])  # fmt: skip

    def _folded(self, word: str, values: Sequence[list[Any]]) -> list[Any]:
        found = values[0]
        for one in values[1:]:
            found = [word, found, one]
        return found

    def _indices(self, node: ast.Subscript, name: str) -> list[Any]:
        places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(places) != self._ranks[name]:
            self._refuse(node, f"{name} has {self._ranks[name]} indices: {name}[i, ...]")
        return [self._expression(one) for one in places]

    def _call(self, function: ast.expr, args: Sequence[ast.expr], node: ast.AST) -> list[Any]:
        match function, args:
            case ast.Name("len"), [ast.Name(name)] if self._ranks.get(name):
                return ["extent", self._places[name], 0]
            case ast.Name("min" | "max" as word), [_, _, *_]:
                return self._folded(word, [self._expression(one) for one in args])
            case ast.Name("abs"), [x]:
                return ["abs", self._expression(x)]
            case ast.Name("int"), [x]:
                return ["truncate", self._expression(x)]
            case ast.Name("float"), [x]:
                return ["convert", self._expression(x)]
            case ast.Attribute(ast.Name(module), word), _ if module == _MATH and word in OF_MATH:
                if len(args) != OPS[word].arity:
                    self._refuse(node, f"math.{word} has {OPS[word].arity} arguments")
                return [word, *map(self._expression, args)]
        self._refuse(
            node,
            f"{ast.unparse(function)[:40]!r} cannot be called in kernels, but math.sqrt and the "
            f"like, min, max, abs, int, float, len",
        )

    def _refuse(self, node: ast.AST, why: str) -> NoReturn:
        raise KernelSyntax(f"{self._name}, line {getattr(node, 'lineno', 0)}: {why}")
