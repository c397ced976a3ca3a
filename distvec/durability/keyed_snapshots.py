"""Keyed spaces in checkpoints: copies that servers keep of them, and spaces as they were then.

They change in place, so a checkpoint has a copy: keys, and rows of all arrays in their order, as
they are saved by ``dv.save``. What has not changed since the one before lies in its files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np

from distvec.array.array import DistArray
from distvec.array.core.handle import SessionBase
from distvec.durability.keyed import (
    describe_fill,
    fill_of,
    filled_space,
    kept_document,
    kept_training,
)
from distvec.keyed.array import KeyedArray
from distvec.keyed.space import KeyedSpace
from ps_backend.client import Client, KeySpace, Source, SpaceCopy, SpaceState, WantedSpace
from ps_backend.durability.file_checksums import FileRange
from ps_backend.durability.file_ranges import bytes_of, read_rows
from ps_backend.durability.manifest import Kept
from ps_backend.durability.stores import Store
from ps_backend.errors import BufferLost, ServerLost
from ps_backend.program.initializers import Fill
from ps_backend.program.keys import Partition
from ps_backend.program.spaces import DenseSpace, RaggedSpace
from ps_backend.program.types import ArrayType, ValueType, array_type

_KEY = ValueType("int64")
_COUNTED = ValueType("int64", (2,))
_SKETCHED = ValueType("uint8")
"""Of the counters of keys that are not admitted yet."""

Pieces = Mapping[int, Mapping[int, FileRange]]
"""By id of the array, and by server."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A space in the files of a checkpoint."""

    marks: Sequence[int]
    """Of the content of each server."""
    pieces: Pieces


@dataclass(frozen=True, slots=True)
class HeldSpace:
    """A space whose copy the servers keep."""

    number: int
    about: Mapping[str, Any]
    """What the document of the checkpoint says of it."""
    types: Mapping[int, ArrayType]
    """Of its arrays, of the keys under its own number, and of the counters."""
    marks: Sequence[int]
    again: Sequence[int]
    """The same, with 0 where a server had an array that is not among these."""
    known: _Known | None
    """Where it lies as far as servers have copied nothing."""

    @property
    def copied(self) -> set[int]:
        """The servers that have a copy: on others it is what is ``known``."""
        if self.known is None:
            return set(range(len(self.marks)))
        pairs = zip(self.marks, self.known.marks, strict=True)
        return {server for server, (new, old) in enumerate(pairs) if new != old}

    @property
    def is_copied(self) -> bool:
        """Whether all of it can be written once more."""
        return len(self.copied) == len(self.marks)

    @property
    def nbytes(self) -> int:
        """What is to be written."""
        copied, servers = self.copied, len(self.marks)
        ranges = [(type, type.space.range_of(k, servers)) for type in self.types.values()
                  for k in copied]  # fmt: skip
        return sum((high - low) * type.width * type.dtype.itemsize for type, (low, high) in ranges)

    def joined(self, written: Mapping[int, Sequence[FileRange]]) -> Pieces:
        """Where all of it lies, with what was ``written`` of each array, by its id."""
        copied, servers = self.copied, len(self.marks)
        found = {}
        for id, type in self.types.items():
            fresh = _by_server(type, written.get(id, ()), servers)
            old = {} if self.known is None else self.known.pieces[id]
            found[id] = fresh | {
                k: _split_for_servers(piece, type, servers, k)
                for k, piece in old.items()
                if k not in copied
            }
        return found


