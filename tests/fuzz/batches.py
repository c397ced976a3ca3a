"""Batches of messages, each from a seed: all that one fuzzed session gets in its life."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from google.protobuf.message import DecodeError

from ps_backend.wire import ps_pb2 as pb
from tests.fuzz.generators import Words, made, odd, raw, words
from tests.fuzz.mutations import by_byte, by_field, by_payload, by_splice
from tests.fuzz.recordings import Recorded, recordings
from tests.fuzz.target import Target, Watch, prepared

KINDS = ("made", "field", "payload", "byte", "splice", "odd", "raw")
"""From the descriptors; honest but for a field, the payload, bytes, another one's bytes, what no
encoder writes; and bytes without any sense."""
_SHARES = (22, 48, 5, 10, 7, 6, 2)
_EACH = 6
"""Messages before each honest one."""


class Message(NamedTuple):
    """One message of a batch; bytes are what protobuf takes for none."""

    kind: str
    sent: Recorded | bytes


@dataclass
class Tally:
    """What became of the messages of one kind."""

    count: int = 0
    no_message: int = 0
    refused: int = 0
    accepted: int = 0
    slowest: float = 0.0
    errors: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class Finding(NamedTuple):
    """What went wrong at which message of which seed."""

    seed: int
    number: int
    kind: str
    what: str
    request: str


@lru_cache(maxsize=1)
def _encoded() -> tuple[bytes, ...]:
    return tuple(one.request.SerializeToString() for some in recordings() for one in some)


@lru_cache(maxsize=1)
def _words() -> Words:
    return words()


def messages(seed: int) -> Iterator[Message]:
    """The messages of a seed, in order; those of kind "honest" are no others' mutations."""
    rng = random.Random(seed)
    script = recordings()[seed % len(recordings())]
    number = 0
    for template in script:
        opens = template.request.HasField("open")  # before it there is nothing to break
        for _ in range(0 if opens else _EACH):
            (kind,) = rng.choices(KINDS, _SHARES)
            near = template if rng.random() < 0.7 else rng.choice(script)
            if near.request.HasField("close") and rng.random() < 0.9:
                near = template
            number += 1
            yield Message(kind, malformed(kind, near, rng, number))
        number += 1
        honest = pb.Request()
        honest.CopyFrom(template.request)
        yield Message("honest", prepared(template._replace(request=honest), number))


def malformed(kind: str, near: Recorded, rng: random.Random, number: int) -> Recorded | bytes:
    """A message of that kind, made of an honest one; bytes where protobuf takes it for none."""
    if kind == "made":
        return prepared(near._replace(request=made(rng, _words())), number)
    if kind in ("field", "payload"):
        copy = pb.Request()
        copy.CopyFrom(near.request)
        if rng.random() < 0.9:
            del copy.frees[:]
        change = by_field if kind == "field" else by_payload
        return prepared(change(near._replace(request=copy), rng), number)
    data = near.request.SerializeToString()
    match kind:
        case "byte":
            data = by_byte(data, rng)
        case "splice":
            data = by_splice(data, _encoded(), rng)
        case "odd":
            data = odd(data, rng)
        case _:
            data = raw(rng)
    try:
        request = pb.Request.FromString(data)
    except DecodeError:
        return data
    return prepared(near._replace(request=request), number)


def run_batch(
    seed: int, tallies: dict[str, Tally], watch: Watch, kind_of_target: type[Target] = Target
) -> Iterator[Finding]:
    """Send the messages of a seed to servers of their own; yields what goes wrong."""
    with kind_of_target(watch) as target:
        for number, (kind, sent) in enumerate(messages(seed)):
            tally = tallies[kind]
            tally.count += 1
            if isinstance(sent, bytes):
                tally.no_message += 1
                for what in target.send_bytes(sent):
                    yield Finding(seed, number, kind, what, repr(sent[:100]))
                continue
            began = time.perf_counter()
            wrong = target.send(sent)
            tally.slowest = max(tally.slowest, time.perf_counter() - began)
            if target.refused is None:
                tally.accepted += 1
            else:
                tally.refused += 1
                tally.errors[target.refused] += 1
            for what in wrong:
                yield Finding(seed, number, kind, what, str(sent.request)[:2000])
        for what in target.close():
            yield Finding(seed, -1, "end", what, "")


def first_seeds(seed: int, least: int) -> Sequence[int]:
    """Seeds from this one on whose batches have so many messages or a few more."""
    sizes = [len(one) * (_EACH + 1) for one in recordings()]
    seeds, total = [], 0
    while total < least:
        seeds.append(seed + len(seeds))
        total += sizes[seeds[-1] % len(sizes)]
    return seeds
