"""What checkpoints are for who asks for them: one that was made, and what one gave back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that is there, and was read back."""

    path: str
    number: int
    arrays: int
    """How many it holds."""
    nbytes: int
    """What was written for it; arrays that the one before has are not written again."""
    seconds: float
    """From the moment that it shows until it was there."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a checkpoint gave back."""

    path: str
    number: int
    arrays: dict[str, Any]
    """Plain ones, and keyed ones."""
    document: Any

    def __getitem__(self, name: str) -> Any:
        if name not in self.arrays:
            known = ", ".join(sorted(self.arrays)) or "none"
            raise KeyError(f"{self.path} has no array called {name!r}; it has {known}")
        return self.arrays[name]


Start = Callable[[Callable[[], Checkpoint]], "Future[Checkpoint]"]
"""Runs what writes a checkpoint, beside the work."""


def in_thread(write: Callable[[], Checkpoint]) -> Future[Checkpoint]:
    """Run ``write`` in a thread of its own, which does not keep the process alive."""
    future: Future[Checkpoint] = Future()

    def run(future: Future[Checkpoint]) -> None:
        try:
            future.set_result(write())
        except BaseException as error:  # noqa: BLE001 - handed over to who waits
            future.set_exception(error)
        finally:  # the error's traceback has this frame: a future in it would keep the error
            del future

    name = "distvec-checkpoint"
    threading.Thread(target=run, args=(future,), name=name, daemon=True).start()
    return future
