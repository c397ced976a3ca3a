"""Row programs and states of keyed spaces as messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.errors import InvalidProgram
from ps_backend.program.initial import Constant, Fill, Normal, Uniform
from ps_backend.program.row_program import RowProgram, Scatter, program_of
from ps_backend.program.signatures import Signature
from ps_backend.program.sweep import Scalar, Sweep
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import decode_values, encode_sweep, encode_values
from ps_backend.wire.keys import check_size, decode, encode

_ALIGNED = 8


_FILLS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in (Constant, Uniform, Normal)}


class SpaceState(NamedTuple):
    """What a keyed space is on one server, or on all of them."""

    keys: int = 0
    """How many there are."""
    version: int = 0
    """One more with each insertion or removal of keys; differs from server to server."""
    bytes: int = 0
    evicted: int = 0
    """How many keys were removed."""
    refused: int = 0
    """How many keys were not inserted, for want of memory."""
    waiting: int = 0
    """How many changes were dropped, as their keys were not admitted yet."""


class SpaceCopy(NamedTuple):
    """What a server has kept of a keyed space, as it was at one moment."""

    state: SpaceState
    mark: int
    """Of its content: another one after each change."""
    waiting: int
    """Rows of the counters of keys that were not admitted yet."""
    arrays: tuple[int, ...]
    """The numbers of those that it had."""


def encode_copy(number: int, copy: SpaceCopy) -> pb.PinnedKeys:
    """What a server has kept of the space of that number."""
    fields = {**copy._asdict(), "state": encode_state(copy.state)}
    return pb.PinnedKeys(space=number, **fields)


def decode_copy(message: pb.PinnedKeys) -> SpaceCopy:
    """The inverse, without the number."""
    state = decode_state(message.state)
    return SpaceCopy(state, message.mark, message.waiting, tuple(message.arrays))


def encode_state(state: SpaceState) -> pb.KeyedState:
    """The state of a space on one server."""
    return pb.KeyedState(**state._asdict())


def decode_state(message: pb.KeyedState) -> SpaceState:
    """The inverse of ``encode_state``."""
    return SpaceState(*(getattr(message, field) for field in SpaceState._fields))


def encode_fill(fill: Fill) -> dict[str, Any]:
    """How an array begins, as fields of its message."""
    name = type(fill).__name__.lower()
    values = astuple(fill)
    if isinstance(fill, Constant):
        return {"fill": name, "params": values}
    return {"fill": name, "params": values[:-1], "seed": values[-1]}


def decode_fill(message: pb.MakeRows) -> Fill:
    """The inverse of ``encode_fill``; ``InvalidProgram`` for what is unknown."""
    kind = _FILLS.get(message.fill)
    params = tuple(message.params)
    if kind is None or len(params) != (1 if kind is Constant else 2):
        raise InvalidProgram(f"arrays do not begin as {message.fill!r} of {len(params)} numbers")
    fill: Fill = kind(*params) if kind is Constant else kind(*params, message.seed)
    return fill


def encode_row_program(
    program: RowProgram, arrays: Sequence[int], scalars: Sequence[Scalar], *, full: bool
) -> pb.RowCall:
    """A row program on ``arrays``, by number; the structure of its sweep only if ``full``.

    Of a function of users what it gathers, scatters and returns follows from its signature.
    """
    if program.own is not None:
        own = program.own
        message = pb.RowCall(
            arrays=arrays,
            digest=program.sweep.digest,
            scalars=encode_values(program.sweep, scalars),
            own=pb.OwnFunction(signature=str(own.signature), plugin=own.plugin, digest=own.digest),
        )
        if full:
            add_structure(message, program)
        return message
    message = pb.RowCall(
        arrays=arrays,
        digest=program.sweep.digest,
        scalars=encode_values(program.sweep, scalars),
        gathers=program.gathers,
        scatters=[pb.Scatter(output=s.output, array=s.array, op=s.op) for s in program.scatters],
        returns=program.returns,
        with_keys=program.with_keys,
    )
    if full:
        add_structure(message, program)
    return message


def add_structure(message: pb.RowCall, program: RowProgram) -> None:
    """Add what servers keep, and find by its digest, to a message without it."""
    message.sweep.CopyFrom(encode_sweep(program.sweep))
    if program.own is not None:
        message.own.tree = program.own.tree


def decode_row_program(
    message: pb.RowCall, sweep: Sweep, tree: bytes = b""
) -> tuple[RowProgram, tuple[Scalar, ...]]:
    """The inverse, for a sweep, and the tree of a kernel, that were looked up by their digests."""
    if message.HasField("own"):
        signature = Signature.parsed(message.own.signature)
        made = program_of(signature, sweep, plugin=message.own.plugin, tree=tree)
        return made, decode_values(sweep, message.scalars)
    scatters = tuple(Scatter(s.output, s.array, s.op) for s in message.scatters)
    gathers, returns = tuple(message.gathers), tuple(message.returns)
    program = RowProgram(sweep, gathers, scatters, returns, message.with_keys)
    return program, decode_values(sweep, message.scalars)


def padded(size: int) -> int:
    """Bytes that a part of a payload takes: each of them begins where any number may lie."""
    return -(-size // _ALIGNED) * _ALIGNED


def encode_keys(keys: npt.NDArray[np.int64]) -> memoryview:
    """Different keys in ascending order, as they travel: see ``ps_backend.wire.keys``."""
    return memoryview(encode(keys))


def decode_keys(data: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.int64]:
    """The inverse; ``ValueError`` unless there are ``count``, all different, in ascending order."""
    return decode(data, count)


def check_keys_size(size: int, count: int) -> None:
    """``ValueError`` unless so many keys may be in ``size`` bytes. Allocates nothing."""
    check_size(size, count)


def unknown_plugin(name: str, loaded: Iterable[str], where: str = "the server") -> str:
    """What is said where no function of that name is loaded."""
    module = name.rpartition(".")[0] or "package.module"
    have = ", ".join(sorted(loaded)[:10]) or "none"
    return (
        f"no plug-in {name[:100]!r} is loaded on {where}, which has: {have}; who operates it "
        f"starts it with: distvec serve --plugin {module[:100]} (or dv.local(plugins=[...]), or "
        f"PSContext.get_or_create(spark, plugins=[...]))"
    )
