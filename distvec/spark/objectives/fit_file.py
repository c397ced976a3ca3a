"""A file in which a fit keeps arrays between its iterations, and from which it goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from distvec import DistArray
from distvec.durability.load import load
from distvec.durability.save import save
from distvec.spark.context import PSContext
from ps_backend.durability.stores import open_store


@dataclass(frozen=True)
class FitFile:
    """The file of the fit that ``about`` tells from others, in a directory or at a URL."""

    directory: str
    interval: int
    """Iterations between two states that are kept."""
    about: Mapping[str, Any]
    """As JSON can hold it."""

    def keep(self, iteration: int, memory: Any = None, **arrays: DistArray) -> None:
        """Write the arrays, and ``memory``, which JSON can hold, if this iteration is to be kept.

        The file before is replaced in one step, so a crash leaves one of the two.
        """
        if iteration % self.interval == 0:
            texts = {"after": json.dumps([iteration, memory])}
            save(f"{self.directory.rstrip('/')}/{self._name}", arrays, metadata=texts)

    def resume(self, ps: PSContext) -> tuple[int, Any, Mapping[str, DistArray]] | None:
        """The state kept last, as iteration, memory and arrays; None if there is no file."""
        if self._name not in open_store(self.directory).names():
            return None
        found = load(f"{self.directory.rstrip('/')}/{self._name}", ps)
        iteration, memory = json.loads(found.metadata["after"])
        return iteration, memory, found

    def delete(self) -> None:
        """The fit has ended."""
        store = open_store(self.directory)
        if self._name in store.names():
            store.delete(self._name)

    @cached_property
    def _name(self) -> str:
        known = json.dumps(self.about, sort_keys=True).encode()
        return f"fit-{hashlib.sha256(known).hexdigest()[:16]}.safetensors"
