"""Names of arrays on the servers, by which another driver of the session finds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from distvec.array.array import DistArray
from distvec.array.core.conversion import buffer_of
from distvec.array.core.handle import SessionBase, check_session
from distvec.array.core.shapes import on_servers
from distvec.graph.node import Buffer
from ps_backend.client import StoredArray
from ps_backend.errors import PSError


class Names:
    """The published arrays of one session. Not thread-safe."""

    def __init__(self, session: SessionBase, title: str | None) -> None:
        """Create the names of a session; ``publish`` needs its ``title``."""
        self.title = title
        self._session = session
        self._arrays: dict[str, DistArray] = {}  # held, so that their buffers stay

    def publish(self, changes: Mapping[str, DistArray | None]) -> None:
        """Give evaluated arrays names on all servers, or on no server; ``None`` removes a name."""
        if self.title is None:
            raise PSError(
                "publish() needs a session with a name, as the next driver finds it by that: open "
                "it with distvec.connect(addresses, token=..., name='run7')"
            )
        arrays = dict(self._arrays)
        for name, array in changes.items():
            if array is None:
                arrays.pop(name, None)
                continue
            check_session(self._session, array, f"publish({name}=...)")
            if not array.ndim:
                raise TypeError(
                    f"publish({name}=...): a scalar is stored on the client; publish an array of "
                    f"length 1: publish({name}=ps.array([{name}]))"
                )
            held = on_servers(array)
            arrays[name] = held
        self._send(arrays)
        self._arrays = arrays

    def publish_again(self) -> None:
        """Tell servers that took the place of others, too."""
        if self._arrays:
            self._send(self._arrays)

    def _send(self, arrays: Mapping[str, DistArray]) -> None:
        stored = {}
        for name, held in arrays.items():
            buffer = buffer_of(held)
            stored[name] = StoredArray(buffer.id, buffer.type)
        self._session.client.publish(stored)

    def take(self) -> None:
        """Take over the arrays that the previous driver published; its other arrays are freed."""
        client, graph = self._session.client, self._session.graph
        self._arrays = {
            name: DistArray(self._session, graph.leaf(Buffer(one.buffer, one.type, client.free)))
            for name, one in client.take_published().items()
        }

    def __getitem__(self, name: str) -> DistArray:
        found = self._arrays.get(name)
        if found is None:
            known = ", ".join(sorted(self._arrays)) or "none"
            raise KeyError(f"no array was published as {name!r}; published arrays: {known}")
        copy: DistArray = found.copy()
        return copy

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._arrays))
