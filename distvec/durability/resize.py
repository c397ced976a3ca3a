"""``ps.resize``: all arrays of a session go to other servers, through a checkpoint.

A second session is filled on the servers that are to have the arrays, while the first one keeps
them. Then the client changes from one to the other, which takes no message. So whatever fails
before leaves everything as it was.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory

from distvec.array.core.handle import SessionBase
from distvec.durability.checkpoints import Checkpoints
from distvec.durability.policy import Durability, is_changed
from distvec.durability.replay import bits_of
from distvec.graph.node import MOVEMENT, Buffer, Node, topological
from ps_backend.client import Client, WantedSpace, defer_signals
from ps_backend.errors import PSError, ServerLost
from ps_backend.program.spaces import DenseSpace

_LOG = logging.getLogger(__name__)


@contextmanager
def checkpoints_for(
    session: SessionBase,
    durability: Durability,
    directory: str | os.PathLike[str] | None,
    has_disk: bool,
) -> Iterator[Checkpoints]:
    """Where arrays can move: to the checkpoints of replay, else to a directory for this alone.

    ``has_disk``: servers see a temporary directory of this machine.
    """
    if durability.replays:
        yield durability.checkpoints(session)
        return
    with ExitStack() as stack:
        above = durability.directory if directory is None else directory
        if above is None and not has_disk:
            raise ValueError(
                "resize() needs checkpoint=: a directory that all servers can reach, or a URL"
            )
        if above is None:
            above = stack.enter_context(TemporaryDirectory(prefix="distvec-"))
        checkpoints = Checkpoints(session, f"{os.fspath(above)}/resize-{secrets.token_hex(8)}")
        stack.callback(checkpoints.remove)
        yield checkpoints


def warn_of_other_bits(client: Client) -> Callable[[Client], None]:
    """A check of servers that are to take the place of those of ``client``."""
    before = bits_of(client)

    def check(fresh: Client) -> None:
        if len({*before, *bits_of(fresh)}) > 1:
            warnings.warn(
                "not all servers compute the same bits (see distvec status), so results after "
                "resize() can differ in their last bits from those before",
                stacklevel=4,
            )

    return check


def resize(
    session: SessionBase,
    checkpoints: Checkpoints,
    begin: Callable[[], Client],
    admit: Callable[[Client], None],
) -> None:
    """Bring all arrays to the servers of the client that ``begin`` makes, for ``session.client``.

    ``admit`` raises if these must not have them. After an error the session is as before; only a
    KeyboardInterrupt may come when the arrays have moved.
    """
    began, client, journal = time.perf_counter(), session.client, session.client.journal
    servers, resume_from = client.servers, client.resume_from
    with ExitStack() as stack:
        stack.callback(lambda: client.counters.resize(client.servers))
        stack.enter_context(session.quiesce())
        _compute_pending(session)
        if journal is not None:  # it notes no request from here on
            stack.enter_context(journal.alone())
        spaces = list(session.spaces.values())
        arrays = [dict(space.arrays) for space in spaces]  # so that none is freed meanwhile
        buffers = session.holders.buffers()
        written = checkpoints.write(0, {}, resumable=False)
        if journal is None:
            client.resume_from = resume_from
        known = checkpoints.wanted_spaces()
        stack.callback(checkpoints.forget_spaces)
        fresh = begin()
        stack.callback(fresh.close)  # with the session that it has then
        lives = fresh.lives
        checkpoints.refill(written.path.rpartition("/")[2], fresh)
        if journal is None:
            _refuse_changes(session, known, buffers)
        if is_changed(fresh, lives):
            raise ServerLost(
                "resize() was broken off, and the session is as before: a new server was lost"
            )
        with defer_signals():
            admit(fresh)
            client.exchange(fresh)
            if journal is not None:
                journal.lives = lives
            session.chosen.clear()
            for space in spaces:
                space.reconnect()
        del arrays, buffers
    _LOG.info(
        "all arrays are on %d servers, before on %d; it took %.1f s",
        client.servers, servers, time.perf_counter() - began,
    )  # fmt: skip


def _compute_pending(session: SessionBase) -> None:
    """Compute operations whose way depends on the number of servers; others may stay pending."""
    session.flush()
    session.client.wait()
    pending = {node: array for array in session.holders.arrays() if not (node := array.node).known}
    for node, array in pending.items():
        if any(map(_depends_on_servers, topological([node], lambda one: one.known))):
            session.compute(array)


def _depends_on_servers(node: Node) -> bool:
    if isinstance(node.value, Buffer):
        return not isinstance(node.value.type.space, DenseSpace)
    return node.op == MOVEMENT and not node.known


def _refuse_changes(
    session: SessionBase, known: Sequence[WantedSpace], buffers: Mapping[int, Buffer]
) -> None:
    """``PSError`` if another thread has changed a copied array, or made one."""
    client, pin = session.client, f"resize {secrets.token_hex(8)}"
    try:
        copies = client.pin(pin, known).spaces
    finally:
        client.unpin(pin)
    marks = {number: [copy.mark for copy in some] for number, some in copies.items()}
    is_same = marks == {one.number: list(one.known) for one in known}
    if not is_same or session.holders.buffers().keys() - buffers.keys():
        raise PSError(
            "resize() was broken off: another thread has changed arrays of the session meanwhile, "
            "and these changes are kept; stop the other threads, and call it again"
        )
