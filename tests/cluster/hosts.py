"""Hosts out of Linux namespaces, joined by a bridge.

Each has its own address, host name, ``/etc/hosts``, machine id, processes, ``/tmp`` and
``/dev/shm``, so no host sees another one's files in these, its shared memory, or its Unix sockets.
They share the kernel (and its boot id) and all other folders: Python, the project.

The first process of each host reads a pipe that only the process that made the network holds. When
this ends, however it ends, the kernel ends all processes of all hosts, and the interfaces, bridge
and folders go with the last of them: none has a name in any place.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster import wait_in_line
from tests.cluster.links import (
    FAST,
    Link,
    has_netem,
    has_queues,
    latency_commands,
    rate_commands,
)

ROOT = Path(__file__).resolve().parents[2]
DEVICE = "eth0"
_SUBNET = "10.67.0"
_UNSHARED = ("--net", "--uts", "--mount", "--ipc", "--pid", "--fork", "--kill-child")
_AS_ROOT = os.geteuid() == 0
_OWNER = () if _AS_ROOT else ("--user", "--preserve-credentials")

_SWITCH = "echo ready; exec cat"

_FIRST_PROCESS = """
set -e
mount -t proc proc /proc
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
chmod 1777 /tmp /dev/shm
hostname "$1"
printf '%s' "$2" > /tmp/.hosts
printf '%s\\n' "$1" > /tmp/.hostname
printf '%032x\\n' "$3" > /tmp/.machine-id
: > /tmp/.resolv.conf
for file in hosts hostname machine-id resolv.conf; do
  [ ! -e /etc/$file ] || mount --bind /tmp/.$file /etc/$file
done
exec "$4" -I -S -c "$5"
"""
_INIT = """
import signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries orphans
print("ready", flush=True)
sys.stdin.read()
"""


class Counts(NamedTuple):
    """What went over an interface, headers included."""

    received: int
    sent: int


@functools.cache
def why_not() -> str:
    """Why there can be no hosts here; empty if there can be."""
    for tool in ("unshare", "nsenter", "ip", "tc", "mount"):
        if shutil.which(tool) is None:
            return f"hosts out of namespaces need {tool} (packages util-linux and iproute2)"
    if any(path.is_relative_to("/tmp") for path in (ROOT, Path(sys.prefix).resolve())):
        return "hosts out of namespaces have a /tmp of their own, and the project lies in /tmp"
    attempt = [*_new_namespaces(), "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    tried = subprocess.run(attempt, capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"namespaces are not allowed here: {tried.stderr.strip()}"
    return ""


def why_no_latency() -> str:
    """Why links can have none; empty if they can."""
    if has_netem() or has_queues():
        return ""
    return "the kernel has no netem, and no queues of netfilter (package iptables) instead"


@dataclass(frozen=True)
class Host:
    """One of a network."""

    name: str
    address: str
    first: int
    """Its first process, as this process knows it."""

    def command(self, *words: str, env: Mapping[str, str] | None = None) -> list[str]:
        """What runs ``words`` on this host, with no more of our environment than tools need."""
        entered = ["nsenter", "--target", str(self.first), *_OWNER]
        entered += ["--net", "--uts", "--mount", "--ipc", "--pid", f"--wdns={ROOT}"]
        given = {name: os.environ[name] for name in _KEPT if name in os.environ}
        given |= {"PYTHONPATH": str(ROOT), **_PYTHON, **(env or {})}
        return [*entered, "env", "-i", *(f"{k}={v}" for k, v in given.items()), *words]

    def start(
        self, *words: str, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Begin to run it; it ends with the network at the latest."""
        return subprocess.Popen(self.command(*words, env=env), text=True, **options)

    def run(self, *words: str, env: Mapping[str, str] | None = None, timeout: float = 120.0) -> str:
        """Run it and return what it wrote; RuntimeError with all it wrote if it fails."""
        command = self.command(*words, env=env)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
        if done.returncode:
            raise RuntimeError(f"{self.name}: {words} failed:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def python(self, source: str, *arguments: str, **options: Any) -> str:
        """Run a program of Python as ``run`` does."""
        return self.run(sys.executable, "-c", source, *arguments, **options)

    def path(self, inside: str) -> Path:
        """Where a file of this host is for us."""
        return Path(f"/proc/{self.first}/root{inside}")

    def kill(self, pid: int) -> None:
        """End a process that this host knows by that number."""
        self.run("kill", "-KILL", str(pid))

    def counts(self) -> Counts:
        """Since the start."""
        for line in Path(f"/proc/{self.first}/net/dev").read_text().splitlines():
            name, _, numbers = line.partition(":")
            if name.strip() == DEVICE:
                fields = numbers.split()
                return Counts(int(fields[0]), int(fields[8]))
        raise RuntimeError(f"{self.name} has no interface")


_KEPT = ("PATH", "HOME", "LANG", "JAVA_HOME")
_PYTHON = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


@contextmanager
def network(
    *names: str,
    links: Mapping[str, Link] | None = None,
    strangers: Sequence[tuple[str, str]] = (),
) -> Iterator[dict[str, Host]]:
    """Hosts of these names, by name; on ``FAST`` links unless ``links`` says otherwise for one.

    ``strangers``: pairs (host, name) of a host that does not know that name. As on Debian, the own
    name of each host stands for 127.0.1.1.
    """
    links = dict.fromkeys(names, FAST) | dict(links or {})
    addresses = {name: f"{_SUBNET}.{number}" for number, name in enumerate(names, 1)}
    with ExitStack() as stack:
        switch = stack.enter_context(_first_process([*_new_namespaces(), "sh", "-c", _SWITCH]))
        hosts = {}
        _on_switch(switch, "ip link add bridge0 type bridge", "ip link set bridge0 up")
        owner = [] if _AS_ROOT else ["nsenter", "--target", str(switch), *_OWNER]
        for number, name in enumerate(names, 1):
            known = {n: a for n, a in addresses.items() if (name, n) not in strangers}
            table = _table(known | {name: "127.0.1.1"})
            script = ["sh", "-c", _FIRST_PROCESS, "sh", name, table, str(number)]
            script += [sys.executable, _INIT]
            first = stack.enter_context(_first_process([*owner, "unshare", *_UNSHARED, *script]))
            host = hosts[name] = Host(name, addresses[name], first)
            _join(switch, host, f"port{number}", links[name], stack)
        yield hosts


def _table(known: Mapping[str, str]) -> str:
    return "".join(
        f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **known}.items()
    )


