"""Whether a tree is one of the language, and what its locals are: INT, FLOAT or BOOL.

Asked by the client before it sends one, and by the server of all that comes. Its work is bounded:
bytes first, then nodes and depth as it goes.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

from ps_backend import limits
from ps_backend.errors import InvalidProgram
from ps_backend.program.kernel_language.table import BOOL, CONSTANTS, FLOAT, INT, NUMERIC, OPS
from ps_backend.program.signatures import NUMBER, ROWS, Signature
from ps_backend.program.types import dtype_of

VERSION = 1
DTYPES = (
    "float64", "float32", "int64", "int32", "int16", "int8", "uint32", "uint16", "uint8", "bool",
)  # fmt: skip
"""What arrays of kernels may be of: all that int64 or float64 can hold."""
_RANKS = {BOOL: 0, INT: 1, FLOAT: 2}


@dataclass(frozen=True, slots=True)
class Value:
    """An argument, or what is returned: a number, or an array."""

    dtype: str
    rank: int
    """0 of numbers."""
    written: bool = False

    @property
    def kind(self) -> str:
        """What its elements are in a kernel."""
        return {"f": FLOAT, "b": BOOL}.get(dtype_of(self.dtype).kind, INT)


def values_of(signature: Signature) -> tuple[Value, ...]:
    """What the numbers of arguments in a tree stand for."""
    found = [
        Value(
            one.type.dtype,
            0 if one.kind == NUMBER else 1 + (one.type.row is not None),
            one.kind == ROWS and one.name in signature.updates,
        )
        for one in signature.arguments
    ]
    found += [Value(t.dtype, 1 + (t.row is not None), True) for _, t in signature.returns]
    for one in found:
        if one.dtype not in DTYPES:
            raise InvalidProgram(f"kernels take {', '.join(DTYPES)}, and no {one.dtype}")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Checked:
    """A tree that may be run."""

    body: list[Any]
    values: tuple[Value, ...]
    locals: tuple[str, ...]
    """INT, FLOAT or BOOL of each."""


def encoded(body: list[Any]) -> bytes:
    """A tree as it travels."""
    return json.dumps({"version": VERSION, "body": body}, separators=(",", ":")).encode()


def checked(tree: bytes, signature: Signature) -> Checked:
    """The tree, if it is one. ``InvalidProgram`` says what is wrong with it."""
    if len(tree) > limits.MOST_TREE_BYTES:
        raise InvalidProgram(
            f"a kernel has at most {limits.MOST_TREE_BYTES} bytes, and not {len(tree)}"
        )
    try:
        found = json.loads(tree, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidProgram(f"a kernel is no JSON: {str(error)[:100]}") from None
    if not isinstance(found, dict) or found.keys() != {"version", "body"}:
        raise InvalidProgram("a kernel is a tree with a version and a body")
    if found["version"] != VERSION or type(found["version"]) is not int:
        raise InvalidProgram(f"this server knows kernels of version {VERSION} alone")
    values = values_of(signature)
    check = _Check(values)
    check.block(found["body"], 0, 0)
    return Checked(found["body"], values, check.locals_of(found["body"]))


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _number(value: Any, least: int, most: int, what: str) -> int:
    if type(value) is not int or not least <= value <= most:
        raise InvalidProgram(f"{what} is a number from {least} to {most}, not {str(value)[:40]}")
    return value


class _Check:
    def __init__(self, values: tuple[Value, ...]) -> None:
        self.values = values
        self.nodes = 0
        self.count = 0
        """Of locals."""

    # --- structure --------------------------------------------------------------------------------

    def _node(self, node: Any, depth: int) -> list[Any]:
        self.nodes += 1
        if self.nodes > limits.MOST_TREE_NODES:
            raise InvalidProgram(
                f"a kernel has at most {limits.MOST_TREE_NODES} operations: make it several"
            )
        if depth > limits.MOST_TREE_DEPTH:
            raise InvalidProgram(f"a kernel is nested at most {limits.MOST_TREE_DEPTH} deep")
        if not isinstance(node, list) or not node or not isinstance(node[0], str):
            raise InvalidProgram(f"no node of a kernel: {str(node)[:60]}")
        return node

    def block(self, body: Any, depth: int, loops: int) -> None:
        """Check statements in so many loops."""
        if not isinstance(body, list):
            raise InvalidProgram("a block of a kernel is a list of statements")
        for one in body:
            self._statement(self._node(one, depth), depth + 1, loops)

    def _statement(self, node: list[Any], depth: int, loops: int) -> None:
        match node:
            case ["set", k, x]:
                self._local(k)
                self.expression(x, depth)
            case ["put", a, places, x]:
                if not self._element(a, places, depth).written:
                    raise InvalidProgram(f"argument {a} of a kernel is only read")
                self.expression(x, depth)
            case ["for", k, start, stop, step, body]:
                self._local(k)
                for x in (start, stop, step):
                    self.expression(x, depth)
                self._loop(body, depth, loops)
            case ["while", x, body]:
                self.expression(x, depth)
                self._loop(body, depth, loops)
            case ["if", x, body, other]:
                self.expression(x, depth)
                self.block(body, depth, loops)
                self.block(other, depth, loops)
            case ["break" | "continue"] if loops:
                pass
            case _:
                raise InvalidProgram(f"no statement of a kernel: {str(node)[:60]}")

    def _loop(self, body: Any, depth: int, loops: int) -> None:
        if loops >= limits.MOST_TREE_LOOPS:
            raise InvalidProgram(f"loops of a kernel are nested {limits.MOST_TREE_LOOPS} deep")
        self.block(body, depth, loops + 1)

    def expression(self, node: Any, depth: int) -> None:
        """Check an expression, but for the types of its values."""
        self._node(node, depth)
        match node:
            case ["int", value]:
                _number(value, -(2**63), 2**63 - 1, "an integer")
            case ["float", value]:
                if type(value) is not float or not math.isfinite(value):
                    raise InvalidProgram(f"no finite float: {str(value)[:40]}")
            case ["bool", value]:
                if type(value) is not bool:
                    raise InvalidProgram("a bool is true or false")
            case ["const", name]:
                if name not in CONSTANTS:
                    raise InvalidProgram(f"constants are {', '.join(CONSTANTS)}")
            case ["local", k]:
                self._local(k)
            case ["number", a]:
                if self._value(a).rank:
                    raise InvalidProgram(f"argument {a} of a kernel is an array")
            case ["get", a, places]:
                self._element(a, places, depth)
            case ["extent", a, axis]:
                rank = self._value(a).rank
                if not rank:
                    raise InvalidProgram(f"argument {a} of a kernel is a number")
                _number(axis, 0, rank - 1, "an axis")
            case ["select", condition, x, y]:
                for one in (condition, x, y):
                    self.expression(one, depth + 1)
            case [op, *operands] if op in OPS and len(operands) == OPS[op].arity:
                for one in operands:
                    self.expression(one, depth + 1)
            case _:
                raise InvalidProgram(f"no expression of a kernel: {str(node)[:60]}")

    def _value(self, a: Any) -> Value:
        return self.values[_number(a, 0, len(self.values) - 1, "an argument of a kernel")]

    def _element(self, a: Any, places: Any, depth: int) -> Value:
        value = self._value(a)
        if not value.rank or not isinstance(places, list) or len(places) != value.rank:
            raise InvalidProgram(f"an element of argument {a} has {value.rank} indices")
        for one in places:
            self.expression(one, depth + 1)
        return value

    def _local(self, k: Any) -> None:
        _number(k, 0, limits.MOST_TREE_LOCALS - 1, "a local")
        self.count = max(self.count, k + 1)

    # --- types ------------------------------------------------------------------------------------

    def locals_of(self, body: list[Any]) -> tuple[str, ...]:
        """The type of each local: the widest of what it becomes. ``InvalidProgram`` for misuse."""
        found = [BOOL] * self.count
        while True:
            before = list(found)
            self._widen(body, found)
            if found == before:
                break
        types = tuple(found)
        self._verify(body, types)
        return types

    def _widen(self, body: list[Any], found: list[str]) -> None:
        for node in body:
            match node:
                case ["set", k, x]:
                    found[k] = wider(found[k], type_of(x, self.values, found))
                case ["for", k, *_, inner]:
                    found[k] = wider(found[k], INT)
                    self._widen(inner, found)
                case ["while", _, inner]:
                    self._widen(inner, found)
                case ["if", _, inner, other]:
                    self._widen(inner, found)
                    self._widen(other, found)

    def _verify(self, body: list[Any], types: tuple[str, ...]) -> None:
        for node in body:
            match node:
                case ["set", _, x]:
                    self._operands(x, types)
                case ["put", a, places, x]:
                    for one in places:
                        self._integer(one, types)
                    self._operands(x, types)
                    given, kind = type_of(x, self.values, types), self.values[a].kind
                    if _RANKS[given] > _RANKS[kind]:
                        raise InvalidProgram(
                            f"a {given} does not go into {self.values[a].dtype}; write int(x), or "
                            f"a comparison for a bool"
                        )
                case ["for", _, start, stop, step, inner]:
                    for one in (start, stop, step):
                        self._integer(one, types)
                    self._verify(inner, types)
                case ["while", x, inner]:
                    self._operands(x, types)
                    self._verify(inner, types)
                case ["if", x, inner, other]:
                    self._operands(x, types)
                    self._verify(inner, types)
                    self._verify(other, types)

    def _operands(self, x: list[Any], types: tuple[str, ...]) -> None:
        """Indices are integers, and bits are of integers, in all of an expression."""
        if x[0] == "get":
            for one in x[2]:
                self._integer(one, types)
        elif x[0] == "select" or x[0] in OPS:
            takes = OPS[x[0]].takes if x[0] in OPS else ""
            for one in x[1:]:
                (self._integer if takes == INT else self._operands)(one, types)

    def _integer(self, x: list[Any], types: tuple[str, ...]) -> None:
        self._operands(x, types)
        if type_of(x, self.values, types) == FLOAT:
            raise InvalidProgram("an index, the bounds of a range and bits are of integers: int(x)")


def wider(one: str, other: str) -> str:
    """What holds both."""
    return max(one, other, key=_RANKS.__getitem__)


def type_of(x: list[Any], values: tuple[Value, ...], locals: list[str] | tuple[str, ...]) -> str:
    """INT, FLOAT or BOOL of a checked expression."""
    match x:
        case ["int" | "float" | "bool" as kind, _]:
            return str(kind)
        case ["const", _]:
            return FLOAT
        case ["local", k]:
            return str(locals[k])
        case ["number", a] | ["get", a, _]:
            return str(values[a].kind)
        case ["extent", *_]:
            return INT
        case ["select", _, one, other]:
            return wider(type_of(one, values, locals), type_of(other, values, locals))
    op = OPS[x[0]]
    if op.gives != NUMERIC:
        return op.gives
    kinds = [type_of(one, values, locals) for one in x[1:]]
    return FLOAT if FLOAT in kinds else INT
