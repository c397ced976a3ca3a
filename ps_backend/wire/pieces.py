"""Where rows lie in files, as messages."""

from __future__ import annotations

from ps_backend.durability.parts import Piece
from ps_backend.wire import ps_pb2 as pb


def encode_piece(piece: Piece) -> pb.Piece:
    """A piece as a message."""
    return pb.Piece(
        file=piece.file,
        offset=piece.offset,
        low=piece.low,
        high=piece.high,
        unit=piece.unit,
        crcs=piece.crcs,
    )


def decode_piece(message: pb.Piece) -> Piece:
    """The inverse; ``ValueError`` for one of no rows to a checksum."""
    if message.unit < 1 or message.low > message.high:
        raise ValueError(f"no piece of an array has rows {message.low}:{message.high}")
    return Piece(
        message.file,
        message.offset,
        message.low,
        message.high,
        message.unit,
        tuple(message.crcs),
    )
