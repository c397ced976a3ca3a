"""Which life of a server this process is, and whether it may still answer."""

from __future__ import annotations

import math

from ps_backend.errors import EpochFenced


class Incarnation:
    """The number of a server's life, and the moment until which it may answer.

    Whoever keeps servers running numbers their lives from 1, and clients say which life they mean.
    A process that was cut off or stopped, while another one took its place, may be there again, or
    still: it must do nothing any more. So it may answer for a limited time only, which whoever
    keeps it extends (as long as nobody else may have been started), by the clock
    ``time.monotonic``, which all processes of a machine share. Number 0 is of a server that nobody
    replaces: it answers all, for ever.
    """

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.until = math.inf
        """It may answer until then."""

    def refuse(self, meant: int, now: float) -> None:
        """Raise ``EpochFenced`` if a request that means life ``meant`` (0: any) must not be done.

        To be asked where ``meant`` is another number, or ``now`` is late.
        """
        if now > self.until:
            raise self.ended()
        if self.number and meant and meant != self.number:
            raise EpochFenced(
                f"this is life {self.number} of the server, and the request is for life {meant}"
            )

    def ended(self) -> EpochFenced:
        """What is said to whom it may not answer any more."""
        return EpochFenced(
            f"life {self.number} of this server is over, or was not confirmed in time: another may "
            "have taken its place"
        )
