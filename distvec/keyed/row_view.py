"""Rows at keys that the servers know already, as they were sent once."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from distvec.array.core.handle import SessionBase as Session
from distvec.keyed.row_call import call_on_rows
from distvec.rows.api import Plugin, RowFunction
from ps_backend.client import KeyBatch, KeySpace, KeyView


class Home(Protocol):
    """A keyed space."""

    session: Session
    remote: KeySpace


class Rows(Protocol):
    """An array of a keyed space, as its views use it."""

    @property
    def space(self) -> Home:
        """Where it is."""

    def pull_batch(
        self,
        batch: KeyBatch,
        view: KeyView | None,
        missing: Any,
        return_found: bool,
        wire: str | None,
    ) -> Any:
        """The rows of the keys."""

    def scatter_batch(
        self, batch: KeyBatch, view: KeyView | None, values: Any, op: str, wire: str | None
    ) -> None:
        """Join values to rows."""

    def step_batch(
        self,
        batch: KeyBatch,
        view: KeyView | None,
        gradients: Any,
        step_size: float | None,
        wire: str | None,
    ) -> None:
        """One step of the rows."""


class RowView:
    """Rows of a keyed array at keys that the servers know already. Made by ``KeyedArray.at``."""

    def __init__(self, array: Rows, batch: KeyBatch) -> None:
        client = array.space.session.client
        self.array = array
        self._batch = batch
        self._view = KeyView(client.new_id(), batch)
        self._free = weakref.finalize(self, client.free, [self._view.number])
        self._free.atexit = False

    def __getstate__(self) -> dict[str, Any]:
        """As of ``KeyedArray``; who gets many of them gets the keys with each."""
        return {name: value for name, value in vars(self).items() if name != "_free"}

    def __len__(self) -> int:
        return self._batch.count

    def pull(
        self, *, missing: Any = "init", return_found: bool = False, wire: str | None = None
    ) -> Any:
        """As of ``KeyedArray.pull``."""
        return self.array.pull_batch(self._batch, self._view, missing, return_found, wire)

    def push(self, values: Any, *, wire: str | None = None) -> None:
        """As of ``KeyedArray.push``."""
        self.array.scatter_batch(self._batch, self._view, values, "add", wire)

    def assign(self, values: Any, *, wire: str | None = None) -> None:
        """As of ``KeyedArray.assign``."""
        self.array.scatter_batch(self._batch, self._view, values, "replace", wire)

    def step(
        self, gradients: Any, *, step_size: float | None = None, wire: str | None = None
    ) -> None:
        """As of ``KeyedArray.step``."""
        self.array.step_batch(self._batch, self._view, gradients, step_size, wire)

    def apply(
        self,
        function: RowFunction | Plugin,
        *args: Any,
        combine: str = "add",
        wire: str | None = None,
        **named: Any,
    ) -> Any:
        """As of ``KeyedSpace.apply``, on the rows of these keys."""
        space = self.array.space
        return call_on_rows(space, function, self._batch, self._view, combine, wire, args, named)
