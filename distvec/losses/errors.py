"""The error of a loss that somebody wrote: in which rows, and what it did."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import numpy as np
import scipy

_LIBRARIES = tuple(
    str(folder) + os.sep
    for folder in (
        Path(np.__file__).parent,
        Path(scipy.__file__).parent,
        Path(__file__).parents[1],
    )
)
"""Frames of these say nothing of the user's code."""


class LossError(RuntimeError):
    """A loss raised, or gave what cannot be its value and derivative.

    ``args`` are the loss, the place, and the problem, each a text; it pickles.
    """

    def __init__(self, loss: str, place: str, problem: str) -> None:
        super().__init__(loss, place, problem)

    def __str__(self) -> str:
        loss, place, problem = self.args
        return f"the loss {loss} failed in {place}: {problem}"

    def within(self, outer: str) -> LossError:
        """The same, with its place in something larger: ``error.within("partition 3")``."""
        loss, place, problem = self.args
        return type(self)(loss, f"{outer}, {place}", problem)


class NotFinite(LossError, ArithmeticError):
    """A loss has no value or no slope at a point: NaN where margins are finite, an overflow.

    At a start it is an error; where a solver went too far, it takes a shorter step.
    """


def loss_error(loss: str, place: str, error: Exception) -> LossError:
    """A ``LossError`` for an exception that a loss raised."""
    kind = NotFinite if isinstance(error, ArithmeticError) else LossError
    return kind(loss, place, raised(error))


def row_block(number: int, part: slice) -> str:
    """The place of a block of rows: its number, and its first and last row."""
    return f"row block {number}, rows {part.start:,} to {part.stop - 1:,}"


def raised(error: Exception) -> str:
    """What was raised, and the last line of the user's code that it went through."""
    said = "".join(traceback.format_exception_only(error)).strip()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_LIBRARIES):
            line = f": {frame.line}" if frame.line else ""
            return f"{said} ({frame.filename}, line {frame.lineno}, in {frame.name}{line})"
    return said
