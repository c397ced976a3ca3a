"""Malformed messages to servers in this process: refused by name, and nothing has changed."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from random import Random

import hypothesis.strategies as st
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings

from ps_backend.wire import ps_pb2 as pb
from tests.fuzz.batches import KINDS, Tally, malformed, run_batch
from tests.fuzz.generators import odd
from tests.fuzz.recordings import recordings
from tests.fuzz.target import Target, Watch, prepared


@settings(max_examples=40)
@given(
    st.integers(0, len(recordings()) - 1),
    st.floats(0, 1),
    st.lists(st.tuples(st.sampled_from(KINDS), st.randoms(use_true_random=False)), max_size=12),
)
def test_whatever_comes_in_the_midst_of_a_session(script, how_far, strange):
    """Hypothesis shrinks the session and the messages; ``python -m tests.fuzz`` does not."""
    sent = recordings()[script]
    with Watch() as watch, Target(watch) as target:
        number = 0
        for one in sent[: int(how_far * len(sent)) + 1]:
            copy = pb.Request()
            copy.CopyFrom(one.request)
            number += 1
            assert not target.send(prepared(one._replace(request=copy), number))
        for kind, rng in strange:
            number += 1
            one = malformed(kind, rng.choice(sent), rng, number)
            assert isinstance(one, bytes) or not target.send(one), str(one.request)
        assert not target.close()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_few_seeds_of_the_million(seed):
    tallies: dict[str, Tally] = defaultdict(Tally)
    with Watch() as watch:
        assert not list(run_batch(seed, tallies, watch))
    assert sum(one.count for one in tallies.values()) > 200
    assert tallies["field"].refused
    assert tallies["honest"].accepted


def test_seeds_replay():
    runs = []
    for _ in range(2):
        tallies: dict[str, Tally] = defaultdict(Tally)
        with Watch() as watch:
            list(run_batch(4, tallies, watch))
        runs.append({kind: (one.count, one.refused, one.errors) for kind, one in tallies.items()})
    assert runs[0] == runs[1]


@given(st.randoms(use_true_random=False))
def test_what_no_encoder_writes_is_parsed_or_refused(rng: Random):
    data = odd(recordings()[0][5].request.SerializeToString(), rng)
    with suppress(DecodeError):
        pb.Request.FromString(data)
