"""What ``ps.round(...)`` and ``ps.share(...)`` return: something to open by ``with``."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


class Block(AbstractContextManager[T]):
    """A context manager that tells who uses it without ``with`` what to type."""

    def __init__(self, manager: AbstractContextManager[T], example: str) -> None:
        self._manager, self._example = manager, example

    def __enter__(self) -> T:
        return self._manager.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._manager.__exit__(kind, error, trace)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"there is no {name!r} before the block begins: {self._example}")

    def __reduce__(self) -> Any:
        raise TypeError(f"tasks take what the block gives: {self._example}")
