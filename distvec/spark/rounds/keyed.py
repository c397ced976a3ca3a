"""The task side of a round over keyed arrays: what would change rows waits for the commit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from distvec.keyed.applied import applied
from distvec.keyed.array import KeyedArray
from distvec.keyed.key_lists import as_keys
from distvec.rows.function import RowFunction
from distvec.rows.plugin import Plugin
from distvec.spark.rounds.contribute import Sender
from ps_backend.client import Client, Key, KeyBatch, KeySpace, KeyView
from ps_backend.program.row_program import RowProgram
from ps_backend.program.sweep import Scalar


class KeyedContributor:
    """What a task uses to change rows of a keyed array in a round; it travels in closures.

    What it is told waits on the servers, and is done when the round ends: by partition, and in a
    partition in the order of the calls. Keys that are not there are inserted then, in this order
    and that of the keys. So values, and the order of keys, depend neither on who came first nor on
    the number of servers. Rows that ``wire=`` narrows are rounded by the partition and the number
    of the call, so another attempt of a task stages the same bits. One message to each server, at
    each call. Raises ``RoundClosed`` in a task that comes too late to count.
    """

    def __init__(self, sender: Sender, slot: int, array: KeyedArray, op: str) -> None:
        """``slot``: of the space; ``op``: what ``push`` does, "add", "min" or "max"."""
        self._sender, self._slot, self._array, self._op = sender, slot, array, op

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_staged"}

    def push(self, keys: Any, values: Any, *, wire: str | None = None) -> None:
        """As of ``KeyedArray.push``; in a round with another ``op`` as of its ``minimum``, ..."""
        match self._op:
            case "add":
                self._staged.push(keys, values, wire=wire)
            case "min":
                self._staged.minimum(keys, values, wire=wire)
            case "max":
                self._staged.maximum(keys, values, wire=wire)

    def assign(self, keys: Any, values: Any, *, wire: str | None = None) -> None:
        """As of ``KeyedArray.assign``, of chosen keys."""
        self._staged.assign(keys, values, wire=wire)

    def step(
        self,
        keys: Any,
        gradients: Any,
        *,
        step_size: float | None = None,
        wire: str | None = None,
    ) -> None:
        """As of ``KeyedArray.step``."""
        self._staged.step(keys, gradients, step_size=step_size, wire=wire)

    def apply(
        self,
        function: RowFunction,
        keys: Any,
        *args: Any,
        combine: str = "add",
        wire: str | None = None,
        **named: Any,
    ) -> None:
        """As of ``KeyedSpace.apply``, with arrays of this space; ``function`` returns no values.

        ``TypeError`` for a plug-in: it may fail, and what is done at the end of a round is done as
        a whole or not at all.
        """
        if isinstance(function, Plugin):
            raise TypeError(
                f"{function!r} cannot be part of a round: that is done as a whole or not at all, "
                "when it ends, and such a function may fail then; write it as @dv.rows, or call "
                "space.apply(...) in the task, which runs it at once"
            )
        batch = KeyBatch.of(as_keys(keys))
        applied(self._staged.space, function, batch, None, combine, wire, args, named)

    @cached_property
    def _staged(self) -> KeyedArray:
        """The array, of which row programs are staged."""
        self._sender.check_in_task()
        return self._array.over(cast(KeySpace, _Staging(self._array, self._sender, self._slot)))


class _Staging:
    """A keyed space whose row programs are staged in a round."""

    def __init__(self, array: KeyedArray, sender: Sender, slot: int) -> None:
        self._remote: KeySpace = array.space.remote
        self._sender, self._slot = sender, slot

    def run(
        self,
        program: RowProgram,
        arrays: Sequence[int],
        keys: KeyBatch,
        given: Sequence[npt.NDArray[Any]] = (),
        scalars: Sequence[Scalar] = (),
        *,
        find: bool = False,
        view: KeyView | None = None,
        wire: str = "",
    ) -> tuple[list[npt.NDArray[Any]], npt.NDArray[np.bool_] | None]:
        """Stage it. ``TypeError`` if it returns something, which nobody knows before the end."""
        if program.returned or find or view is not None:
            raise TypeError(
                "in a round a row function returns nothing per key: it is run when the round ends; "
                "call space.apply for what is run at once"
            )
        name = self._sender.name

        def stage(_: Client, key: Key) -> None:
            self._remote.stage(name, key, program, arrays, keys, given, scalars, wire)

        self._sender.send(self._slot, stage)
        return [], None
