"""How long a silent server is waited for: all the times that say so, and why they are these.

A server that runs answers gRPC's pings even while its Python is busy, since gRPC's own threads do
it; so a long program is never cut off. A process that was stopped, or whose machine or network is
gone, does not answer: it is noticed after ``PING_SECONDS + PING_ANSWER_SECONDS`` at most, whatever
the request was. Then the request is repeated for ``REPEAT_SECONDS``, as it is harmless to repeat,
and the error comes after the sum of both: ten seconds. Where several are silent at once, all others
are given ten more, together.

About what goes past gRPC, over sockets of our own, a client asks over gRPC (``check_silence``). So
it notices that a connection brings nothing any more though the server runs, and repeats the request
over gRPC, within the same ten seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import grpc

from ps_backend.transport.base import Forgotten
from ps_backend.transport.tls import Tls, open_channel

PING_SECONDS = 2.5
"""A connection that is silent for so long, while a request is under way, is pinged."""

PING_ANSWER_SECONDS = 2.5
"""So long the answer to a ping may take: more than a busy machine's scheduler ever does."""

REPEAT_SECONDS = 5.0
"""How long a request is repeated after its connection broke."""

Look = Callable[[int, float], float]
"""How long the server's end of the connection of a number has waited for ours: seconds, 0 while it
is at work, infinite if it is there no more, also 0 if that is not known. It takes so many seconds
at most, and raises ``Unavailable`` if the server's process gives no sign in this time."""


def check_silence(look: Look, number: int, waits: float, ping: float, answer: float) -> None:
    """To be called where nothing has moved on a connection for ``ping`` seconds or more.

    ``waits``: how long it is. A server at work is waited for. ``Forgotten`` where both ends wait
    for each other for ``ping + answer`` seconds, as what is sent does not arrive: a wall between
    them has forgotten the connection, or a proxy hangs. ``Unavailable`` if the server is stopped.
    """
    theirs = look(number, answer)
    if theirs == math.inf or min(theirs, waits) >= ping + answer:
        raise Forgotten(
            f"the server is there, but the connection has been silent for {waits:.0f} s"
        )


SHORT_REQUESTS = frozenset(("open", "close", "status", "renew", "cancel"))
"""What no server ever works on for long, and so has a deadline of its own."""

SHORT_SECONDS = 5.0
"""That deadline, which also ends the wait for a server whose Python hangs."""

CLIENT_OPTIONS = (
    ("grpc.keepalive_time_ms", int(1000 * PING_SECONDS)),
    ("grpc.keepalive_timeout_ms", int(1000 * PING_ANSWER_SECONDS)),
    ("grpc.http2.ping_timeout_ms", int(1000 * PING_ANSWER_SECONDS)),  # else a minute, which wins
    ("grpc.http2.max_pings_without_data", 0),  # else two pings, and then none for a minute
)

SERVER_OPTIONS = (
    # Servers look for clients that are gone; that may take longer.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    # A client's pings may come late, in a bunch; not by hundreds, with nothing said in between.
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 100),
)


def completes_handshake(
    address: str, seconds: float, *, token: str | None, tls: Tls | None = None
) -> bool:
    """Whether the server process at ``address`` shakes hands over a new connection in that time.

    No request: it runs if it does, however busy. False for one that was stopped.
    """
    options = (("grpc.use_local_subchannel_pool", 1),)
    channel = open_channel(address, options, tls, token)
    ready = grpc.channel_ready_future(channel)
    try:
        ready.result(seconds)
        return True
    except grpc.FutureTimeoutError:
        return False
    finally:
        ready.cancel()
        channel.close()
