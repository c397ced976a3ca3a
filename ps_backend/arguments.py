"""Arguments that people pass by hand, checked: errors say what was given and what to type."""

from __future__ import annotations

import argparse
import ipaddress
import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ps_backend.machine import usable_cores, usable_memory

LEASE_SECONDS = 600.0
"""Of a session, unless its client or its server says otherwise."""

SHORTEST_SECONDS, LONGEST_SECONDS = 0.1, 7 * 86_400.0


ENGINES = ("auto", "numexpr")
"""All engines, chosen by the program and its length; or only numexpr and NumPy."""

_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "plugins": (
        "--plugin",
        {
            "action": "append",
            "default": [],
            "metavar": "MODULE",
            "help": "Module, for example package.module, with functions that clients may run on "
            "rows of keyed spaces; repeat the option for more (default: no module)",
        },
    ),
    "engine": (
        "--engine",
        {
            "choices": ENGINES,
            "default": "auto",
            "help": "How kernels run: auto uses NumPy, and compiles long or frequent kernels; "
            "numexpr uses numexpr and NumPy without compilation (default: %(default)s)",
        },
    ),
}
"""The option of ``distvec serve`` for each field of ``Extensions``."""


@dataclass(frozen=True, slots=True)
class Extensions:
    """Settings of a server that its commands read: a new one is a field here and an option."""

    plugins: tuple[str, ...] = ()
    """Modules with functions that clients may run (``ps_backend.plugins``)."""
    engine: str = "auto"
    """One of ``ENGINES``."""

    @staticmethod
    def add_options(parser: argparse._ArgumentGroup) -> None:
        """Add the options to the parser of ``distvec serve``."""
        for name, (option, settings) in _OPTIONS.items():
            parser.add_argument(option, dest=name, **settings)

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> Extensions:
        """Return the checked settings of a parsed command line."""
        return extensions(**{name: getattr(options, name) for name in _OPTIONS})

    def as_options(self) -> list[str]:
        """Return the command line that ``from_options`` reads back."""
        words = []
        for name, (option, _) in _OPTIONS.items():
            value = getattr(self, name)
            for one in value if isinstance(value, tuple) else (value,):
                words += [option, one]
        return words


NO_EXTENSIONS = Extensions()


def extensions(plugins: object = (), engine: str = "auto") -> Extensions:
    """Checked. ``TypeError`` or ``ValueError`` for what are no names of modules, or no engine."""
    check_choice(engine, ENGINES, "engine")
    if isinstance(plugins, str) or not isinstance(plugins, Sequence):
        raise TypeError(
            f"plugins must be a list of names of modules, got {plugins!r}; write [{plugins!r}]"
        )
    for name in plugins:
        if not isinstance(name, str) or not all(map(str.isidentifier, name.split("."))):
            raise ValueError(
                f"a plug-in must be the name of a module, such as 'package.module', got {name!r}"
            )
    return Extensions(tuple(plugins), engine)


def whole_count(servers: object) -> int:
    """``servers`` as an int, 1 or more. ``TypeError`` or ``ValueError`` if it is none."""
    try:
        count = operator.index(servers)  # type: ignore[arg-type]
    except TypeError:
        hint = ""
        if isinstance(servers, str) and ":" in servers:
            hint = "; to use running servers: distvec.connect('host:port')"
        elif isinstance(servers, str | float) and re.fullmatch(r"\d+(\.0)?", str(servers).strip()):
            hint = f"; write servers={int(float(servers))}"
        raise TypeError(f"servers must be an integer, got {servers!r}{hint}") from None
    if count < 1:
        raise ValueError(f"servers must be 1 or more, got {count}")
    return count


def server_count(servers: object) -> int:
    """The same, that one machine can bear."""
    count, most = whole_count(servers), max(64, 16 * usable_cores())
    if count > most:
        raise ValueError(f"servers must be {most} at most on this machine, got {count}")
    return count


def server_addresses(addresses: object) -> list[str]:
    """A list of ``"host:port"`` from one text, separated by commas, or a sequence of texts."""
    names: object = addresses
    if isinstance(addresses, str):
        names = [name.strip() for name in addresses.split(",")]
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"addresses must be 'host:port,host:port' or a list of 'host:port', got {addresses!r}"
        )
    for name in names:
        host, _, port = name.rpartition(":")
        if not host or "/" in name or not (port.isascii() and port.isdigit()):
            plain = re.sub(r"^\w+://|/.*$", "", name)
            hint = f"; write {plain!r}" if re.fullmatch(r"[^/]+:\d+", plain) else ""
            raise ValueError(f"an address must be 'host:port', got {name!r}{hint}")
        if not 0 < int(port) < 65536:
            raise ValueError(f"a port must be between 1 and 65535, got {name!r}")
    return list(names)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens at ``host``; of names, ``localhost``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_token(token: object) -> None:
    """``TypeError`` for what is no text: the token itself is asked for, not its file or bytes."""
    if token is None or isinstance(token, str):
        return
    hint = "token.decode()" if isinstance(token, bytes) else "open(file).read().strip()"
    raise TypeError(f"token must be a string, got {type(token).__name__}; write token={hint}")


def check_seconds(name: str, seconds: object) -> None:
    """``TypeError`` or ``ValueError`` unless ``seconds`` is a number, 0 or more."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name} must be a number of seconds, got {seconds!r}")
    if not seconds >= 0 or math.isinf(seconds):
        raise ValueError(f"{name} must be 0 or more seconds, and finite, got {seconds!r}")


def check_lease(seconds: float, what: str = "lease") -> float:
    """``seconds`` as a float; ``ValueError`` if it is no time that a lease may have."""
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:  # nor NaN
        raise ValueError(
            f"{what} must be between {SHORTEST_SECONDS:g} and {LONGEST_SECONDS:g} seconds, got "
            f"{seconds!r}"
        )
    return float(seconds)


def check_choice(given: str, allowed: tuple[str, ...], name: str) -> None:
    """ValueError unless ``given`` is one of those ``allowed``."""
    if given not in allowed:
        raise ValueError(f"{name}={given!r}; allowed are {', '.join(map(repr, allowed))}")


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size(size: int | str) -> int:
    """Bytes in ``"512m"``, ``"2g"``, ``"1.5GiB"`` or ``4096``; units are powers of 1024."""
    how = "write it in bytes, or like '512m' or '2g'"
    if isinstance(size, bool) or not isinstance(size, int | np.integer | str):
        raise TypeError(f"{size!r} is not a size; {how}")
    if not isinstance(size, str):
        if size < 1:
            raise ValueError(f"a size must be positive, got {size}; {how}")
        return int(size)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", size, re.IGNORECASE)
    if match is None:
        raise ValueError(f"{size!r} is not a size; write it like 512m or 2g")
    found = int(float(match[1]) * _UNITS[match[2].lower()])
    if found < 1:
        raise ValueError(f"a size must be positive, got {size!r}; {how}")
    return found


def default_budget(servers: int) -> int:
    """Bytes for one of ``servers`` servers on this machine: 80 % of the memory in equal shares."""
    return usable_memory() * 4 // 5 // servers
