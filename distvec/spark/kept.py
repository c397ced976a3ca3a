"""What a Python worker of Spark keeps from task to task.

Spark runs later tasks in the same process, and gives a task nothing else that outlives it: hence
one global, here, and none elsewhere. By process, as Spark forks its workers.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

T = TypeVar("T")

_KEPT: dict[tuple[int, type], Any] = {}


def kept(kind: type[T]) -> T:
    """This process's object of that class, made without arguments at the first call."""
    key = os.getpid(), kind
    if key not in _KEPT:
        _KEPT[key] = kind()
    found: T = _KEPT[key]
    return found
