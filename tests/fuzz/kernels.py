"""Syntax trees of kernels that no client makes, and who compiles some of them."""

from __future__ import annotations

import json
import random
import zlib
from functools import lru_cache
from typing import Any

from ps_backend.errors import InvalidProgram
from ps_backend.kernels.user.compiled import UserKernel, UserKernels
from ps_backend.kernels.user.source import source
from ps_backend.program.kernel_language.check import checked
from ps_backend.program.kernel_language.table import CONSTANTS, OPS
from ps_backend.program.signatures import Signature
from ps_backend.wire import ps_pb2 as pb
from tests.fuzz.recordings import Recorded, compiled_kernels, recordings

_COMPILED = 25
"""One of so many trees that are new and right is compiled, which takes a second; all are checked,
and made Python of."""
_NUMBERS = (0, 1, -1, 2, 3, 63, 64, 1 << 31, (1 << 63) - 1, -(1 << 63), 1 << 63, 10**400)
_ODD: tuple[Any, ...] = (*_NUMBERS, 0.5, 1e308, True, None, "", "x", [], {}, [[]], ["int", 1])
_STATEMENTS: tuple[Any, ...] = (
    ["break"],
    ["continue"],
    ["set", 0, ["int", 7]],
    ["set", 0, ["float", 0.5]],
    ["while", ["bool", True], []],
    ["for", 0, ["int", 0], ["int", 1 << 62], ["int", 0], []],
    ["put", 0, [["int", -1], ["int", 99]], ["const", "nan"]],
)


def by_tree(recorded: Recorded, rng: random.Random) -> Recorded:
    """The tree of a kernel is another one, or its digest, or the signature."""
    request = pb.Request()
    request.CopyFrom(recorded.request)
    own = getattr(request, request.WhichOneof("body")).own
    if rng.random() < 0.1:
        own.digest = rng.choice(("", "x", own.digest[::-1]))
    if rng.random() < 0.1:
        own.signature = own.signature.replace(*rng.choice(_SIGNATURES))
    own.tree = changed(own.tree or rng.choice(honest_trees()), rng)
    return recorded._replace(request=request)


_SIGNATURES = (
    ("float64", "int8"),
    ("int64", "float32"),
    ("rows", "each"),
    ("number", "keys"),
    ("-> ", "-> most: int64, "),
    ("[k]", ""),
)


def is_of_kernel(recorded: Recorded) -> bool:
    """Whether a request is for a kernel."""
    body = recorded.request.WhichOneof("body")
    return body in ("look_up", "change_rows") and getattr(recorded.request, body).HasField("own")


def changed(tree: bytes, rng: random.Random) -> bytes:
    """Another tree: some of its nodes are others, elsewhere, gone, or deep in new ones."""
    found = json.loads(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        _change(found, rng)
    return json.dumps(found).encode()


def _change(tree: Any, rng: random.Random) -> None:
    places = list(_places(tree))
    home, key = rng.choice(places)
    other, there = rng.choice(places)
    match rng.randrange(9):
        case 0:
            home[key] = rng.choice(_ODD)
        case 1:
            home[key] = json.loads(json.dumps(other[there]))
        case 2 if isinstance(home, list):
            del home[key]
        case 3 if isinstance(home, list):
            home.insert(key, rng.choice(_STATEMENTS))
        case 4:
            word = rng.choice(list(OPS))
            home[key] = [word, *[home[key]] * OPS[word].arity]
        case 5:
            for _ in range(rng.choice((3, 30, 300))):
                home[key] = rng.choice(
                    (["not", home[key]], ["if", ["bool", True], [home[key]], []])
                )
        case 6 if isinstance(home[key], list):
            home[key] = home[key] * rng.choice((2, 50))
        case 7 if isinstance(home[key], str):
            home[key] = rng.choice((*OPS, *CONSTANTS, "local", "number", "get", "select", "for"))
        case _ if isinstance(home[key], int):
            home[key] += rng.choice((-1, 1))


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Every list or dict in a tree, with each of its places."""
    found: list[tuple[Any, Any]] = []
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list):
            keys = list(one) if isinstance(one, dict) else range(len(one))
            found += [(one, key) for key in keys]
            waiting += [one[key] for key in keys]
    return found


@lru_cache(maxsize=1)
def honest_trees() -> tuple[bytes, ...]:
    """Those of the recordings."""
    found = {
        getattr(one.request, one.request.WhichOneof("body")).own.tree: None
        for some in recordings()
        for one in some
        if is_of_kernel(one)
    }
    return tuple(tree for tree in found if tree)


class _FewCompiled(UserKernels):
    def get(self, signature: Signature, tree: bytes) -> UserKernel:
        """As ``UserKernels``; of most trees of no honest client it is only seen that it could."""
        compile(source(checked(tree, signature)), "kernel", "exec")
        if tree not in honest_trees() and zlib.crc32(tree) % _COMPILED:
            raise InvalidProgram("a tree that is right, and not compiled here")
        return compiled_kernels().get(signature, tree)


@lru_cache(maxsize=1)
def few_compiled() -> UserKernels:
    """Of all servers of this process."""
    return _FewCompiled()
