"""Why jobs and tasks failed: in a line, and as exceptions of users' functions, raised again."""

from __future__ import annotations

import base64
import itertools
import os
import re
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pyspark import SparkContext, cloudpickle
from pyspark.errors import PythonException

import distvec
from ps_backend.errors import ServerLost

_PACKAGE = os.path.dirname(os.path.abspath(distvec.__file__))


def user_stacklevel() -> int:
    """For ``warnings.warn`` where this is called: the first caller outside of this package."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, levels = frame.f_back, levels + 1
    return levels


_LOST = re.compile(r"ExecutorLostFailure|Python worker exited unexpectedly")

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


def tasks_were_lost(error: BaseException) -> bool:
    """Did a job fail because processes were lost, and not by an exception of what they ran?"""
    cause = error if error.__cause__ is None else error.__cause__
    return not isinstance(cause, PythonException) and _LOST.search(str(cause)) is not None


def describe_failure(error: Exception) -> str:
    """Why a Spark job failed, in a line: what a worker raised last, or what Java said and why."""
    text = str(error).strip().partition("\n\nJVM stacktrace:")[0]
    if isinstance(error, PythonException):
        reason = _last_exception(text)
    elif "[PYTHON_EXCEPTION]" in text:  # of a barrier job, in what Java says of its stage
        reason = _last_exception(re.split(r"\n(?: SQLSTATE|\tat )", text)[0])
    else:
        reason = _java_message(str(error).strip())
    if "No module named" in reason or "cannot import name" in reason:
        reason += (
            "; the workers' Python is another: start Spark with PYSPARK_PYTHON set to one that has "
            f"what the driver has{_wheel_hint()}"
        )
    if "PYTHON_VERSION_MISMATCH" in reason:
        reason += (
            f" Set PYSPARK_PYTHON to a Python {sys.version_info[0]}.{sys.version_info[1]} on the "
            "workers before Spark starts; it is "
            f"{os.environ.get('PYSPARK_PYTHON', 'not set, which means python3 on their PATH')}"
        )
    return reason or type(error).__name__


def _wheel_hint() -> str:
    """What is said of wheels among the files that were sent along."""
    context = SparkContext._active_spark_context
    sent = "" if context is None else context.getConf().get("spark.submit.pyFiles") or ""
    wheels = [Path(one).name for one in sent.split(",") if one.endswith(".whl")]
    if not wheels:
        return ""
    return (
        ". Of --py-files they find archives named .zip and .egg, and no wheels "
        f"({', '.join(wheels)}): give a copy that is named .zip, or install it for the workers"
    )


def _last_exception(text: str) -> str:
    """The exception at the end of a traceback."""
    lines = text.rpartition("Traceback (most recent call last):\n")[2].splitlines()
    return _one_line(itertools.dropwhile(lambda line: line.startswith(" "), lines))


def _java_message(text: str) -> str:
    """The message of a Java exception, and of the one that caused all others."""
    lines = text.splitlines()
    if lines and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]
    reason = _one_line(itertools.takewhile(lambda line: not line.startswith("\tat "), lines))
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    more = f"; caused by {causes[-1]}" if causes and causes[-1] not in reason else ""
    return reason.removeprefix(": ") + more


def _one_line(lines: Iterable[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())
