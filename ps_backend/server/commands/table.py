"""All the commands that a server knows by itself, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ps_backend.server.commands import (
    clients,
    clocks,
    dense,
    durability,
    fetch,
    keyed_spaces,
    mailboxes,
    masks,
    programs,
    publications,
    restored_keys,
    rounds,
    row_programs,
    shared,
    sparse,
)
from ps_backend.server.commands.command import Command


def table_of(commands: Iterable[Command]) -> Mapping[str, Command]:
    """``commands`` by name; ``ValueError`` if two of them have the same."""
    table: dict[str, Command] = {}
    for one in commands:
        if table.setdefault(one.name, one) is not one:
            raise ValueError(f"two commands are called {one.name!r}; give one another name")
    return MappingProxyType(table)


BUILT_IN = table_of(
    one
    for module in (
        clients,
        clocks,
        dense,
        durability,
        fetch,
        keyed_spaces,
        mailboxes,
        masks,
        programs,
        publications,
        restored_keys,
        rounds,
        row_programs,
        shared,
        sparse,
    )
    for one in vars(module).values()
    if isinstance(one, Command)
)