@dataclass
class KeptSpaces:
    """Those of one session, in checkpoints of one directory."""

    session: SessionBase
    _known: dict[int, _Known] = field(default_factory=dict)
    """What the newest checkpoint has."""
    _counters: dict[int, int] = field(default_factory=dict)
    """By space: what its counters are called."""

    # --- kept -------------------------------------------------------------------------------------

    def wanted(self) -> list[WantedSpace]:
        """What servers are to copy: spaces that somebody has, where they have changed."""
        nothing = _Known((0,) * self.session.client.servers, {})
        return [
            WantedSpace(number, self._name_of_space(number), self._known.get(number, nothing).marks)
            for number in list(self.session.spaces)
        ]

    def _name_of_space(self, number: int) -> int:
        if number not in self._counters:
            self._counters[number] = self.session.client.new_id()
        return self._counters[number]

    def held(self, copies: Mapping[int, Sequence[SpaceCopy]]) -> list[HeldSpace]:
        """What they have copied, of spaces that somebody has still."""
        found = []
        for number, some in copies.items():
            space = self.session.spaces.get(number)
            if space is not None:
                found.append(self._held_space(space, some))
        return found

    def _held_space(self, space: KeyedSpace, copies: Sequence[SpaceCopy]) -> HeldSpace:
        number, options = space.number, space.options
        everywhere = set(copies[0].arrays).intersection(*(copy.arrays for copy in copies))
        arrays = {id: one for id, one in dict(space.arrays).items() if id in everywhere}
        keys = _ragged_space(copy.state.keys for copy in copies)
        types = {number: _type_over(keys, _KEY)}
        types |= {id: _type_over(keys, one.type) for id, one in arrays.items()}
        if (options["admit"] or 1) > 1:
            kind = _SKETCHED if options["sketch"] else _COUNTED
            types[self._name_of_space(number)] = _type_over(
                _ragged_space(copy.waiting for copy in copies), kind
            )
        trained = {id: one.trained for id, one in arrays.items()}
        ids = {id: id for id in arrays}
        about = {
            "number": number,
            "options": options,
            "arrays": {id: [describe_fill(one.init)] for id, one in arrays.items()},
            "trained": {
                id: kept_document(kept, ids)
                for id, kept in trained.items()
                if kept is not None and ids.keys() >= {one.number for one in kept.states.values()}
            },
            "counters": self._name_of_space(number),
            "states": [copy.state[3:] for copy in copies],
        }
        marks = [copy.mark for copy in copies]
        again = [copy.mark if arrays.keys() == set(copy.arrays) else 0 for copy in copies]
        return HeldSpace(number, about, types, marks, again, self._known.get(number))

    def lost(self, named: Mapping[str, KeyedArray], held: Iterable[HeldSpace]) -> list[str]:
        """Which of ``named``, and of what the checkpoint before has, servers have not any more."""
        there = {one.number: one.types for one in held}
        missing = [
            repr(name)
            for name, array in named.items()
            if array.number not in there.get(array.space.number, ())
        ]
        spaces = [n for n in list(self.session.spaces) if n in self._known and n not in there]
        return missing + [f"keyed space {number}" for number in spaces]

    def note(self, held: Iterable[HeldSpace], pieces: Mapping[int, Pieces]) -> None:
        """They are in the newest checkpoint now, in these ``pieces`` by their numbers."""
        self._known = {one.number: _Known(one.again, pieces[one.number]) for one in held}

    def forget(self) -> None:
        """The next checkpoint has all of them anew."""
        self._known = {}

    # --- brought back -----------------------------------------------------------------------------

    def give_back(
        self,
        abouts: Iterable[Mapping[str, Any]],
        kept: Mapping[int, Kept],
        store: Store,
        *,
        own: bool,
        undo: bool,
    ) -> dict[int, KeyedArray]:
        """Spaces as a checkpoint has them: their arrays, by the ids in it.

        ``own``: it is of this session, whose spaces are again what they were then, where they are
        lost in part, or all of them with ``undo``. Else new ones are made of arrays with names.
        """
        found: dict[int, KeyedArray] = {}
        for about in abouts:
            space = self.session.spaces.get(about["number"]) if own else None
            if space is None:
                found |= self._anew(about, kept, store)
                continue
            here = dict(space.arrays)
            if undo or not _is_whole(space):
                here = self._brought_back(space, about, kept, store)
            found |= {id: one for id, one in here.items() if id in kept}
        return found

    def _brought_back(
        self, space: KeyedSpace, about: Mapping[str, Any], kept: Mapping[int, Kept], store: Store
    ) -> dict[int, KeyedArray]:
        """The arrays of the space by id, among them those of which only the name was known."""
        alive = dict(space.arrays)
        arrays = []
        wanted = _select_arrays(about, kept, alive)
        for id, (fill, *_) in ((int(id), what) for id, what in about["arrays"].items()):
            if id in wanted and id not in alive:
                alive[id] = KeyedArray(space, id, kept[id].type.value, fill_of(fill))
            if id in alive:
                arrays.append((id, alive[id].init))
        for id, one in alive.items():
            if id in kept:
                _bring_back_optimizer(one, about.get("trained", {}).get(str(id)), alive)
        self._restore(space.remote, about, kept, arrays, store)
        return alive

    def refill(
        self,
        abouts: Iterable[Mapping[str, Any]],
        kept: Mapping[int, Kept],
        store: Store,
        client: Client,
    ) -> set[int]:
        """Spaces of this session on servers of ``client`` that have none, with all their arrays.

        What this process knows of them stays. Returns the ids of what belongs to keyed spaces.
        """
        ids: set[int] = set()
        for about in abouts:
            partition = Partition(about["options"]["length"])
            remote = client.key_space(about["number"], partition)
            arrays = [(int(id), fill_of(fill)) for id, (fill, *_) in about["arrays"].items()]
            self._restore(remote, about, kept, arrays, store)
            ids |= {about["number"], about["counters"], *map(int, about["arrays"])}
        return ids

    def _restore(
        self,
        remote: KeySpace,
        about: Mapping[str, Any],
        kept: Mapping[int, Kept],
        arrays: Sequence[tuple[int, Fill]],
        store: Store,
    ) -> None:
        number, counters, options = about["number"], about["counters"], about["options"]
        ids = [number, counters, *map(int, about["arrays"])]
        here = {id: kept[id] for id in ids if id in kept}
        states, suits = about["states"], kept[number].type.space.suits(remote.servers)
        if not suits:
            here, states = _cut_again(here, about, remote, store), _totals(states, remote.servers)
        marks = remote.restore(
            _source(here[number], store),
            [(_source(here[id], store), fill) for id, fill in arrays],
            _source(here[counters], store) if counters in here else None,
            [SpaceState(0, 0, 0, *state) for state in states],
            **{name: value or 0 for name, value in options.items() if name != "length"},
        )
        self._counters[number] = counters
        self._known.pop(number, None)
        if suits:
            pieces = {
                id: _by_server(one.type, one.pieces, remote.servers) for id, one in here.items()
            }
            self._known[number] = _Known(marks, pieces)

    def _anew(
        self, about: Mapping[str, Any], kept: Mapping[int, Kept], store: Store
    ) -> dict[int, KeyedArray]:
        ids = _select_arrays(about, kept, ())
        wanted = {id: what for id, what in about["arrays"].items() if int(id) in ids}
        if not wanted:
            return {}
        session = self.session
        leaves, sources = {}, []
        for id in (about["number"], *map(int, wanted)):
            type = kept[id].type
            dense = array_type(DenseSpace(type.space.length), type.dtype, type.row)
            buffer = session.new_buffer(dense)
            sources.append(Source(buffer.id, dense, store.url, kept[id].pieces))
            leaves[id] = DistArray(session, session.graph.leaf(buffer))
        session.client.load(sources)
        keys = leaves.pop(about["number"])
        fills = {int(id): fill for id, (fill, *_) in wanted.items()}
        arrays = filled_space(session, about["options"], fills, keys, leaves)
        for id, document in about.get("trained", {}).items():
            if int(id) in arrays:
                arrays[int(id)].trained = kept_training(document, arrays)
        return arrays


