"""What is wrong with kept checkpoints, by name."""

from __future__ import annotations


class Corrupted(ValueError):
    """A checkpoint that is torn, damaged, or not of a run. Names the file and what is wrong."""


class NotDurable(RuntimeWarning):
    """A checkpoint could not be kept, or an older one was taken. The run itself goes on."""
