"""Checkpoints of a session: all its arrays as they are at one moment, copied while work goes on."""

from __future__ import annotations

import logging
import secrets
import threading
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from distvec.array.array import DistArray
from distvec.array.core.conversion import buffer_of
from distvec.array.core.handle import SessionBase, check_session
from distvec.durability.keyed_snapshots import HeldSpace, KeptSpaces
from distvec.graph.node import Buffer
from distvec.keyed.array import KeyedArray
from ps_backend.client import MOST_LOSSES, Client, Journal, Pinned, WantedSpace, hold_lock
from ps_backend.client.files import Source
from ps_backend.durability.checkpoint_directory import PART, BrokenOff, CheckpointDirectory, Found
from ps_backend.durability.manifest import Kept, Manifest
from ps_backend.durability.stores import Store, open_store
from ps_backend.errors import (
    CheckpointIncomplete,
    Corrupted,
    NotDurable,
    PSError,
    ServerLost,
    SessionFenced,
    StoreFailed,
)
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import ArrayType, array_type, dtype_of


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that is there, and was read back."""

    path: str
    number: int
    arrays: int
    """How many it holds."""
    nbytes: int
    """What was written for it; arrays that the one before has are not written again."""
    seconds: float
    """From the moment that it shows until it was there."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a checkpoint gave back."""

    path: str
    number: int
    arrays: dict[str, Any]
    """Plain ones, and keyed ones."""
    document: Any

    def __getitem__(self, name: str) -> Any:
        if name not in self.arrays:
            known = ", ".join(sorted(self.arrays)) or "none"
            raise KeyError(f"{self.path} has no array called {name!r}; it has {known}")
        return self.arrays[name]


T = TypeVar("T")

Start = Callable[[Callable[[], Checkpoint]], "Future[Checkpoint]"]
"""Runs what writes a checkpoint, beside the work."""


def in_thread(write: Callable[[], Checkpoint]) -> Future[Checkpoint]:
    """Run ``write`` in a thread of its own, which does not keep the process alive."""
    future: Future[Checkpoint] = Future()

    def run(future: Future[Checkpoint]) -> None:
        try:
            future.set_result(write())
        except BaseException as error:  # noqa: BLE001 - raised by future.result()
            future.set_exception(error)
        finally:  # the error's traceback has this frame: a future in it would keep the error
            del future

    name = "distvec-checkpoint"
    threading.Thread(target=run, args=(future,), name=name, daemon=True).start()
    return future


_LOG = logging.getLogger(__name__)

_ATTEMPTS = 2
"""A file that could not be written, or not be made durable, is written anew, under another name."""


