"""How contributions to barriers are named, and the bounds on questions and waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ps_backend.program.types import ArrayType

LONGEST_WAIT_SECONDS = 10.0
"""A wait ends after so long at most, as does the thread of one whose sender is gone."""

MOST_VALUE_BYTES = 1 << 16
MOST_ANSWER_BYTES = 32 << 20
"""Of the answers to one question: they go out in one message."""


def check_size(value: bytes) -> None:
    """Raise ``ValueError`` for a question or answer that is too large for a mailbox."""
    if len(value) > MOST_VALUE_BYTES:
        raise ValueError(
            f"a value of {len(value)} bytes; a mailbox takes up to {MOST_VALUE_BYTES}: put it into "
            "an array, and ask about the array"
        )


OPERATIONS: Mapping[str, np.ufunc] = MappingProxyType(
    {"add": np.add, "min": np.minimum, "max": np.maximum}
)
"""How a contribution can be combined with what is there."""


class ReleaseStep(IntEnum):
    """What is to become of a round: in one step, or of keyed spaces in two."""

    ARRAYS = 0
    """Make the totals, and end the round."""
    RESERVE = 1
    """Reserve room for the keys that the totals of keyed spaces insert."""
    KEYS = 2
    """Apply what was reserved, and end the round."""
    UNDO = 3
    """Take back ``ARRAYS``, which another server refused."""


class Key(NamedTuple):
    """A staged contribution: whose it is, to which slot, and which of this attempt's to it."""

    partition: int
    attempt: int
    slot: int = 0
    number: int = 0


class Winner(NamedTuple):
    """An attempt that is to count, and how many contributions to a slot it staged."""

    partition: int
    attempt: int
    contributions: int = 1

    def keys(self, slot: int) -> Iterator[Key]:
        """Its contributions to ``slot``, in order."""
        for number in range(self.contributions):
            yield Key(self.partition, self.attempt, slot, number)


@dataclass(frozen=True, slots=True)
class Total:
    """What a commit makes of a slot: a new buffer ``target``.

    It is the buffer ``source`` (or zeros), combined by ``op`` of ``OPERATIONS`` with what the
    ``winners`` staged, in their order.
    """

    target: int
    type: ArrayType
    winners: Sequence[Winner]
    source: int | None = None
    op: str = "add"
    slot: int = 0
