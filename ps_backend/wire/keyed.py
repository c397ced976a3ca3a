"""Key lists, row programs and states of keyed spaces as messages.

Key lists travel as the gaps between different keys in ascending order, in few bytes each.
First comes the first key, 8 bytes. The gaps between each key and the next, less 1, are in blocks of
``BLOCK``, all of which have as many bytes as the largest of the block needs: the widths of the
blocks, a byte each, and then the gaps, those of blocks of width 1 first, then those of width 2 and
so on; the last block, which may be shorter, is at the end. Everything is little-endian.

Numbers in order, or with gaps of up to 256, take 1 byte each, and keys that are spread evenly over
all of int64 6 or 7 where they are 100,000; none takes more than 8 and a 128th.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.errors import InvalidProgram
from ps_backend.program.initializers import Constant, Fill, Normal, Uniform
from ps_backend.program.row_program import RowProgram, Scatter, program_of
from ps_backend.program.sweep import Scalar, Sweep
from ps_backend.program.user_signatures import Signature
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import decode_values, encode_sweep, encode_values

BLOCK = 128
_FIRST = 8  # bytes
_WIDEST = 8
_LIMITS = np.array([1 << 8 * width for width in range(1, _WIDEST)], np.uint64)

Gaps = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


def encode(keys: npt.NDArray[np.int64]) -> bytes:
    """Different keys in ascending order as bytes; of no keys none."""
    if not len(keys):
        return b""
    bits = keys.view(np.uint64)
    gaps = bits[1:] - bits[:-1] - np.uint64(1)
    full = len(gaps) // BLOCK * BLOCK
    blocks, last = gaps[:full].reshape(-1, BLOCK), gaps[full:]
    widths = _widths(blocks.max(axis=1))
    parts = [keys[:1].astype("<i8").tobytes(), widths.tobytes()]
    if len(last):
        parts.append(_widths(last.max(keepdims=True)).tobytes())
    parts += [_pack(blocks[widths == width], width) for width in np.unique(widths).tolist()]
    if len(last):
        parts.append(_pack(last, parts[2][0]))
    return b"".join(parts)


def decode(data: bytes | memoryview | Bytes, count: int) -> npt.NDArray[np.int64]:
    """The ``count`` keys that ``encode`` has written.

    ``ValueError`` for what it does not write: another number of bytes, keys that do not ascend.
    Allocates 9 bytes a key, and none where ``check_size`` refuses.
    """
    given = np.frombuffer(data, np.uint8)
    check_size(len(given), count)
    if not count:
        return np.empty(0, np.int64)
    blocks = _blocks(count)
    widths = given[_FIRST : _FIRST + blocks]
    lengths = np.full(blocks, BLOCK)
    lengths[-1:] = count - 1 - BLOCK * (blocks - 1)
    if blocks and not 1 <= widths.min() <= widths.max() <= _WIDEST:
        raise ValueError("a gap between keys has 1 to 8 bytes")
    if len(given) != _FIRST + blocks + int(lengths @ widths):
        raise ValueError(f"{len(given)} bytes do not hold {count} keys")
    keys = np.zeros(count, np.uint64)
    keys[0] = given[:_FIRST].view("<u8")[0]
    _unpack(given[_FIRST + blocks :], widths, keys[1:])
    keys[1:] += np.uint64(1)
    np.cumsum(keys, out=keys)
    signed = keys.view(np.int64)
    if not np.all(signed[1:] > signed[:-1]):
        raise ValueError("keys must be different, and in ascending order")
    return signed


def check_size(size: int, count: int) -> None:
    """``ValueError`` unless ``count`` keys may be in ``size`` bytes. Allocates nothing."""
    gaps = max(count - 1, 0)
    least = min(count, 1) * _FIRST + _blocks(count) + gaps
    if count < 0 or size < least:
        raise ValueError(f"{size} bytes are too few for {count} keys")
    if size > least + gaps * (_WIDEST - 1):
        raise ValueError(f"{size} bytes are too many for {count} keys")


def _blocks(count: int) -> int:
    """Of how many blocks the gaps between so many keys are."""
    return -(-max(count - 1, 0) // BLOCK)


def _unpack(data: Bytes, widths: Bytes, gaps: Gaps) -> None:
    """Write the gaps that are in ``data`` over zeros."""
    full = len(gaps) // BLOCK
    blocks, last = gaps[: full * BLOCK].reshape(-1, BLOCK), gaps[full * BLOCK :]
    low = 0
    for width in np.unique(widths[:full]).tolist():
        those = widths[:full] == width
        size = int(np.count_nonzero(those)) * BLOCK * width
        _fill(blocks, slice(None) if those.all() else those, data[low : low + size], width)
        low += size
    if len(last):
        _fill(last.reshape(1, -1), slice(None), data[low:], int(widths[full]))


def _fill(blocks: Gaps, those: Any, data: Bytes, width: int) -> None:
    """Write numbers of so many bytes into some rows of ``blocks``, which are zeros."""
    if width in (1, 2, 4, 8):
        blocks[those] = np.frombuffer(data, f"<u{width}").reshape(-1, blocks.shape[1])
    else:
        places = blocks.view(np.uint8).reshape(*blocks.shape, _WIDEST)
        places[those, :, :width] = data.reshape(-1, blocks.shape[1], width)


def _widths(largest: Gaps) -> Bytes:
    """How many bytes the numbers need."""
    return (np.searchsorted(_LIMITS, largest, side="right") + 1).astype(np.uint8)


def _pack(numbers: Gaps, width: int) -> bytes:
    """The numbers in so many bytes each."""
    if width in (1, 2, 4, 8):
        return numbers.astype(f"<u{width}").tobytes()
    return numbers.astype("<u8").reshape(-1, 1).view(np.uint8)[:, :width].tobytes()


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
    program: RowProgram,
    arrays: Sequence[int],
    scalars: Sequence[Scalar],
    *,
    full: bool,
    spaces: Sequence[int] = (),
) -> pb.RowCall:
    """A row program on ``arrays``, by number; the structure of its sweep only if ``full``.

    ``spaces``: by number, of each array; none: all are of the space of the keys.
    Of a plug-in what it gathers, scatters and returns follows from its signature.
    """
    if program.own is not None:
        own = program.own
        message = pb.RowCall(
            arrays=arrays,
            digest=program.sweep.digest,
            scalars=encode_values(program.sweep, scalars),
            spaces=spaces,
            own=pb.OwnFunction(signature=str(own.signature), plugin=own.plugin),
        )
        if full:
            add_structure(message, program)
        return message
    message = pb.RowCall(
        arrays=arrays,
        digest=program.sweep.digest,
        scalars=encode_values(program.sweep, scalars),
        gathers=program.gathers,
        scatters=[
            pb.Scatter(output=s.output, array=s.array, op=s.op, where=_one_more(s.where))
            for s in program.scatters
        ],
        spaces=spaces,
        returns=program.returns,
        with_keys=program.with_keys,
    )
    if full:
        add_structure(message, program)
    return message


def _one_more(where: int | None) -> int:
    return 0 if where is None else where + 1


def add_structure(message: pb.RowCall, program: RowProgram) -> None:
    """Add what servers keep, and find by its digest, to a message without it."""
    message.sweep.CopyFrom(encode_sweep(program.sweep))


def decode_row_program(message: pb.RowCall, sweep: Sweep) -> tuple[RowProgram, tuple[Scalar, ...]]:
    """The inverse, for a sweep that was looked up by its digest."""
    if message.HasField("own"):
        signature = Signature.parsed(message.own.signature)
        made = program_of(message.own.plugin, signature, sweep)
        return made, decode_values(sweep, message.scalars)
    scatters = tuple(
        Scatter(s.output, s.array, s.op, s.where - 1 if s.where else None) for s in message.scatters
    )
    gathers, returns = tuple(message.gathers), tuple(message.returns)
    program = RowProgram(sweep, gathers, scatters, returns, message.with_keys)
    return program, decode_values(sweep, message.scalars)


def padded(size: int) -> int:
    """Bytes that a part of a payload takes: each of them begins where any number may lie."""
    return -(-size // _ALIGNED) * _ALIGNED


def encode_keys(keys: npt.NDArray[np.int64]) -> memoryview:
    """Different keys in ascending order, as they travel: see ``ps_backend.wire.keyed``."""
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
