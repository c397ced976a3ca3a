"""Memory that a client and a server on one host share for bulk data.

The client makes it, as an anonymous file of fixed size. The server finds it through the client's
entry in ``/proc``, which only works for processes of one user on one host and in one container,
and knows by the content that it is the right one. It has no name in any directory, so nothing is
left of it when both processes are gone, however they ended.
"""

from __future__ import annotations

import fcntl
import hmac
import mmap
import os
import secrets
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.chunks import Parts

SLOTS = 4
SLOT_BYTES = 4 << 20
"""Bulk goes in pieces of this size, through the slots in turn: larger ones need fewer signs."""

NEXT = b"\0"
"""The message that a piece is in its slot, or out of it again. (No serialized one starts so.)"""

_MAGIC = b"distvec segment 1"
_NONCE_BYTES = 32
_HEADER_BYTES = 4096
WHOLE_BYTES = SLOTS * SLOT_BYTES
"""A transfer of at most this size lies in the slots as a whole, and needs no signs."""

_SIZE = _HEADER_BYTES + WHOLE_BYTES


class Segment:
    """A few slots of shared memory, for one transfer at a time."""

    def __init__(self, file: int, nonce: bytes, mapping: mmap.mmap) -> None:
        """``file``: an open descriptor, which belongs to the segment from now on."""
        self._file, self._nonce = file, nonce
        memory = np.frombuffer(mapping, np.uint8)
        self._slots = memory[_HEADER_BYTES:].reshape(SLOTS, SLOT_BYTES)

    def __del__(self) -> None:
        os.close(self._file)  # the memory goes with the last view of it

    @classmethod
    def create(cls) -> Segment | None:
        """A new one, or None where there can be none."""
        if not hasattr(os, "memfd_create"):
            return None
        try:
            file = os.memfd_create("distvec", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError:
            return None
        try:
            os.posix_fallocate(file, 0, _SIZE)  # fails here rather than at the first touch
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _seals())
            nonce = secrets.token_bytes(_NONCE_BYTES)
            os.pwrite(file, _MAGIC + nonce, 0)
            return cls(file, nonce, _map(file))
        except OSError:
            os.close(file)
            return None

    def describe(self) -> pb.Segment:
        """What lets a server on this host ``attach``."""
        return pb.Segment(pid=os.getpid(), file=self._file, nonce=self._nonce)

    @classmethod
    def attach(cls, there: pb.Segment) -> Segment | None:
        """The segment that another process made, or None if it cannot be had here."""
        path = f"/proc/{there.pid}/fd/{there.file}"
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            return None
        try:
            # sealed: it cannot shrink under our feet. And only files like ours have seals at all.
            sealed = fcntl.fcntl(file, fcntl.F_GET_SEALS) == _seals()
            if sealed and os.fstat(file).st_size == _SIZE:
                content = os.pread(file, len(_MAGIC) + _NONCE_BYTES, 0)
                if hmac.compare_digest(content, _MAGIC + there.nonce):
                    return cls(file, there.nonce, _map(file))
        except OSError:
            pass
        os.close(file)
        return None

    def is_of(self, there: pb.Segment) -> bool:
        """Is it the one that another process described so?"""
        return hmac.compare_digest(self._nonce, there.nonce)

    def fill_whole(self, parts: Parts) -> None:
        """Copy all of a transfer of at most ``WHOLE_BYTES`` into the slots."""
        for number, piece in enumerate(pieces(parts)):
            self.fill(number, piece)

    def take_whole(self, target: memoryview) -> None:
        """Copy a transfer of the size of ``target`` out of the slots."""
        np.copyto(_bytes(target), self._slots.reshape(-1)[: len(target)])

    def view_whole(self, size: int) -> memoryview:
        """A transfer of ``size`` bytes as it lies in the slots."""
        return self._slots.reshape(-1)[:size].data

    def fill(self, number: int, piece: Parts) -> None:
        """Copy piece ``number`` of a transfer into its slot."""
        slot, position = self._slots[number % SLOTS], 0
        for part in piece:
            source = _bytes(part)
            np.copyto(slot[position : position + source.size], source)  # lets other threads run
            position += source.size

    def take(self, number: int, target: memoryview) -> None:
        """Copy piece ``number``, of the size of ``target``, out of its slot."""
        np.copyto(_bytes(target), self._slots[number % SLOTS][: len(target)])

    def view(self, number: int, size: int) -> memoryview:
        """Piece ``number``, of ``size`` bytes, as it lies in its slot."""
        return memoryview(self._slots[number % SLOTS][:size])


def pieces(parts: Parts) -> Iterator[list[memoryview]]:
    """``parts`` cut into pieces that fill a slot each, but for the last."""
    piece, room = [], SLOT_BYTES
    for part in parts:
        position = 0
        while position < len(part):
            view = part[position : position + room]
            piece.append(view)
            position += len(view)
            room -= len(view)
            if not room:
                yield piece
                piece, room = [], SLOT_BYTES
    if piece:
        yield piece


def _map(file: int) -> mmap.mmap:
    return mmap.mmap(file, _SIZE, mmap.MAP_SHARED | mmap.MAP_POPULATE)


def _seals() -> int:
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def _bytes(view: memoryview) -> npt.NDArray[np.uint8]:
    return np.frombuffer(view, np.uint8)
