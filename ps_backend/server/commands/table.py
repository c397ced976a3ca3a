"""All commands of a server, by name: its own, and those in modules that its operator adds."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ps_backend.plugins import RowPlugin
from ps_backend.server.commands import (
    barriers,
    files,
    keyed_spaces,
    programs,
    row_programs,
    rows,
    session,
)
from ps_backend.server.commands.command import Command
from ps_backend.server.sessions import Plugins
from ps_backend.wire import ps_pb2 as pb


def load(modules: Iterable[str]) -> Plugins:
    """Import modules, and find what is marked in them. ``ValueError`` says which cannot be had."""
    plugins: dict[str, RowPlugin] = {}
    commands: list[Command] = []
    for name in modules:
        found = _values(name)
        plugins |= {one.name: one for one in found if isinstance(one, RowPlugin)}
        commands += [one for one in found if isinstance(one, Command) and one not in commands]
        if not any(isinstance(one, RowPlugin | Command) for one in found):
            raise ValueError(
                f"the plug-in module {name} defines no plug-in; decorate a function with "
                "@row_plugin(...) of ps_backend.plugins, or a command with @command()"
            )
    return Plugins(plugins, tuple(commands))


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


def table_of(commands: Iterable[Command]) -> Mapping[str, Command]:
    """``commands`` by name; ``ValueError`` if two of them have the same."""
    table: dict[str, Command] = {}
    for one in commands:
        if table.setdefault(one.name, one) is not one:
            raise ValueError(f"two commands have the name {one.name!r}; rename one of them")
    return MappingProxyType(table)


_MESSAGES = pb.Request.DESCRIPTOR.oneofs_by_name["body"].fields
_OWN = [
    one
    for module in (barriers, files, keyed_spaces, programs, row_programs, rows, session)
    for one in vars(module).values()
    if isinstance(one, Command)
]
BUILT_IN = table_of(one for one in _OWN if one.name in {field.name for field in _MESSAGES})
"""By the name of their message."""
NAMED = tuple(one for one in _OWN if one.name not in BUILT_IN)
"""Those without a message of their own, which ``Client.call`` asks for."""
