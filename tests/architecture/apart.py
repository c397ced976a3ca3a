"""Processes that know what a module of this folder registers: ``serve NAME``, ``use NAME``.

What is registered stays for the life of a process, so it is none of pytest's.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import distvec as dv
from ps_backend.server.endpoints.grpc_server import Server
from ps_backend.server.service import Service

TOKEN = "a token for tests"


def _process(verb: str, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.architecture.apart", verb, name],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@contextmanager
def servers(name: str, count: int = 2) -> Iterator[list[str]]:
    """The addresses of servers that know what the module registers."""
    processes = [_process("serve", name) for _ in range(count)]
    try:
        yield [process.stdout.readline().strip() for process in processes]
    finally:
        for process in processes:
            process.communicate()


def used(name: str) -> None:
    """Call the module's ``use`` in a process of its own; its failure is raised here."""
    said, _ = (process := _process("use", name)).communicate(timeout=240)
    assert process.returncode == 0, said


def _serve(module: ModuleType) -> None:
    commands = getattr(module, "COMMANDS", ())
    server = Server(Service(memory=1 << 30, commands=commands), token=TOKEN)
    server.start()
    print(server.address, flush=True)  # noqa: T201
    sys.stdin.read()
    server.stop(0)


def _use(module: ModuleType) -> None:
    name = module.__name__.rpartition(".")[2]
    with servers(name) as addresses, dv.connect(addresses, token=TOKEN) as ps:
        module.use(ps)


if __name__ == "__main__":
    _module = importlib.import_module(f"tests.architecture.{sys.argv[2]}")
    if hasattr(_module, "register"):
        _module.register()
    {"serve": _serve, "use": _use}[sys.argv[1]](_module)
