"""Compiled kernels of users: one for each tree and types of arguments, the last ones kept."""

from __future__ import annotations

import importlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ps_backend import limits
from ps_backend.errors import FunctionFailed
from ps_backend.kernels.user.source import LATE, NO_STEP
from ps_backend.program.kernel_language.check import Checked, Value, checked
from ps_backend.program.signatures import Signature

_MOST_KEPT = 64

Function = Callable[..., int]


class UserKernel:
    """One kernel, compiled."""

    def __init__(self, function: Function, values: tuple[Value, ...], seconds: float) -> None:
        self._function, self._values, self._seconds = function, values, seconds

    def run(self, arguments: Sequence[Any]) -> None:
        """Work on the arguments and what is returned, in place, in the order of the tree.

        ``FunctionFailed``: an index is out of bounds, or it takes too long.
        """
        end = time.monotonic() + self._seconds
        clock = np.array([0, 0, int(end), int(end % 1 * 1e9)])
        given = [
            one if value.rank else {"f": float, "b": bool}.get(np.dtype(value.dtype).kind, int)(one)
            for one, value in zip(arguments, self._values, strict=True)
        ]
        try:
            code = self._function(*given, clock)
        except IndexError:
            raise FunctionFailed(
                "an index of the kernel is out of bounds; nothing was changed on this server"
            ) from None
        if code == LATE:
            raise FunctionFailed(
                f"the kernel took longer than {self._seconds:g} s, which servers give it for one "
                f"call, and was ended; nothing was changed on this server. Does a loop never end? "
                f"Else give it fewer keys at once"
            )
        if code == NO_STEP:
            raise FunctionFailed(
                "the step of a range is 0 in the kernel; nothing was changed on this server"
            )


class UserKernels:
    """Those of all sessions of a server. Thread-safe; one is compiled at a time."""

    def __init__(self, seconds: float = limits.MOST_KERNEL_SECONDS) -> None:
        """``seconds``: how long one call may take."""
        self._seconds = seconds
        self._kept: OrderedDict[Any, UserKernel] = OrderedDict()
        self._trees: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._compiling = threading.Lock()

    def remember(self, digest: str, tree: bytes) -> None:
        """Keep a tree, to be found by its digest."""
        with self._lock:
            _put(self._trees, digest, tree)

    def tree(self, digest: str) -> bytes | None:
        """A tree that came before."""
        return self._trees.get(digest)

    def get(self, signature: Signature, tree: bytes) -> UserKernel:
        """The kernel, compiled unless it was. ``InvalidProgram`` for what is no tree."""
        key = tree, str(signature)
        found = self._kept.get(key)
        if found is None:
            made = checked(tree, signature)
            with self._compiling:
                found = self._kept.get(key)
                if found is None:
                    found = UserKernel(_compile(made), made.values, self._seconds)
                    with self._lock:
                        _put(self._kept, key, found)
        return found


def _put(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    kept[key] = value
    while len(kept) > _MOST_KEPT:
        kept.popitem(last=False)


def _compile(tree: Checked) -> Function:
    """By numba, which takes half a second to import: only servers that compile kernels need it."""
    module = importlib.import_module("ps_backend.kernels.user.machine_code")
    made: Function = module.compiled(tree)
    return made