class Checkpoints:
    """Those of one session in one directory, a path that all machines see or a URL. Thread-safe.

    One is written at a time, by a thread of its own.
    """

    def __init__(
        self,
        session: SessionBase,
        directory: str,
        *,
        start: Start = in_thread,
        open_store: Callable[[str], Store] = open_store,
    ) -> None:
        """``start`` runs what writes; ``open_store``: the store at a path or URL."""
        self.session = session
        self.store = open_store(directory)
        self._folder = CheckpointDirectory(self.store)
        self._known: dict[int, Kept] = {}
        """What the newest one that this object wrote, or gave back to its session, holds."""
        self._spaces = KeptSpaces(session)
        """Of keyed spaces the same."""
        self._start = start
        self._writing: Future[Checkpoint] | None = None
        self.is_base = False
        """Does the session recover by the newest one here, and the requests since then?"""
        self.newest: tuple[float, Checkpoint] | None = None
        """The last one that was written here, and the Unix time of its end."""
        self._beginning = threading.RLock()
        self._lock = threading.RLock()

    # --- writing --------------------------------------------------------------------------------

    def begin(
        self,
        number: int,
        arrays: Mapping[str, Any],
        document: Any = None,
        *,
        resumable: bool = True,
    ) -> Future[Checkpoint]:
        """Begin one that holds all arrays of the session as they are now, ``arrays`` by name.

        ``number``: its own for whoever restores; ``document``: what JSON can hold; ``resumable``:
        the run goes on in the same steps as one that resumes from here. The values are
        computed first; then it takes one message a server, in which they copy keyed spaces that
        have changed, and the rest goes on beside the work. ``OutOfBudget`` without room for copies.
        Waits for the one that is being written. ``ServerLost`` if one of ``arrays``, or one that
        the checkpoint before has, was lost with a server: it would be missing.
        """
        for name, array in arrays.items():
            owner = array.space if isinstance(array, KeyedArray) else array
            check_session(self.session, owner, f"checkpoint({name}=...)")
        keyed = {name: one for name, one in arrays.items() if isinstance(one, KeyedArray)}
        plain = {name: one for name, one in arrays.items() if name not in keyed}
        return self._healed(lambda: self._begin(number, plain, keyed, document, resumable))

    def write(
        self,
        number: int,
        arrays: Mapping[str, Any],
        document: Any = None,
        *,
        resumable: bool = True,
    ) -> Checkpoint:
        """As ``begin``, and wait for it."""

        def attempt() -> Checkpoint:
            try:
                return self.begin(number, arrays, document, resumable=resumable).result()
            finally:  # its error is told here
                self.settle()

        return self._healed(attempt)

    @property
    def _journal(self) -> Journal | None:
        return self.session.client.journal

    def _healed(self, attempt: Callable[[], T]) -> T:
        """Call ``attempt``, and again after each loss that the session recovers from."""
        journal = self._journal
        if journal is None:
            return attempt()
        for _ in range(MOST_LOSSES):
            seen = journal.recoveries
            try:
                return attempt()
            except ServerLost as error:
                journal.heal(error, seen)
        return attempt()

    def _begin(
        self,
        number: int,
        plain: Mapping[str, Any],
        keyed: Mapping[str, KeyedArray],
        document: Any,
        resumable: bool,
    ) -> Future[Checkpoint]:
        began = time.perf_counter()
        client, pin = self.session.client, f"checkpoint {secrets.token_hex(8)}"
        self.settle()  # handlers of signals need not wait for this
        with hold_lock(self._beginning):
            self.settle()
            try:
                with self.session.quiesce():
                    values, ids, held = self._compute_values(plain)
                    if resumable:
                        self.session.holders.forget_products()
                    mark, (found, copies) = self._pin(pin)
                    spaces = self._spaces.held(copies)
                    self._find_missing(ids, found, self._spaces.lost(keyed, spaces))
                about = {"values": values, "document": document}
                about["spaces"] = [one.about for one in spaces]
                numbers = {name: one.number for name, one in keyed.items()}
                numbers |= {name: buffer.id for name, buffer in ids.items()}
                task = _Task(number, pin, mark, found, spaces, _names(numbers), about, began)
                future = self._start(lambda: self._written(task))
            except BaseException:
                with suppress(PSError):
                    client.unpin(pin)
                raise
            del held  # its buffers are pinned
            with self._lock:
                self._writing = future
        return future

    def _pin(self, pin: str) -> tuple[int, Pinned]:
        """Pin all arrays; the number of requests that made them, and the pinned arrays."""
        client, journal = self.session.client, self._journal
        if journal is None:
            return 0, client.pin(pin, self._spaces.wanted())
        with journal.alone():
            mark, pinned = journal.mark(), client.pin(pin, self._spaces.wanted())
            if client.lives != journal.lives and not journal.gave_up:
                raise ServerLost("no checkpoint is made: a server was lost with its arrays")
            if self.is_base:
                journal.lives, journal.gave_up = client.lives, False
        return mark, pinned

    def begin_anew(self) -> None:
        """Forget what ``begin`` forgets, and write nothing."""
        with self.session.quiesce():
            self.session.holders.forget_products()

    def _compute_values(self, arrays: Mapping[str, Any]) -> tuple[Any, dict[str, Buffer], Any]:
        """Of ``arrays`` the values of small ones, the buffers of others, and what holds these."""
        small = {name: array for name, array in arrays.items() if array.node.on_client}
        values = {name: _encode(array.numpy()) for name, array in small.items()}
        held = {name: array.copy() for name, array in arrays.items() if name not in small}
        return values, {name: buffer_of(array) for name, array in held.items()}, held

    def _find_missing(
        self, named: Mapping[str, Buffer], found: dict[int, ArrayType], spaces: Sequence[str]
    ) -> None:
        """``ServerLost`` where something is missing in what was ``found`` on the servers."""
        client = self.session.client
        for buffer in named.values():
            if not buffer.type.space.holders(client.servers):  # it is empty
                found.setdefault(buffer.id, buffer.type)
        lost = [repr(name) for name, buffer in named.items() if buffer.id not in found]
        alive = self.session.holders.buffers()
        lost += [f"buffer {id}" for id in alive if id in self._known and id not in found]
        lost += spaces
        if lost:
            where = client.resume_from
            error = ServerLost(
                f"no checkpoint is made, as it would lack {', '.join(lost[:5])}: lost with a "
                f"server; " + (f"restore({where!r})" if where else "make these arrays again")
            )
            error.resume_from = where
            raise error

    def wanted_spaces(self) -> list[WantedSpace]:
        """The keyed spaces of the session, with their marks in the newest one here."""
        return self._spaces.wanted()

    @property
    def spares(self) -> tuple[str, ...]:
        """The files in the directory that no checkpoint needs, and that the next may take."""
        return self._folder.spares

    @property
    def is_writing(self) -> bool:
        """Whether one is being written."""
        return self._writing is not None and not self._writing.done()

    def settle(self) -> Exception | None:
        """Wait for the one that is being written; what went wrong with it, told once."""
        future = self._writing
        error = None if future is None else future.exception()
        with self._lock:
            if self._writing is not future:  # another thread was told
                return None
            self._writing = None
        if error is None or isinstance(error, Exception):
            return error
        raise error

    def end(self) -> Exception | None:
        """As ``settle``, and no file stays there that only a next one would have used."""
        error = self.settle()
        if self.spares:
            try:
                self._folder.collect()
            except (StoreFailed, SessionFenced) as trouble:
                _LOG.warning("spare files of checkpoints stay: %s", trouble)
        return error

    def clear(self) -> None:
        """Remove all that are there. ``StoreFailed`` where that cannot be."""
        self.settle()
        self._folder.clear()
        self._known = {}
        self._spaces.forget()

    def forget_spaces(self) -> None:
        """The next one copies all keyed spaces: other servers have them now."""
        self._spaces.forget()

    def remove(self) -> None:
        """Remove all that are there, and the directory if nothing else is in it."""
        try:
            self.clear()
            self.store.delete("")
        except (OSError, PSError) as error:
            _LOG.warning("files of a checkpoint stay in %s: %s", self.store.url, error)

    def _written(self, task: _Task) -> Checkpoint:
        with nullcontext() if self._journal is None else self._journal.without():
            return self._written_whole(task)

    def _written_whole(self, task: _Task) -> Checkpoint:
        try:
            written = self._write(task)
            self.newest = time.time(), written
            return written
        except StoreFailed:  # the next one may fit only due to the present files
            raise
        except BaseException:
            self._known = {}  # whatever is wrong there, the next one is whole by itself
            self._spaces.forget()
            raise
        finally:
            with suppress(PSError):
                self.session.client.unpin(task.pin)

    def _write(self, task: _Task) -> Checkpoint:
        for attempt in range(_ATTEMPTS):
            try:
                name, kept, nbytes = self._try(task)
                break
            except (StoreFailed, CheckpointIncomplete, Corrupted) as error:
                again = isinstance(error, StoreFailed) or all(one.is_copied for one in task.spaces)
                if attempt + 1 == _ATTEMPTS or not again:
                    raise
                if not isinstance(error, StoreFailed):
                    self._known = {}  # somebody removed files of an older one
        self._known = {one.id: one for one in kept}
        if self.is_base and self._journal is not None:
            self._journal.cut(task.mark, name)
        self.session.client.resume_from = self.store.url
        try:
            self._folder.collect(spare=True)
        except StoreFailed as error:
            _LOG.warning("older checkpoints stay for now: %s", error)
        return Checkpoint(
            path=f"{self.store.url}/{name}",
            number=task.number,
            arrays=len(kept),
            nbytes=nbytes,
            seconds=time.perf_counter() - task.began,
        )

    def _try(self, task: _Task) -> tuple[str, list[Kept], int]:
        """Write it under a new name: the name, what it holds, and the bytes of what was new."""
        known = {id: kept for id, kept in self._known.items() if id in task.found}
        fresh = {id: type for id, type in task.found.items() if id not in known}
        name = self._folder.new()
        try:
            return self._fill(name, task, known, fresh)
        except BaseException:
            self._folder.discard(name)
            raise

    def _fill(
        self,
        name: str,
        task: _Task,
        known: Mapping[int, Kept],
        fresh: Mapping[int, ArrayType],
    ) -> tuple[str, list[Kept], int]:
        only = {id: one.copied for one in task.spaces for id in one.types}
        types = {id: type for one in task.spaces for id, type in one.types.items()}
        pieces = self._save(name, task.pin, {**fresh, **types}, only)
        lie = {one.number: one.joined(pieces) for one in task.spaces}
        kept = []
        for id, type in task.found.items():
            where = known[id].pieces if id in known else pieces[id]
            kept.append(Kept(id, tuple(task.names.get(id, ())), type, where))
        for one in task.spaces:
            for id, by_server in lie[one.number].items():
                where = tuple(by_server.values())
                kept.append(Kept(id, tuple(task.names.get(id, ())), types[id], where))
        session = self.session.client.origin
        self._folder.commit(name, Manifest(tuple(kept), task.about, session, task.number))
        self._spaces.note(task.spaces, lie)
        written = sum(map(_nbytes, fresh.values())) + sum(one.nbytes for one in task.spaces)
        return name, kept, written

    def _save(
        self,
        name: str,
        pin: str,
        arrays: Mapping[int, ArrayType],
        only: Mapping[int, Collection[int]],
    ) -> dict[int, Any]:
        servers = self.session.client.servers
        files = [f"{name}/{PART}{k:05d}-of-{servers:05d}.safetensors" for k in range(servers)]
        names = {id: f"#{id}" for id in arrays}
        return self.session.client.save(
            arrays, names, self.store.url, files, pin=pin, spares=self.spares, only=only
        )

    # --- reading --------------------------------------------------------------------------------

    def restore(self, *, undo: bool = True) -> Restored | None:
        """The newest that is whole: brings back what arrays of the session stand for, and by name.

        In the session that wrote it, every array that stands for a value of then has it again, on
        whichever servers there are now; what was made later and lost stays lost. Keyed spaces,
        which change in place, are as they were then, on all servers; without ``undo`` only those of
        which a server has lost its part. None if there is none. Where files of the newest are
        damaged or gone, the one before is taken, with a warning ``NotDurable``. Raises
        ``CheckpointIncomplete``, ``Corrupted``, ``StoreFailed``, ``OutOfBudget``.
        """
        self.settle()
        troubles: list[Exception] = []
        unread: list[Exception] = []
        with self.session.quiesce():
            for found in self._folder.each():
                if not isinstance(found, Found):
                    troubles.append(found)
                    continue
                try:
                    restored = self._give_back(found, undo=undo)
                except (CheckpointIncomplete, Corrupted, StoreFailed) as error:
                    troubles.append(error)
                    unread.append(error)
                    continue
                self._warn_of(troubles, restored.path)
                return restored
        if not troubles:
            return None
        told = f"{self.store.url} holds no whole checkpoint: " + "; ".join(map(str, troubles))
        if all(isinstance(error, BrokenOff) for error in troubles):
            raise BrokenOff(told)
        raise type(next(iter(unread), CheckpointIncomplete()))(told)

    def refill(self, name: str, client: Client | None = None) -> None:
        """Load all arrays of the checkpoint of that name on empty servers; without a name, none.

        On those of the session, or on those of ``client``, which may be more or fewer. Handles of
        this process stay as they are. Raises as ``restore``.
        """
        if not name:
            return
        client = client or self.session.client
        manifest = self._folder.read(name).manifest
        kept = {one.id: one for one in manifest.arrays}
        abouts = manifest.document.get("spaces", [])
        keyed = self._spaces.refill(abouts, kept, self.store, client)
        self._load(
            {
                id: one
                for id, one in kept.items()
                if id not in keyed and one.type.space.suits(client.servers)
            },
            client,
        )

    def _warn_of(self, troubles: list[Exception], taken: str) -> None:
        damaged = [str(error) for error in troubles if not isinstance(error, BrokenOff)]
        if damaged:
            warnings.warn(f"{taken} is taken, an older checkpoint, as the newest is damaged: "
                          f"{'; '.join(damaged)}", NotDurable, stacklevel=4)  # fmt: skip

    def _give_back(self, found: Found, *, undo: bool) -> Restored:
        manifest, client = found.manifest, self.session.client
        self.session.holders.forget_products()
        own = manifest.session == client.origin
        alive = self.session.holders.buffers() if own else {}
        kept = {one.id: one for one in manifest.arrays}
        self._load({id: kept[id] for id in alive if id in kept})
        abouts = manifest.document.get("spaces", [])
        keyed = self._spaces.give_back(abouts, kept, self.store, own=own, undo=undo)
        of_spaces = {int(id) for about in abouts for id in about["arrays"]}
        named = [one for one in manifest.arrays if one.names and one.id not in of_spaces]
        nodes, fresh = {}, {}
        for one in named:
            if one.id in alive:
                nodes[one.id] = self.session.graph.leaf(alive[one.id])
            else:
                buffer = self.session.new_buffer(one.type if own else _as_dense(one.type))
                fresh[buffer.id] = Kept(buffer.id, (), buffer.type, one.pieces)
                nodes[one.id] = self.session.graph.leaf(buffer)
        self._load(fresh)
        arrays: dict[str, Any] = {
            name: DistArray(self.session, nodes[one.id]) for one in named for name in one.names
        }
        arrays |= {name: one for id, one in keyed.items() for name in kept[id].names}
        arrays |= {
            name: DistArray(self.session, self._small(*value))
            for name, value in manifest.document["values"].items()
        }
        if own:
            self._known = kept
            client.resume_from = self.store.url
        return Restored(
            f"{self.store.url}/{found.name}",
            manifest.number,
            arrays,
            manifest.document["document"],
        )

    def _load(self, arrays: Mapping[int, Kept], client: Client | None = None) -> None:
        (client or self.session.client).load(
            Source(id, one.type, self.store.url, one.pieces) for id, one in arrays.items()
        )

    def _small(self, dtype: str, shape: list[int], data: str) -> Any:
        kind = dtype_of(dtype)
        values = np.frombuffer(bytes.fromhex(data), kind).reshape(shape)
        return self.session.graph.client_value(values, kind)


@dataclass(frozen=True, slots=True)
class _Task:
    """What a thread is to write."""

    number: int
    pin: str
    mark: int
    found: Mapping[int, ArrayType]
    spaces: Sequence[HeldSpace]
    names: Mapping[int, list[str]]
    about: Any
    began: float


def _names(ids: Mapping[str, int]) -> dict[int, list[str]]:
    """The names of each array, by its id."""
    names: dict[int, list[str]] = {}
    for name, id in ids.items():
        names.setdefault(id, []).append(name)
    return names


def _encode(values: np.ndarray) -> list[Any]:
    array = np.asarray(values)
    return [array.dtype.name, list(array.shape), np.ascontiguousarray(array).tobytes().hex()]


def _nbytes(type: ArrayType) -> int:
    return type.space.length * type.width * type.dtype.itemsize


def _as_dense(type: ArrayType) -> ArrayType:
    """The type for any number of servers."""
    return array_type(DenseSpace(type.space.length), type.dtype, type.row)
