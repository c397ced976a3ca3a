"""Links of a rate, a latency and a loss, out of what Linux can do with the packets of an interface.

``tc`` limits the rate. The latency, and what is lost, come from ``netem`` where the kernel has it;
where not, each host's packets wait in a queue of its own (``tests.cluster.wait_in_line``).
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """What joins a host to the others."""

    bits_per_second: float
    round_trip: float = 0.0
    """Seconds to a host on such a link, and back; packets wait for half of them as they come in."""
    loss: float = 0.0
    """The part of the packets that gets lost on the way in."""

    @property
    def bytes_per_second(self) -> float:
        """As the counters of interfaces count, headers included."""
        return self.bits_per_second / 8


FAST = Link(10e9, 0.2e-3)
SLOW = Link(1e9, 1e-3)
LOSSY = Link(1e9, 1e-3, 1e-3)

_QUEUE_SECONDS = 0.02
"""What a port holds before it drops."""

_MOST_PACKET_BYTES = 128 << 10


@functools.cache
def has_netem() -> bool:
    """Can this kernel keep packets for a while by itself?"""
    return _works("tc qdisc add dev lo root netem delay 1ms")


@functools.cache
def has_queues() -> bool:
    """Can a process keep them?"""
    return _works("iptables --table mangle --append INPUT --jump NFQUEUE")


def _works(command: str) -> bool:
    """Does it, in a network that nobody is in?"""
    words = command.split()
    if shutil.which(words[0]) is None:
        return False
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    return subprocess.run([*alone, *words], capture_output=True, check=False).returncode == 0


def rate_commands(device: str, link: Link) -> list[str]:
    """What limits the packets that go into ``device``."""
    burst = max(_MOST_PACKET_BYTES, int(link.bytes_per_second * 0.5e-3))
    limit = burst + int(link.bytes_per_second * _QUEUE_SECONDS)
    rate = f"rate {link.bits_per_second:.0f} burst {burst} limit {limit}"
    return [f"tc qdisc replace dev {device} root handle 1: tbf {rate}"]


def latency_commands(device: str, link: Link) -> list[str]:
    """What keeps them, and loses some, after ``rate_commands``; with netem."""
    held = f"delay {link.round_trip / 2 * 1e6:.0f}us loss {link.loss:%} limit 100000"
    return [f"tc qdisc replace dev {device} parent 1:1 handle 10: netem {held}"]
