"""A file in which a fit keeps the arrays between its iterations, and from which it goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distvec import DistArray
from distvec.durability.load import load
from distvec.durability.save import save
from distvec.spark.context import PSContext
from ps_backend.durability.stores import open_store

_NAME = "fit.safetensors"


@dataclass(frozen=True)
class FitFile:
    """The file of the fit that ``about`` tells from others, in a directory or at a URL."""

    directory: str
    interval: int
    """Iterations between two states that are kept."""
    about: Mapping[str, Any]
    """What JSON can hold."""

    def keep(self, iteration: int, memory: Any = None, **arrays: DistArray) -> None:
        """Write the arrays, and numbers that JSON can hold, if it is time after this iteration.

        The file before is replaced in one step, so a crash leaves one of the two.
        """
        if iteration % self.interval == 0:
            texts = {"fit": self._fit, "after": json.dumps([iteration, memory])}
            save(self._path, arrays, metadata=texts)

    def resume(self, ps: PSContext) -> tuple[int, Any, Mapping[str, DistArray]] | None:
        """What was kept last; None if there is nothing. ``ValueError`` for another fit's file."""
        if _NAME not in open_store(self.directory).names():
            return None
        found = load(self._path, ps)
        if found.metadata.get("fit") != self._fit:
            raise ValueError(
                f"checkpointDir={self.directory!r} has the state of another fit, with other Params "
                "or rows; repeat that fit, delete the directory, or give another checkpointDir"
            )
        iteration, memory = json.loads(found.metadata["after"])
        return iteration, memory, found

    def delete(self) -> None:
        """The fit has ended."""
        store = open_store(self.directory)
        if _NAME in store.names():
            store.delete(_NAME)

    @property
    def _path(self) -> str:
        return f"{self.directory.rstrip('/')}/{_NAME}"

    @property
    def _fit(self) -> str:
        return json.dumps(self.about, sort_keys=True)
