"""Keys of a keyed space: any int64, hashes of texts and tuples; the bucket and server of each.

A key is mixed by a bijection of 64 bits, so that structured ones (multiples of something, numbers
in order) are spread evenly, and no value is reserved. Its first bits choose one of ``BUCKETS``
buckets, which never become more or fewer: servers hold ranges of whole buckets. Source of the
bijection: the finaliser of MurmurHash3 (Appleby, in the public domain).

The key of a text is XXH64, with seed 0, of its UTF-8 bytes. The key of a tuple is XXH64, with seed
0, of 16 bytes an item: a number that says what it is, and a word, both as little-endian int64: 0
and the integer itself, 1 and the key of a text, 2 and the key of a tuple. Two different texts of
a million have the same key once in 37 million vocabularies of that size. Source: Collet, "xxHash
fast digest algorithm", specification of XXH64, whose known answers the tests check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

Hash = Callable[..., None]

_INTEGER, _TEXT, _TUPLE = range(3)
_MOST = 1 << 63


def hash_texts(texts: Iterable[str]) -> npt.NDArray[np.int64]:
    """The key of each text, int64. ``TypeError`` for what is none.

    Some 0.2 us each; the first call in a process loads the compiler.
    """
    texts = texts if isinstance(texts, list | tuple) else list(texts)
    try:
        joined = "".join(texts)
    except TypeError:
        wrong = next(k for k, text in enumerate(texts) if not isinstance(text, str))
        raise TypeError(f"hash_texts takes strings, and item {wrong} is {texts[wrong]!r}") from None
    data = joined.encode("utf-8", "surrogatepass")
    if len(data) == len(joined):
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    else:
        sizes = (len(text.encode("utf-8", "surrogatepass")) for text in texts)
        lengths = np.fromiter(sizes, np.int64, len(texts))
    return _hash_pieces(np.frombuffer(data, np.uint8), lengths)


def hash_tuples(tuples: Iterable[tuple[Any, ...]]) -> npt.NDArray[np.int64]:
    """The key of each tuple of integers, texts and such tuples, int64.

    ``TypeError`` for other items, ``ValueError`` for integers that int64 has not.
    """
    tuples = tuples if isinstance(tuples, list | tuple) else list(tuples)
    for k, given in enumerate(tuples):
        if not isinstance(given, tuple):
            raise TypeError(f"hash_tuples takes tuples, and item {k} is {given!r}")
    lengths = np.fromiter(map(len, tuples), np.int64, len(tuples))
    words = np.empty((int(lengths.sum()), 2), "<i8")
    items = list(chain.from_iterable(tuples))
    words[:, 0] = [_kind_of_item(item) for item in items]
    for kind, hashed in ((_TEXT, hash_texts), (_TUPLE, hash_tuples)):
        places = np.flatnonzero(words[:, 0] == kind)
        if len(places):
            words[places, 1] = hashed([items[place] for place in places])
    places = np.flatnonzero(words[:, 0] == _INTEGER)
    words[places, 1] = [int(items[place]) for place in places]
    return _hash_pieces(words.view(np.uint8).reshape(-1), lengths * 16)


def _kind_of_item(item: Any) -> int:
    if isinstance(item, str):
        return _TEXT
    if isinstance(item, tuple):
        return _TUPLE
    if isinstance(item, int | np.integer) and not isinstance(item, bool):
        if not -_MOST <= item < _MOST:
            raise ValueError(f"an integer of a tuple is an int64, and {item} is outside of it")
        return _INTEGER
    raise TypeError(f"a tuple that is a key is of integers, texts and tuples, not {item!r}")


def _hash_pieces(
    data: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """XXH64 of consecutive pieces of ``data`` of so many bytes."""
    keys = np.empty(len(lengths), np.uint64)
    if len(keys):
        _compiled_xxh64()(data, lengths, keys)
    return keys.view(np.int64)


@cache
def _compiled_xxh64() -> Hash:
    from ps_backend.program.compiled_hashes import xxh64

    return xxh64


__all__ = [
    "BUCKETS",
    "HASHED",
    "Partition",
    "are_different",
    "bucket_of",
    "check_keys",
    "hash_texts",
    "hash_tuples",
    "mixed",
    "server_of",
]

BUCKETS = 1024
"""Of every keyed space, on any number of servers. A bucket is the block of its reductions."""

BUCKET_BITS = BUCKETS.bit_length() - 1
MULTIPLIERS = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
SHIFT = 33

_TILE = 1 << 14
"""Keys that are mixed at a time, so that they stay in the cache."""


def mixed(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The mixed bits of int64 keys, uint64 of the same length; different keys have different ones.

    Some 3 ns a key.
    """
    bits = keys.astype(np.uint64)  # modulo 2^64, and a copy
    shift = np.uint64(SHIFT)
    moved = np.empty(min(len(bits), _TILE), np.uint64)
    for low in range(0, len(bits), _TILE):
        tile = bits[low : low + _TILE]
        one = moved[: len(tile)]
        for multiplier in MULTIPLIERS:
            np.right_shift(tile, shift, out=one)
            tile ^= one
            tile *= np.uint64(multiplier)
        np.right_shift(tile, shift, out=one)
        tile ^= one
    return bits