def _new_namespaces() -> list[str]:
    return ["unshare", *(() if _AS_ROOT else ("--user", "--map-root-user")), *_UNSHARED]


@contextmanager
def _first_process(command: list[str]) -> Iterator[int]:
    """The first process of new namespaces, by its number here; all of them end with the block."""
    with _process(command) as process:
        yield _youngest(process.pid)


@contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """It says that it is ready, and ends with its standard input, as the block does."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as process:
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{command} failed: {process.stderr.read()}")
        yield process


def _youngest(pid: int) -> int:
    """The end of the line of children."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


def _on_switch(switch: int, *commands: str) -> None:
    for command in commands:
        entered = ["nsenter", "--target", str(switch), *_OWNER, "--net", *command.split()]
        done = subprocess.run(entered, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{command} failed: {done.stderr}")


def _join(switch: int, host: Host, port: str, link: Link, stack: ExitStack) -> None:
    """A cable between a host and the switch."""
    _on_switch(
        switch,
        f"ip link add {port} type veth peer name {DEVICE} netns {host.first}",
        f"ip link set {port} master bridge0 up",
    )
    host.run(
        "sh",
        "-c",
        f"ip address add {host.address}/24 dev {DEVICE}"
        f" && ip link set {DEVICE} up && ip link set lo up",
    )
    shape(switch, host, port, link, stack)


def shape(switch: int, host: Host, port: str, link: Link, stack: ExitStack) -> None:
    """Give a cable the properties of ``link``."""
    _on_switch(host.first, *rate_commands(DEVICE, link))
    _on_switch(switch, *rate_commands(port, link))
    if not (link.round_trip or link.loss):
        return
    if has_netem():
        _on_switch(switch, *latency_commands(port, link))
        return
    host.run(*f"iptables -t mangle -A INPUT -i {DEVICE} -j NFQUEUE --queue-num 0".split())
    command = host.command(
        *(sys.executable, "-I", "-S", wait_in_line.__file__, str(link.round_trip / 2)),
        str(link.loss),
    )
    stack.enter_context(_process(command))
