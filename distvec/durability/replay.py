"""Recovery without a word to the user's code: the last checkpoint, and all requests since then."""

from __future__ import annotations

import logging
import time
import warnings

from distvec.durability.checkpoints import Checkpoints
from distvec.durability.policy import await_all
from distvec.durability.published_names import Names
from ps_backend.client import MOST_LOSSES, Client, Journal
from ps_backend.errors import NotDurable, PSError, ReplayDiverged, ServerLost, StoreFailed

_LOG = logging.getLogger(__name__)


def bits_of(client: Client) -> list[tuple[str, str]]:
    """The digests of arithmetic and of functions of each server; equal ones give equal results.

    A message each, which no counter has.
    """
    return [(one.bits, one.functions) for one in client.observe()]


class Replay:
    """Brings the servers of a session back to where they were when one was lost."""

    def __init__(self, checkpoints: Checkpoints, names: Names, journal: Journal) -> None:
        self._checkpoints, self._names, self._journal = checkpoints, names, journal
        self._enough = 0
        """After a checkpoint that failed: the bytes in the journal from which on to try again."""
        self._bits = bits_of(checkpoints.session.client)
        checkpoints.is_base = True
        journal.recover = self._recover

    def make_room(self) -> None:
        """Begin a checkpoint if the journal is long. To be called before a request."""
        journal, limit = self._journal, self._checkpoints.session.journal_limit
        if journal.nbytes <= limit:
            self._enough = 0
        elif journal.nbytes > self._enough and not journal.passes:
            self._begin(limit)

    def _begin(self, limit: int) -> None:
        if self._checkpoints.is_writing:
            return
        try:
            trouble = self._checkpoints.settle()
            if trouble is not None and not isinstance(trouble, ServerLost):
                raise trouble
            self._checkpoints.begin(0, {})
        except ServerLost:  # from which the session could not recover
            raise
        except (OSError, PSError) as error:
            self._enough = self._journal.nbytes + limit  # not with each statement
            where = self._checkpoints.store.url
            warnings.warn(
                f"no checkpoint in {where}: {error}; the journal of the session grows meanwhile",
                NotDurable,
                stacklevel=4,
            )

    def admit(self, client: Client) -> None:
        """All arrays go to the servers of ``client``. Raises ``ReplayDiverged``."""
        bits = bits_of(client)
        if len({*bits, *self._bits}) > 1:
            raise ReplayDiverged(
                "the session does not go to servers that compute other bits (see distvec status): "
                "other processors, or other versions of libraries"
            )
        self._bits = bits

    def _check_bits(self) -> None:
        bits = bits_of(self._checkpoints.session.client)
        for server, (here, before) in enumerate(zip(bits, self._bits, strict=True)):
            if here != before:
                raise ReplayDiverged(
                    f"server {server} was replaced by one that computes other bits ({here}, and "
                    f"before {before}; see distvec status): another processor, or other versions "
                    "of libraries; start it again as it was, then restore a checkpoint"
                )

    def _recover(self, error: ServerLost) -> None:
        began, client = time.perf_counter(), self._checkpoints.session.client
        _LOG.warning("%s; the session recovers", error)
        for attempt in range(1, MOST_LOSSES + 1):
            try:
                await_all(client)
                self._journal.lives = client.lives  # a later loss shows in these
                self._checkpoints.settle()
                self._check_bits()
                client.empty()
                self._checkpoints.refill(self._journal.base)
                count = self._journal.replay()
                self._names.publish_again()
                break
            except ReplayDiverged:
                client.empty()  # no array of other bits is left
                raise
            except ServerLost:
                if attempt == MOST_LOSSES:
                    raise
            except (PSError, StoreFailed) as trouble:
                raise ServerLost(f"{error}; the session did not recover: {trouble}") from trouble
        _LOG.warning(
            "all arrays are there again, by checkpoint %s and %d requests since then, after %.1f s",
            self._journal.base or "none", count, time.perf_counter() - began,
        )  # fmt: skip
