"""What was found in the modules that a server's operator has added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ps_backend.errors import InvalidProgram
from ps_backend.plugins import RowPlugin
from ps_backend.wire.keyed import unknown_plugin


@dataclass(frozen=True, slots=True)
class Loaded:
    """The functions and commands that were found in modules."""

    plugins: Mapping[str, RowPlugin] = field(default_factory=dict)
    commands: tuple[Any, ...] = ()
    """Each a ``commands.command.Command``."""

    def plugin(self, name: str, signature: str) -> RowPlugin:
        """One by name; ``InvalidProgram`` where it is not there, or has another signature."""
        found = self.plugins.get(name)
        if found is None:
            raise InvalidProgram(unknown_plugin(name, self.plugins))
        if str(found.signature) != signature:
            raise InvalidProgram(
                f"the plug-in {name} is ({found.signature}) here, and is called as ({signature}): "
                f"the server has another version of it by now; connect again"
            )
        return found