def bucket_of(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The bucket of each key, int64 from 0 to ``BUCKETS - 1``: the first bits of the mixed key."""
    bits = mixed(keys)
    bits >>= np.uint64(64 - BUCKET_BITS)
    return bits.view(np.int64)


def server_of(keys: npt.NDArray[np.int64], servers: int) -> npt.NDArray[np.int64]:
    """Which of so many servers holds each key: bucket ``b`` lies on ``b * servers // BUCKETS``."""
    found = bucket_of(keys)
    found *= servers
    found //= BUCKETS
    return found


def are_different(keys: npt.NDArray[np.int64]) -> bool:
    """Whether no key comes twice. Some 20 ns a key: sorting is vectorised, NumPy's unique not."""
    ordered = np.sort(keys)
    return not np.any(ordered[1:] == ordered[:-1])


@dataclass(frozen=True)
class Partition:
    """How the keys of a space are shared out: any int64 by its hash, or those of a range in order.

    A bucket of a range holds ``bucket_size`` keys that follow each other.
    """

    length: int = 0
    """The keys are 0, 1, ..., ``length - 1``; 0: they are any."""

    @property
    def bucket_size(self) -> int:
        """Keys of a bucket, of a range."""
        return max(1, -(-self.length // BUCKETS))

    def bucket_of(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The bucket of each key."""
        return keys // self.bucket_size if self.length else bucket_of(keys)

    def server_of(self, keys: npt.NDArray[np.int64], servers: int) -> npt.NDArray[np.int64]:
        """Which of so many servers holds each key."""
        if not self.length:
            return server_of(keys, servers)
        return self.bucket_of(keys) * servers // BUCKETS

    def check(self, keys: npt.NDArray[np.int64]) -> None:
        """Raise ``IndexError`` for ascending ``keys`` that are not all in the range."""
        if self.length and len(keys) and not (keys[0] >= 0 and keys[-1] < self.length):
            wrong = keys[0] if keys[0] < 0 else keys[-1]
            raise IndexError(f"key {wrong} is not in range({self.length}), which the space is over")


HASHED = Partition()
"""Of spaces over any keys."""


def check_keys(keys: Any) -> npt.NDArray[np.int64]:
    """The keys as a contiguous array of int64, of the shape they were given in.

    ``TypeError`` for what is not of integers, ``ValueError`` for integers that int64 has not.
    """
    given = np.asarray(keys)
    if given.size == 0 and given.dtype == np.float64 and not isinstance(keys, np.ndarray):
        given = given.astype(np.int64)  # an empty list is of no dtype
    if given.dtype == object and all(isinstance(key, int) for key in given.flat):
        wrong = next((key for key in given.flat if not -(1 << 63) <= key < 1 << 63), None)
        if wrong is not None:
            raise ValueError(f"keys are int64, and {wrong} is outside of it; hash such keys first")
        raise TypeError("keys are integers; give an array of int64, not one of objects")
    if given.dtype.kind in "US" or given.dtype == object:
        raise TypeError(
            "keys are integers; hash_texts makes such of texts, and hash_tuples of tuples"
        )
    if given.dtype.kind not in "iu":
        raise TypeError(f"keys are integers, not {given.dtype}; or say astype('int64')")
    if given.dtype == np.uint64 and given.size and given.max() >> np.uint64(63):
        raise ValueError(
            f"keys are int64, and {given.max()} is above {(1 << 63) - 1}; "
            "say keys.view('int64') to have the same bits"
        )
    return given.astype(np.int64, order="C", copy=False)
