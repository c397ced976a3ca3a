"""Rounds: what many tasks contribute to arrays, each of them once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy.typing as npt

from ps_backend.client.connection import Connection
from ps_backend.client.requests import Messages, stored_values
from ps_backend.client.signals import defer_signals
from ps_backend.program.spaces import Space
from ps_backend.program.types import ArrayType
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.barriers import ReleaseStep, Total, Winner

_MOST_KEPT_BYTES = 1 << 16
"""Contributions of a round that a server may keep, once it is over, until it hears from us."""


class Rounds(Connection):
    """What a client can ask that concerns rounds, by their names."""

    def stage(
        self,
        round: str,
        partition: int,
        attempt: int,
        space: Space,
        indices: npt.ArrayLike | None,
        values: npt.ArrayLike,
        *,
        slot: int = 0,
        number: int = 0,
    ) -> None:
        """Keep a contribution to ``round`` until it is committed. One message a server.

        ``indices``: shape ``(k,)``; ``values``: ``(k, ...)``; duplicates count each. ``indices``
        None: all of the space, in order. ``slot`` says to which array of the round, ``number``
        which of this attempt's contributions to it. Staging again under the same four numbers
        replaces. Raises ``RoundClosed`` if the round is over.
        """
        messages: Messages = {}
        type, given = stored_values(space, values)
        for server, share in self._requests.filled(0, type, indices, given):
            message = messages[server] = self._requests.message(
                "contribute",
                barrier={"kind": "round", "name": round},
                member=partition,
                attempt=attempt,
                slot=slot,
                number=number,
                rows=[share.rows],
            )
            message.payload = share.payload
        self._send(messages)

    def commit(
        self,
        round: str,
        winners: Sequence[tuple[int, int]],
        type: ArrayType,
        target: int,
    ) -> None:
        """Make ``target``: zeros plus what the winners staged. One message a server.

        ``winners``: (partition, attempt), one attempt per partition; they are added in ascending
        order of partition, everything else of the round is dropped, and the round is closed.
        Raises ``PSError`` if a winner staged nothing, and then nothing has changed.
        """
        ordered = sorted(Winner(*winner) for winner in winners)
        if len({winner.partition for winner in ordered}) != len(ordered):
            raise ValueError(f"round {round!r}: a partition may win once, got {winners}")
        self.commit_totals(round, [Total(target, type, ordered)])

    def commit_totals(
        self,
        round: str,
        totals: Sequence[Total],
        keyed: Mapping[int, Sequence[Winner]] = MappingProxyType({}),
    ) -> None:
        """Make all ``totals`` and close the round, or change nothing. One message a server.

        ``keyed``: by slot of a keyed space whose contributions are applied, in which order; two
        more messages a server. Raises ``PSError`` if a winner staged less than it says,
        ``OutOfBudget`` if there is no room for new keys.
        """
        if not keyed:
            self._commit_totals(round, totals)
            return
        with defer_signals():
            named = [
                pb.Total(slot=slot, winners=[pb.Winner(**one._asdict()) for one in winners])
                for slot, winners in keyed.items()
            ]
            self._release(round, ReleaseStep.RESERVE, totals=named)
            if totals:
                self._commit_totals(round, totals)
            self._release(round, ReleaseStep.KEYS)

    def _release(self, round: str, step: ReleaseStep, **fields: object) -> None:
        self._send(self._requests.to_all("release", round=round, step=step, **fields))

    def _commit_totals(self, round: str, totals: Sequence[Total]) -> None:
        done: list[int] = []
        self._check_usable()
        with defer_signals():
            try:
                replies = self._fan_out.send(
                    self._requests.commit(round, totals),
                    after=lambda replies, error: done.extend(replies if error else ()),
                )
            except Exception:
                undone = [{"target": {"buffer": total.target}} for total in totals]
                step = ReleaseStep.UNDO
                self._send(
                    self._requests.each(done, "release", round=round, totals=undone, step=step)
                )
                raise
            large = [server for server, reply in replies.items() if reply.kept > _MOST_KEPT_BYTES]
            if large:  # all have agreed: nothing will be taken back
                self._fan_out.send_unawaited(self._requests.each(large, "nothing"))

    def drop_round(self, round: str) -> None:
        """End ``round`` without a result; later stages are refused. One message a server."""
        self._send(
            self._requests.to_all("end", barrier={"kind": "round", "name": round}), recorded=False
        )
