"""Keys for what is no integer: a 64-bit hash of texts, and one of tuples, that never change.

The key of a text is XXH64, with seed 0, of its UTF-8 bytes. The key of a tuple is XXH64, with seed
0, of 16 bytes an item: a number that says what it is, and a word, both as little-endian int64: 0
and the integer itself, 1 and the key of a text, 2 and the key of a tuple. Two different texts of
a million have the same key once in 37 million vocabularies of that size.

Source: Collet, "xxHash fast digest algorithm", specification of XXH64, whose known answers the
tests check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    return _hashed(np.frombuffer(data, np.uint8), lengths)


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
    words[:, 0] = [_kind(item) for item in items]
    for kind, hashed in ((_TEXT, hash_texts), (_TUPLE, hash_tuples)):
        places = np.flatnonzero(words[:, 0] == kind)
        if len(places):
            words[places, 1] = hashed([items[place] for place in places])
    places = np.flatnonzero(words[:, 0] == _INTEGER)
    words[places, 1] = [int(items[place]) for place in places]
    return _hashed(words.view(np.uint8).reshape(-1), lengths * 16)


def _kind(item: Any) -> int:
    if isinstance(item, str):
        return _TEXT
    if isinstance(item, tuple):
        return _TUPLE
    if isinstance(item, int | np.integer) and not isinstance(item, bool):
        if not -_MOST <= item < _MOST:
            raise ValueError(f"an integer of a tuple is an int64, and {item} is outside of it")
        return _INTEGER
    raise TypeError(f"a tuple that is a key is of integers, texts and tuples, not {item!r}")


def _hashed(data: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """XXH64 of consecutive pieces of ``data`` of so many bytes."""
    keys = np.empty(len(lengths), np.uint64)
    if len(keys):
        _compiled()(data, lengths, keys)
    return keys.view(np.int64)


@cache
def _compiled() -> Hash:
    from ps_backend.program.compiled_hashes import xxh64

    return xxh64
