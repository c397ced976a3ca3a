"""Why jobs and tasks failed, told on the driver, and exceptions of users' functions raised there."""

from __future__ import annotations

import base64
import os
import sys
import traceback
from typing import Any, NamedTuple, NoReturn

from pyspark import cloudpickle

from ps_backend.errors import ServerLost

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def user_stacklevel() -> int:
    """For ``warnings.warn`` where this is called: the first caller outside of this package."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, levels = frame.f_back, levels + 1
    return levels


_MOST_BYTES = 4_000
"""Of the exception, and of its trace, where they travel as text."""


class RemoteTrace(Exception):
    """Where an exception came from in a task: the cause of what is raised on the driver."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Failure(NamedTuple):
    """What ended the task of a partition. It travels as a value, for Spark would bury an exception
    in a Java trace."""

    partition: int
    lost: bool
    """Whether a server was lost."""
    summary: str
    trace: str
    pickled: bytes | None
    """The exception, if it can be pickled."""

    @classmethod
    def of(cls, partition: int, error: Exception) -> Failure:
        """That of an exception, with the trace from the user's function on."""
        pickled: bytes | None
        try:
            pickled = cloudpickle.dumps(error)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - whatever a class does when it is pickled
            pickled = None
        inner = error.__traceback__ and error.__traceback__.tb_next
        trace = "".join(traceback.format_exception(type(error), error, inner or None))
        summary = "".join(traceback.format_exception_only(error)).strip()
        return cls(partition, isinstance(error, ServerLost), summary, trace, pickled)

    def as_text(self) -> str:
        """The same in a line that a report has room for; ``from_text`` reads it."""
        kept = self.pickled if self.pickled and len(self.pickled) <= _MOST_BYTES else None
        short = self._replace(
            summary=self.summary[:_MOST_BYTES], trace=self.trace[-_MOST_BYTES:], pickled=kept
        )
        return base64.b64encode(cloudpickle.dumps(tuple(short))).decode()  # type: ignore[no-untyped-call]

    @classmethod
    def from_text(cls, text: str) -> Failure:
        """What ``as_text`` wrote, on a connection of the application's own tasks."""
        return cls(*cloudpickle.loads(base64.b64decode(text)))

    def throw(self, where: str, note: str) -> NoReturn:
        """Raise what the task raised, with the note, as its own class if it can be pickled."""
        error: Any = None
        if self.pickled is not None:
            try:
                error = cloudpickle.loads(self.pickled)
            except Exception:  # noqa: BLE001 - whatever a class does when it is made
                error = None
        if isinstance(error, Exception):
            error.add_note(f"This was {where}; {note}")
        else:
            error = RuntimeError(f"{where}: {self.summary}")
        raise error from RemoteTrace(self.trace)
