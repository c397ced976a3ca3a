"""Names of arrays, by which the next driver of a session finds them."""

from __future__ import annotations

from collections.abc import Mapping

from ps_backend.client.arrays import StoredArray
from ps_backend.client.kept_arrays import KeptArrays, type_of
from ps_backend.wire import ps_pb2 as pb


class PublishedArrays(KeptArrays):
    """What a client can ask that concerns names of arrays."""

    _settled = 0
    """The number of the list of names that all servers have; 0: none."""
    _newest = 0
    """The greatest number that a list was given."""

    def publish(self, arrays: Mapping[str, StoredArray]) -> None:
        """Let these be the arrays that have names, in place of those before. One message a server.

        They must not be freed until another list has been published. Either all servers have the
        new list then, or the one before counts.
        """
        self._publish(arrays, only=False)

    def take_published(self) -> dict[str, StoredArray]:
        """The arrays to which the driver before has given names; all others are freed.

        To be asked once, by who has taken over the session, before anything else. Two messages a
        server.
        """
        replies = self._send(self._requests.to_all("published"), recorded=False)
        lists = [{one.number: one for one in replies[k].publications} for k in replies]
        common = set.intersection(*(set(one) for one in lists))
        self._settled = max(common, default=0)
        self._newest = max((number for one in lists for number in one), default=0)
        found = lists[0].get(self._settled, pb.Publication())
        pairs = zip(found.names, found.arrays, strict=True)
        arrays = {name: StoredArray(one.buffer, type_of(one)) for name, one in pairs}
        self._publish(arrays, only=True)
        return arrays

    def _publish(self, arrays: Mapping[str, StoredArray], *, only: bool) -> None:
        self._newest += 1  # also where it fails: no two lists have one number
        given = pb.Publication(
            number=self._newest,
            names=list(arrays),
            arrays=[one.describe() for one in arrays.values()],
        )
        settled = self._settled
        self._send(self._requests.to_all("publish", given=given, settled=settled, only=only))
        self._settled = given.number
