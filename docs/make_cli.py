"""Write docs/reference/cli.md from the command's parser: ``python -m docs.make_cli``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from distvec.command_line import command_parser

PAGE = Path(__file__).with_name("reference") / "cli.md"

_INTRODUCTION = """\
# Command line: `distvec`

Use the `distvec` command to run parameter servers by hand, to look at running ones, and to fit models
of files. Servers that `dv.local` or `PSContext` start need no command.

```shell
distvec serve --port 7070 --memory 2g --token-file token
distvec status 127.0.0.1:7070 --token-file token
distvec dashboard 127.0.0.1:7070 --token-file token
```

`distvec --version` prints the version, `distvec COMMAND --help` the options of a command. The exit
code is 0 after success, 1 after an error, 2 for wrong options, 3 if a solver reached a limit, and 130
after Ctrl-C. `python -m ps_backend` runs `serve` and `status`.
"""
_END = """\
See also: [Run servers](../operate/servers.md), [Security](../operate/security.md),
[Configuration](configuration.md).
"""


def page() -> str:
    """The text of the page."""
    return "\n".join([_INTRODUCTION, *(_command(*one) for one in _commands()), _END])


def _commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in command_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    tables: dict[str, str] = {}
    for group in parser._action_groups:
        title = group.title or ""
        # Arguments and the options that are in no group share one table.
        title = "" if title in ("positional arguments", "options") else title
        for action in group._group_actions:
            if action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
                row = f"| {_name(action)} | {_help(action, parser)} |\n"
                tables[title] = tables.get(title, "") + row
    parts = [f"## `distvec {name}`\n\n{parser.description}\n"]
    for title, rows in tables.items():
        head = f"### {title[0].upper()}{title[1:]}\n\n" if title else ""
        parts.append(f"{head}| Option | Meaning |\n|---|---|\n{rows}")
    example = (parser.epilog or "").partition("\n")[2].strip()
    parts.append(f"Example:\n\n```shell\n{example}\n```\n")
    return "\n".join(parts)


def _name(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.dest}`"
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if action.choices is not None:
        value = "|".join(map(str, action.choices)).replace("|", r"\|")
    return f"`{action.option_strings[-1]} {value}`".replace(" `", "`")


def _help(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    return (action.help or "") % {"default": action.default, "prog": parser.prog}


if __name__ == "__main__":
    PAGE.write_text(page())
