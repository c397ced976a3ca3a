"""The driver's session as keyed arrays have it in a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from distvec.spark.access import Access, join
from ps_backend.client import Client, Counters


@dataclass(frozen=True)
class JoinedSession:
    """What rows of keys need of a session; this process joins it with the first message.

    All that computes with whole arrays is the driver's.
    """

    access: Access

    @property
    def client(self) -> Client:
        """This process's client of the session. Raises ``ServerLost``."""
        return join(self.access)

    @property
    def counters(self) -> Counters:
        """What this process has sent, in all."""
        return self.client.counters

    def joinable(self) -> JoinedSession:
        """For a copy in one more process."""
        return self

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"a task has no session to compute in (.{name}): there, pull, push, assign, apply to "
            "and remove chosen keys; expressions over whole arrays, as w @ w, are for the driver",
            name=name,
            obj=self,
        )
