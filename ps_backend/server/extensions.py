"""Modules that the operator of a server adds to it, as it starts."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from ps_backend.plugins import RowPlugin
from ps_backend.server.commands.command import Command
from ps_backend.server.state.loaded import Loaded


def load(modules: Iterable[str]) -> Loaded:
    """Import modules, and find what is marked in them. ``ValueError`` says which cannot be had."""
    plugins: dict[str, RowPlugin] = {}
    commands: list[Command] = []
    for name in modules:
        found = _values(name)
        plugins |= {one.name: one for one in found if isinstance(one, RowPlugin)}
        commands += [one for one in found if isinstance(one, Command) and one not in commands]
        if not any(isinstance(one, RowPlugin | Command) for one in found):
            raise ValueError(
                f"the plug-in module {name} marks nothing; put @row_plugin(...) of "
                f"ps_backend.plugins before a function, or @command() before a command"
            )
    return Loaded(plugins, tuple(commands))


def _values(name: str) -> list[object]:
    try:
        return list(vars(importlib.import_module(name)).values())
    except ModuleNotFoundError as error:
        raise ValueError(
            f"no module {error.name} for --plugin {name}; install it for the servers' Python, or "
            f"add its folder to PYTHONPATH"
        ) from error
    except Exception as error:
        raise ValueError(
            f"the plug-in module {name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
