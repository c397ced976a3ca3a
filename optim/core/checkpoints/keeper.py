"""What keeps the checkpoints of a run, and what may be wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from optim.core.arrays import Array


class Corrupted(ValueError):
    """A checkpoint that is torn, damaged, or not of a run. Names the file and what is wrong."""


class NotDurable(RuntimeWarning):
    """A checkpoint could not be kept, or an older one was taken. The run itself goes on."""


class Keeper(Protocol):
    """Keeps checkpoints of one run, in one place; the newest valid one counts.

    A checkpoint is its number, arrays by name, and a document: what JSON can hold (dicts with
    strings as keys, lists, strings, True, False, None, and numbers, which are finite and come back
    as they were: json.dumps writes floats so). All arrays are of one library and, where it has
    such, of one session; their dtypes and shapes may differ, and rank 0 is a shape. They have been
    evaluated, and none of them is written to after it was passed to `save`.

    An array library that has keepers of its own offers them by its namespace:
    `namespace.keeper(directory)` is one for the checkpoints in `directory`, or with None for those
    of the session itself; None if the session keeps none. Several runs may use the latter, one
    after the other, each with numbers from 0: there the newest is the one that was saved last.
    """

    def save(
        self,
        number: int,
        arrays: Mapping[str, Array],
        document: Mapping[str, Any],
        *,
        wait: bool = False,
    ) -> None:
        """Begin to keep checkpoint `number`, about the iteration; the values are those of now.

        Returns at once, and trouble is a warning; with `wait`, returns once the checkpoint would
        survive the machine's end, and raises what went wrong. Numbers rise within a run; after
        `load`, from the one that it gave. A kept checkpoint is never harmed by one that could not
        be kept.
        """

    def load(self) -> tuple[int, dict[str, Array], dict[str, Any]] | None:
        """Number, arrays and document of the newest valid checkpoint; None if there is none.

        Waits for what `save` has begun. Raises a ValueError that says what is wrong if there are
        checkpoints and none of them is valid.
        """

    def recovers(self, error: Exception) -> bool:
        """Whether `error` was a loss after which all is as at the newest checkpoint again.

        Then `load`, and going on from there, makes sense. False: the error is none of the keeper's.
        May take as long as it takes to bring all back.
        """

    def close(self) -> None:
        """Wait for what `save` has begun, and let go of threads and files. The keeper has ended.

        Trouble is a warning.
        """
