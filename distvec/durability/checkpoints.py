"""Checkpoints of a session: all its arrays as they are at one moment, copied while work goes on.

Buffers never change and no id is used twice. So all that is needed is that no program writes over
what is being copied, a checkpoint writes only buffers that the one before has not, and after a loss
the old ids bring back what arrays stand for.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from distvec.array.dist_array import DistArray
from distvec.array.handle import Home, check_session
from distvec.array.values import buffer_of
from ps_backend.client.kept_arrays import Source
from ps_backend.durability.folder import Folder
from ps_backend.durability.manifest import Kept, Manifest
from ps_backend.durability.stores import open_store
from ps_backend.errors import PSError, StoreFailed
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import ArrayType, array_type, dtype_of

_ATTEMPTS = 2
"""A file that could not be written, or not be made durable, is written anew, under another name."""


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
    arrays: dict[str, DistArray]
    document: Any

    def __getitem__(self, name: str) -> DistArray:
        if name not in self.arrays:
            known = ", ".join(sorted(self.arrays)) or "none"
            raise KeyError(f"{self.path} has no array called {name!r}; it has {known}")
        return self.arrays[name]


class Checkpoints:
    """Those of one session in one directory, a path that all machines see or a URL. Thread-safe.

    One is written at a time, by a thread of its own.
    """

    def __init__(self, session: Home, directory: str) -> None:
        self.session = session
        self.store = open_store(directory)
        self._folder = Folder(self.store)
        self._known: dict[int, Kept] = {}
        """What the newest one that this object wrote, or gave back to its session, holds."""
        self._writing: Future[Checkpoint] | None = None
        self._lock = threading.Lock()

    # --- writing --------------------------------------------------------------------------------

    def begin(
        self, number: int, arrays: Mapping[str, Any], document: Any = None
    ) -> Future[Checkpoint]:
        """Begin one that holds all arrays of the session as they are now, ``arrays`` by name.

        ``number``: its own for whoever restores; ``document``: what JSON can hold. The values are
        computed first; then it takes one message a server, and the rest goes on beside the work.
        Waits for the one that is being written.
        """
        for name, array in arrays.items():
            check_session(self.session, array, f"checkpoint({name}=...)")
        began = time.perf_counter()
        self.settle()
        small = {name: array for name, array in arrays.items() if array.node.on_client}
        values = {name: _encode(array.numpy()) for name, array in small.items()}
        held = {name: array.copy() for name, array in arrays.items() if name not in small}
        ids = {name: buffer_of(array).id for name, array in held.items()}
        pin = f"checkpoint {secrets.token_hex(8)}"
        found = self.session.client.pin(pin)
        names: dict[int, list[str]] = {}
        for name, id in ids.items():
            names.setdefault(id, []).append(name)
        about = {"values": values, "document": document}
        task = _Task(number, pin, found, names, about, began)
        future: Future[Checkpoint] = Future()
        with self._lock:
            self._writing = future

        def write() -> None:
            try:
                try:
                    made = self._write(task)
                finally:
                    with suppress(PSError):
                        self.session.client.unpin(pin)
            except BaseException as error:  # noqa: BLE001 - handed over to who waits
                self._known = {}  # whatever is wrong there, the next one is whole by itself
                future.set_exception(error)
            else:
                future.set_result(made)

        threading.Thread(target=write, name="distvec-checkpoint", daemon=True).start()
        return future

    @property
    def is_writing(self) -> bool:
        """Whether one is being written."""
        return self._writing is not None and not self._writing.done()

    def settle(self) -> Exception | None:
        """Wait for the one that is being written; what went wrong with it, told once."""
        with self._lock:
            future, self._writing = self._writing, None
        error = None if future is None else future.exception()
        if error is None or isinstance(error, Exception):
            return error
        raise error

    def _write(self, task: _Task) -> Checkpoint:
        known = {id: kept for id, kept in self._known.items() if id in task.found}
        fresh = {id: type for id, type in task.found.items() if id not in known}
        for attempt in range(_ATTEMPTS):
            name = self._folder.new()
            try:
                pieces = self._save(name, task.pin, fresh)
                break
            except StoreFailed:
                if attempt + 1 == _ATTEMPTS:
                    raise
        kept = []
        for id, type in task.found.items():
            where = known[id].pieces if id in known else pieces[id]
            kept.append(Kept(id, tuple(task.names.get(id, ())), type, where))
        session = self.session.client.session
        manifest = Manifest(tuple(kept), task.about, session, task.number)
        self._folder.commit(name, manifest)
        self._known = {one.id: one for one in kept}
        self.session.client.resume_from = self.store.url
        self._folder.collect()
        return Checkpoint(
            path=f"{self.store.url}/{name}",
            number=task.number,
            arrays=len(kept),
            nbytes=sum(map(_nbytes, fresh.values())),
            seconds=time.perf_counter() - task.began,
        )

    def _save(self, name: str, pin: str, arrays: Mapping[int, ArrayType]) -> dict[int, Any]:
        servers = self.session.client.servers
        files = [f"{name}/part-{k:05d}-of-{servers:05d}.safetensors" for k in range(servers)]
        names = {id: f"#{id}" for id in arrays}
        return self.session.client.save(arrays, names, self.store.url, files, pin=pin)

    # --- reading --------------------------------------------------------------------------------

    def restore(self) -> Restored | None:
        """The newest that is whole: brings back what arrays of the session stand for, and by name.

        In the session that wrote it, every array that stands for a value of then has it again, on
        whichever servers there are now; what was made later and lost stays lost. None if there is
        none. Raises ``CheckpointIncomplete``, ``Corrupted``, ``StoreFailed``, ``OutOfBudget``.
        """
        self.settle()
        found = self._folder.newest()
        if found is None:
            return None
        manifest, client = found.manifest, self.session.client
        own = manifest.session == client.session
        alive = self.session.holders.buffers() if own else {}
        kept = {one.id: one for one in manifest.arrays}
        self._load({id: kept[id] for id in alive if id in kept})
        named = [one for one in manifest.arrays if one.names]
        nodes, fresh = {}, {}
        for one in named:
            if one.id in alive:
                nodes[one.id] = self.session.graph.leaf(alive[one.id])
            else:
                buffer = self.session.new_buffer(one.type if own else _as_dense(one.type))
                fresh[buffer.id] = Kept(buffer.id, (), buffer.type, one.pieces)
                nodes[one.id] = self.session.graph.leaf(buffer)
        self._load(fresh)
        arrays = {
            name: DistArray(self.session, nodes[one.id]) for one in named for name in one.names
        }
        arrays |= {
            name: DistArray(self.session, self._small(*value))
            for name, value in manifest.document["values"].items()
        }
        if own:
            self._known = kept
        return Restored(
            f"{self.store.url}/{found.name}",
            manifest.number,
            arrays,
            manifest.document["document"],
        )

    def _load(self, arrays: Mapping[int, Kept]) -> None:
        self.session.client.load(
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
    found: Mapping[int, ArrayType]
    names: Mapping[int, list[str]]
    about: Any
    began: float


def _encode(values: np.ndarray) -> list[Any]:
    array = np.asarray(values)
    return [array.dtype.name, list(array.shape), np.ascontiguousarray(array).tobytes().hex()]


def _nbytes(type: ArrayType) -> int:
    return type.space.length * type.width * type.dtype.itemsize


def _as_dense(type: ArrayType) -> ArrayType:
    """The type for any number of servers."""
    return array_type(DenseSpace(type.space.length), type.dtype, type.row)
