"""Buffers to files, and back: each server its own rows, as they are while programs go on."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from ps_backend import limits
from ps_backend.durability.file_checksums import FileRange, unit_of
from ps_backend.durability.file_ranges import Rows, bytes_of, read_rows, write_into, write_part
from ps_backend.durability.stores import Store as FileStore
from ps_backend.errors import BufferLost, StoreFailed, StoreUnseen
from ps_backend.limits import check, check_name
from ps_backend.server.bounds import verify_array
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.sessions import ServerSession
from ps_backend.server.state.files import OwnFiles
from ps_backend.server.state.keyed.space import SnapshotRows, SpaceSnapshot, take_snapshot
from ps_backend.server.state.store import Buffer, Part
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import decode_piece, encode_array, encode_piece
from ps_backend.wire.keyed import encode_copy
from ps_backend.wire.protocol import GoneBefore

_MOST_OFFSET = 1 << 53
"""Bytes of a file, about: all that an array may have."""


def _bounds(body: pb.Save | pb.Load) -> None:
    check("arrays", len(body.arrays), 0, limits.MOST_VALUES)
    if isinstance(body, pb.Save):
        check("spare files", len(body.spares), 0, limits.MOST_VALUES)
    for one in body.arrays:
        verify_array(one if isinstance(one, pb.Array) else one.array)


def _pin_bounds(body: pb.Pin) -> None:
    check_name("name", body.name)
    check("keyed spaces", len(body.spaces), 0, limits.MOST_VALUES)


@command(_pin_bounds, repeatable=True)
def pin(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Keep the buffers of now as they are, and copies of keyed spaces; which these are.

    Or keep them no longer.
    """
    name = session.pin_name(request.client, request.pin.name)
    if request.pin.over:
        session.keyed.pins.drop(name)
        session.store.pins.drop(name)
        return Response(pb.Reply())
    was_kept = session.store.pins.get(name) is not None
    kept = session.store.pin(name)
    arrays = [encode_array(number, one.part.type) for number, one in kept.items()]
    copies = session.keyed.pins.get(name)
    if copies is None:
        try:
            copies = session.keyed.pins.keep(name, _copies(session, request.pin.spaces))
        except BaseException:
            if not was_kept:  # a request that is refused changes nothing
                session.store.pins.drop(name)
            raise
    spaces = [encode_copy(number, one.about) for number, one in copies.items()]
    return Response(pb.Reply(pinned=pb.Pinned(arrays=arrays, spaces=spaces)))


@command(_bounds, repeatable=True, waits=True)
def save(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Write this server's rows of arrays to a file; where they are in it, with their checksums."""
    body = request.save
    check_name("file", body.file)
    if body.offsets and not body.head:
        raise ValueError("rows need a file that has a head; pass head=")
    for offset in body.offsets:
        check("offset", offset, len(body.head), _MOST_OFFSET)
    found = _kept_buffers(session, request.client, body.pin) if body.pin else {}
    copies = _kept_rows(session, request.client, body.pin) if body.pin else {}
    rows = []
    for array, name in zip(body.arrays, body.names, strict=True):
        part = session.part(array)
        copy = copies.get(array.buffer)
        values = copy.of(part) if copy else session.store.get(array.buffer, part, found).array
        unit, width = unit_of(part.type.space), part.type.width * part.type.dtype.itemsize
        rows.append(Rows(name, np.ascontiguousarray(values), part.low, unit, width))
    with _name_failures(session, f"{body.store}: {body.file}"):
        store = session.host.open_store(body.store)
        if body.offsets:
            pieces = write_into(store, body.file, rows, body.offsets, body.head)
        else:
            pieces = _write_new(session.files, store, body.file, rows, body.spares)
    return Response(pb.Reply(saved=map(encode_piece, pieces)))


@command(_bounds, repeatable=True, waits=True)
def load(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Make buffers of this server's rows of what was saved, but for those that are here."""
    store, missing = session.store, {}
    for one in request.load.arrays:
        part = session.part(one.array)
        try:
            store.get(one.array.buffer, part)
        except BufferLost:
            missing[one.array.buffer] = part, one
    fresh = store.new([part for part, _ in missing.values()], "loading arrays")
    buffers = dict(zip(missing, fresh, strict=True))
    for number, (part, one) in missing.items():
        read_saved(session, one, part, buffers[number])
    store.fill(buffers)
    return Response(pb.Reply())


def read_saved(session: ServerSession, saved: pb.Saved, part: Part, into: Buffer) -> None:
    """Read this server's rows of what was saved, and check them."""
    pieces: list[FileRange] = [decode_piece(piece) for piece in saved.pieces]
    width = part.type.width * part.type.dtype.itemsize
    with _name_failures(session, saved.store):
        target = bytes_of(into.array)
        stored = session.host.open_store(saved.store)
        read_rows(stored, pieces, width, part.low, target, f"array {saved.array.buffer}")


def _copies(session: ServerSession, wanted: Iterable[pb.PinKeys]) -> dict[int, SpaceSnapshot]:
    """Of the keyed spaces that are here."""
    found = {}
    for one in wanted:
        space = session.keyed.by_number.get(one.space)
        if space is not None:
            memory = session.store.memory
            found[one.space] = take_snapshot(space, one.space, one.waiting, one.known, memory)
    return found


def _write_new(
    own: OwnFiles, store: FileStore, file: str, rows: Sequence[Rows], spares: Iterable[str]
) -> list[FileRange]:
    """To ``file``, or to one beside it if that is there: the answer to this request was lost.

    (What was asked before may be at work on it still. Nothing names that file, so it is garbage.)
    Over one of ``spares``, if this server wrote it: a server that was taken for dead may go on
    with what it was at, so nobody else writes to that file, ever.
    """
    try:
        pieces = write_part(store, file, rows, own.take(store.url, spares))
    except FileExistsError:
        stem, kind = posixpath.splitext(file)
        file = f"{stem}.{secrets.token_hex(4)}{kind}"
        pieces = write_part(store, file, rows)
    own.add(store.url, file)
    return pieces


def _kept_buffers(session: ServerSession, client: str, name: str) -> Mapping[int, Buffer]:
    kept = session.store.pins.get(session.pin_name(client, name))
    if kept is None:
        raise GoneBefore(f"this server keeps no arrays under {name!r}: it was restarted meanwhile")
    return kept


def _kept_rows(session: ServerSession, client: str, name: str) -> dict[int, SnapshotRows]:
    copies = session.keyed.pins.get(session.pin_name(client, name)) or {}
    return {number: rows for one in copies.values() for number, rows in one.rows.items()}


@contextmanager
def _name_failures(session: ServerSession, what: str) -> Iterator[None]:
    """Say which server failed at which file."""
    try:
        yield
    except (FileNotFoundError, PermissionError, StoreUnseen) as error:
        raise StoreUnseen(f"server {session.index}, {what}: {error}") from error
    except OSError as error:
        raise StoreFailed(f"server {session.index}, {what}: {error}") from error
    except ImportError as error:
        raise StoreFailed(f"server {session.index}: {error}") from error