def _select_arrays(
    about: Mapping[str, Any], kept: Mapping[int, Kept], alive: Collection[int]
) -> set[int]:
    """The arrays that have names, or are ``alive``, and the states of their optimizers."""
    named = {id for id in map(int, about["arrays"]) if kept[id].names or id in alive}
    trained = (what for id, what in about.get("trained", {}).items() if int(id) in named)
    return named.union(*(what["states"].values() for what in trained))


def _bring_back_optimizer(
    array: KeyedArray, given: Mapping[str, Any] | None, arrays: Mapping[int, KeyedArray]
) -> None:
    """Let ``array`` have the optimizer that the checkpoint says, with its states of then."""
    now, then = array.trained, None if given is None else kept_training(given, arrays)
    if now is not None and then is not None and now.is_of(then):
        array.steps = then.calls  # it may have a function, which no file holds
    else:
        array.trained = then


def _is_whole(space: KeyedSpace) -> bool:
    try:
        space.remote.layout()
    except (ServerLost, BufferLost):
        return False
    return True


def _cut_again(
    kept: Mapping[int, Kept], about: Mapping[str, Any], remote: KeySpace, store: Store
) -> dict[int, Kept]:
    """The same rows, cut for as many servers as there are now.

    Keys and rows lie in the order of buckets, and each server has a range of buckets.
    """
    number, counters = about["number"], about["counters"]
    if about["options"]["sketch"] and counters in kept:
        raise NotImplementedError(
            "a keyed space with sketch= counts keys together that come to different servers, so it "
            "stays on as many servers as it was made for; use admit= without sketch="
        )
    keys = _cuts_of(kept[number], remote, store)
    found = {id: _with_cuts(one, keys) for id, one in kept.items() if id != counters}
    if counters in kept:
        found[counters] = _with_cuts(kept[counters], _cuts_of(kept[counters], remote, store))
    return found


