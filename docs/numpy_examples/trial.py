"""One example, run on arrays of the servers and on NumPy's: what came out, and what it cost."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

import numpy as np

import distvec as dv
from docs.numpy_examples.operands import Put, on_client, on_servers, small_arrays

MOST_BYTES = 1500
"""So many bytes of replies bring no vector: the shortest operand has 2000."""
RELATIVE, ABSOLUTE = 1e-9, 1e-9
"""Sums are added in another order than NumPy's."""
REFUSALS = (TypeError, NotImplementedError, AttributeError, ValueError, RuntimeError)


@dataclass(frozen=True)
class Trial:
    """What became of an example."""

    text: str
    refusal: str = ""
    """What the error said, on one line; empty if there was a result."""
    by_numpy: bool = False
    """Whether NumPy refuses it as well."""
    wrong: str = ""
    """How the result differs from NumPy's."""
    messages: int = 0
    """To each server, the evaluation of the result among them; not what reads it."""
    peer_bytes: int = 0
    """What servers sent each other."""
    is_lazy: bool = False
    """Whether the call itself sent nothing."""
    pulls: bool = False
    """Whether it brought the elements of a vector to the client."""
    counted: bool = False
    """Whether the session counted an implicit transfer, be it of few elements."""

    @property
    def works(self) -> bool:
        """Whether it gives NumPy's result, without what was not asked for."""
        return not (self.refusal or self.wrong or self.pulls)

    @property
    def cost(self) -> str:
        """What a call costs, for people."""
        if not self.messages:
            return "no request"
        when = "lazy" if self.is_lazy else "eager"
        cost = f"{when}, {self.messages} request{'s' if self.messages > 1 else ''}"
        if not self.peer_bytes:
            return cost
        return f"{cost}, {'elements' if self.peer_bytes > MOST_BYTES else 'borders'} exchanged"


def run(text: str, session: dv.Session, small: dict[str, np.ndarray], *put: Put) -> Trial:
    """``text`` on the servers of ``session``, compared with NumPy.

    The arrays are new, so that nothing is known of them; ``small`` are the client's. ``put`` says
    how others come to be, if not by ``session.array``.
    """
    code = _compiled(text)
    operands = on_servers(session, [name for part in code for name in part.co_names], *put)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = _of_numpy(code, on_client(small))
        session.counters.reset()
        before = session.implicit_transfers
        try:
            found = _result(code, operands)
            at_once = session.counters.snapshot()["messages"]
            dv.evaluate(*_arrays(found))
        except REFUSALS as error:
            return Trial(text, _one_line(error), isinstance(expected, _Refused))
        counts = session.counters.snapshot()
        counted = session.implicit_transfers > before
        return Trial(
            text,
            wrong=difference(found, expected),
            messages=counts["messages"],
            peer_bytes=counts["peer_bytes"],
            is_lazy=not at_once,
            pulls=counts["bytes_received"] > MOST_BYTES,
            counted=counted,
        )


@cache
def _compiled(text: str) -> tuple[CodeType, CodeType]:
    """The statements before the last one, and the last one, which is an expression."""
    *statements, last = ast.parse(text).body
    if not isinstance(last, ast.Expr):
        raise ValueError(f"an example ends with an expression, not so {text!r}")
    first = ast.Module(statements, [])
    return compile(first, text, "exec"), compile(ast.Expression(last.value), text, "eval")


def _result(code: tuple[CodeType, CodeType], names: dict[str, Any]) -> Any:
    exec(code[0], names)
    return eval(code[1], names)


class _Refused:
    """What NumPy has for an example that it refuses as well."""

    def __repr__(self) -> str:
        return "NumPy's refusal"


def _of_numpy(code: tuple[CodeType, CodeType], operands: dict[str, Any]) -> Any:
    try:
        return _result(code, operands)
    except REFUSALS:
        return _Refused()


def _one_line(error: BaseException) -> str:
    return re.sub(r"\s+", " ", str(error)).strip()


def _arrays(found: Any) -> list[Any]:
    """The arrays of the servers in a result."""
    if isinstance(found, tuple | list):
        return [array for part in found for array in _arrays(part)]
    return [found] if _is_ours(found) else []


def _is_ours(found: Any) -> bool:
    return hasattr(found, "numpy") and hasattr(found, "session")


def difference(found: Any, expected: Any) -> str:
    """How a result differs from NumPy's; empty where it does not."""
    if isinstance(expected, tuple | list):
        if not isinstance(found, tuple | list) or len(found) != len(expected):
            return f"a {type(found).__name__} instead of {len(expected)} results"
        parts = (difference(a, b) for a, b in zip(found, expected, strict=True))
        return next((part for part in parts if part), "")
    if _is_ours(found):
        return _of_values(found.numpy(), np.asarray(expected))
    if isinstance(expected, np.ndarray | np.generic | float | int) and np.ndim(found) < 3:
        return _of_values(np.asarray(found), np.asarray(expected))
    return "" if found == expected else f"{found!r} instead of {expected!r}"


def _of_values(found: np.ndarray, expected: np.ndarray) -> str:
    if found.shape != expected.shape:
        return f"shape {found.shape} instead of {expected.shape}"
    if found.dtype != expected.dtype:
        return f"dtype {found.dtype} instead of {expected.dtype}"
    exact = found.dtype.kind not in "f"
    close = np.array_equal(found, expected) if exact else _is_close(found, expected)
    return "" if close else "other values"


def _is_close(found: np.ndarray, expected: np.ndarray) -> bool:
    relative = max(RELATIVE, 16 * float(np.finfo(found.dtype).eps))
    return np.allclose(found, expected, rtol=relative, atol=ABSOLUTE, equal_nan=True)


def run_all(examples: Iterable[str], *put: Put) -> dict[str, Trial]:
    """Every example on two servers in this process, by its text; ``put`` as for ``run``."""
    with dv.local(servers=2, in_process=True) as session:
        small = small_arrays(session)
        return {text: run(text, session, small, *put) for text in sorted(set(examples))}
