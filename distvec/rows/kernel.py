"""``@dv.kernel``: a function in a small part of Python that servers compile.

Its source is read here, once, and becomes a tree (``ps_backend.program.kernel_language``): that is
what travels, and neither source, bytecode nor pickle.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any, cast, overload

from distvec.rows.kernel_syntax import KernelSyntax, Lowering
from distvec.rows.kinds import Kind, Number, PerKey, RowsOf
from ps_backend.program.kernel_language.check import checked, encoded
from ps_backend.program.signatures import EACH, KEYS, NUMBER, ROWS, Argument, RowType, Signature

Returns = Mapping[str, str]


class KernelFunction:
    """A function of rows, element by element. ``f.__wrapped__(w, ...)`` runs it here, on arrays."""

    __wrapped__: Callable[..., Any]

    def __init__(self, function: Callable[..., Any], returns: Returns) -> None:
        update_wrapper(cast(Any, self), function)
        self.returns = dict(returns)
        self._function = function
        self._syntax = _syntax(function)
        self._lowered: dict[Any, tuple[Signature, bytes]] = {}
        names = [one.arg for one in self._syntax.args.args]
        if missing := [name for name in self.returns if name not in names]:
            raise TypeError(
                f"{function.__name__} returns {missing[0]!r}; give it an argument of that name, an "
                f"array of zeros that it fills"
            )
        self.parameters = [name for name in names if name not in self.returns]

    def __repr__(self) -> str:
        return f"<kernel {self._function.__name__}({', '.join(self.parameters)})>"

    def __reduce__(self) -> Any:
        return KernelFunction, (self._function, self.returns)

    def bound(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, but for ``keys`` and what it returns. ``TypeError`` as Python's."""
        usual = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [name for name in self.parameters if name != KEYS]
        signature = inspect.Signature([inspect.Parameter(name, usual) for name in names])
        return dict(signature.bind(*args, **named).arguments)

    def lowered(self, kinds: Mapping[str, Kind]) -> tuple[Signature, bytes]:
        """Signature and tree for arguments of these kinds; made once."""
        key = tuple((name, _shown(kind)) for name, kind in kinds.items())
        if key not in self._lowered:
            self._lowered[key] = self._lower(kinds)
        return self._lowered[key]

    def _lower(self, kinds: Mapping[str, Kind]) -> tuple[Signature, bytes]:
        arguments = [
            Argument(KEYS, KEYS, RowType("int64"))
            if name == KEYS
            else _argument(name, kinds[name], place)
            for place, name in enumerate(self.parameters)
        ]
        returns = [
            (name, type) for name, type in Signature.parsed(_as_text(self.returns)).returns
        ] if self.returns else []  # fmt: skip
        places = {name: k for k, name in enumerate([*self.parameters, *(n for n, _ in returns)])}
        ranks = {one.name: 0 if one.kind == NUMBER else 1 + (one.type.row is not None)
                 for one in arguments}  # fmt: skip
        ranks |= {name: 1 + (type.row is not None) for name, type in returns}
        lowering = Lowering(self._function.__name__, places, ranks)
        body = lowering.block(self._syntax.body)
        updates = [one.name for one in arguments if one.kind == ROWS and one.name in lowering.put]
        signature = Signature(tuple(arguments), tuple(updates), tuple(returns))
        try:
            signature.verify()
            tree = encoded(body)
            checked(tree, signature)
        except (ValueError, RecursionError) as error:
            raise KernelSyntax(f"{self._function.__name__}: {error}") from None
        return signature, tree


def _as_text(returns: Returns) -> str:
    return "keys -> " + ", ".join(f"{name}: {type}" for name, type in returns.items())


def _shown(kind: Kind) -> tuple[Any, ...]:
    """What of a kind makes another tree, or signature."""
    if isinstance(kind, RowsOf | PerKey):
        return type(kind).__name__, kind.dtype, len(kind.row)
    if isinstance(kind, Number):
        return "number", kind.dtype, kind.shape
    return (str(kind),)


def _argument(name: str, kind: Kind, place: int) -> Argument:
    """A kernel is compiled for ranks: a letter of its own stands for each length of rows."""
    if isinstance(kind, RowsOf | PerKey):
        row = chr(ord("a") + place % 26) if kind.row else None
        return Argument(name, ROWS if isinstance(kind, RowsOf) else EACH, RowType(kind.dtype, row))
    if isinstance(kind, Number) and not kind.shape:
        dtype = {"b": "bool", "f": "float64"}.get(kind.dtype[0], "int64")
        return Argument(name, NUMBER, RowType(dtype))
    raise TypeError(f"{name} is {kind}; a kernel takes rows of arrays, rows per key, and numbers")


def _syntax(function: Callable[..., Any]) -> ast.FunctionDef:
    name = getattr(function, "__name__", repr(function))
    try:
        found = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        raise KernelSyntax(f"{name}: its source is not to be had; put it into a file") from None
    if not isinstance(found, ast.FunctionDef):
        raise KernelSyntax(f"{name} is no function made by def")
    taken = found.args
    if taken.vararg or taken.kwarg or taken.kwonlyargs or taken.posonlyargs or taken.defaults:
        raise KernelSyntax(f"{name}: a kernel has plain arguments: def {name}(w, gradient, step)")
    return found


@overload
def kernel(function: Callable[..., Any], /) -> KernelFunction: ...
@overload
def kernel(*, returns: Returns) -> Callable[[Callable[..., Any]], KernelFunction]: ...
def kernel(function: Callable[..., Any] | None = None, /, *, returns: Returns | None = None) -> Any:
    """Make a function one that servers compile, and run on the rows of chosen keys.

        @dv.kernel(returns={"norm": "float64"})
        def clip(w, most, norm):
            for i in range(len(w)):
                total = 0.0
                for j in range(w.shape[1]):
                    total += w[i, j] * w[i, j]
                norm[i] = math.sqrt(total)
                if norm[i] > most:
                    for j in range(w.shape[1]):
                        w[i, j] *= most / norm[i]

        norms = space.apply(clip, keys, t, 1.0)

    Arguments are arrays with the rows of the keys, as of ``KeyedSpace.apply``, and numbers; one
    called ``keys`` gets these. Rows of arrays that it assigns to are written back. ``returns``:
    arguments that come as zeros, a row for each key, and go back to the caller, by their types:
    "float64", or "float64[3]". It is written with numbers, ``for ... in range``, ``while``,
    ``if``, comparisons, arithmetic, ``math``, ``min``, ``max``, ``abs``, ``int``, ``float``,
    ``len`` and ``shape``, and nothing else; ``KernelSyntax`` says which line is not. Integers wrap
    around, and divisions by zero give what NumPy's do. Servers compile it only if whoever operates
    them has switched that on: ``distvec serve --kernels``.
    """
    if function is not None:
        return KernelFunction(function, {})
    return lambda function: KernelFunction(function, returns or {})