def _cuts_of(kept: Kept, remote: KeySpace, store: Store) -> tuple[int, ...]:
    """Where the rows of each server begin, and those of the last one end; keys come first in rows.

    Reads some blocks of the file for each server.
    """
    length, servers, row = kept.type.space.length, remote.servers, np.empty(kept.type.width, "<i8")

    def holder(place: int) -> int:
        read_rows(
            store, kept.pieces, row.nbytes, place, bytes_of(row), f"keys of space {remote.number}"
        )
        return int(remote.partition.server_of(row[:1].astype(np.int64), servers)[0])

    places = range(length)
    inner = (bisect_left(places, server, key=holder) for server in range(1, servers))
    return (0, *inner, length)


def _with_cuts(kept: Kept, cuts: tuple[int, ...]) -> Kept:
    return replace(kept, type=_type_over(RaggedSpace(cuts[-1], 0, cuts), kept.type.value))


def _totals(states: Sequence[Sequence[int]], servers: int) -> list[list[int]]:
    """What has happened to the keys of all servers, told of the first one."""
    totals = [sum(counts) for counts in zip(*states, strict=True)]
    return [totals, *([0] * len(totals) for _ in range(servers - 1))]


def _source(kept: Kept, store: Store) -> Source:
    return Source(kept.id, kept.type, store.url, kept.pieces)


def _ragged_space(counts: Iterable[int]) -> RaggedSpace:
    """The space of what servers have so many of."""
    cuts = (0, *accumulate(counts))
    return RaggedSpace(cuts[-1], 0, cuts)


def _type_over(space: RaggedSpace, value: ValueType) -> ArrayType:
    return array_type(space, value.dtype, value.row)


def _by_server(type: ArrayType, pieces: Iterable[FileRange], servers: int) -> dict[int, FileRange]:
    """Pieces that are each a server's part of an array."""
    by_range = {(piece.low, piece.high): piece for piece in pieces if piece.low < piece.high}
    ranges = {server: type.space.range_of(server, servers) for server in range(servers)}
    return {k: by_range[low, high] for k, (low, high) in ranges.items() if (low, high) in by_range}


def _split_for_servers(piece: FileRange, type: ArrayType, servers: int, server: int) -> FileRange:
    """The same rows, which are others of the array by now, as other servers have more or fewer."""
    low, high = type.space.range_of(server, servers)
    return replace(piece, low=low, high=high)
