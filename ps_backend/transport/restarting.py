"""A transport to a server that is started again at the same address if it dies."""

from __future__ import annotations

from collections.abc import Callable

from ps_backend.transport.base import Transport
from ps_backend.transport.following import Following, Location


class Restarting(Following):
    """Follows a server from life to life at one address.

    Nobody tells when a life ends: who hears that the session is not there any more says so.
    """

    def __init__(self, address: str, make: Callable[[str], Transport]) -> None:
        """``make`` connects to an address."""
        super().__init__(0, Location(address, 0), _Nowhere(), make)

    def begin_anew(self, generation: int) -> bool:
        """The server that was replaced so often is not there any more; there is one all the same.

        Whether the next is to be spoken to. Once for each.
        """
        with self._lock:
            if self._closed or self._location.generation != generation:
                return not self._closed
            self._location = Location(self.address, generation + 1)
            silent, _ = self._here
            self._here = self._make(self.address), self._location.life
        silent.close()
        return True


class _Nowhere:
    """A directory that knows of no other place."""

    def locate(self, server: int) -> Location | None:
        """None."""
