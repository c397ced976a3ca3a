"""Loops: no pull is older than its bound, each tick counts once, and lockstep gives fixed bits."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ps_backend.program.types import array_type
from tests.ps_backend.ranks import LENGTH, SPACE, homes, ranks

BOUNDS = st.sampled_from([0, 1, 2, 4, None])


@settings(max_examples=150)
@given(st.data(), st.integers(1, 3), st.integers(1, 4), BOUNDS)
def test_no_pull_is_older_than_its_bound_and_each_tick_counts_once(data, servers, number, bound):
    """Each rank adds 1 at its own coordinate in each clock: a version counter."""
    where = homes(number)
    ends = [SPACE.range_of(server, servers)[1] for server in range(servers)]
    home = [int(np.searchsorted(ends, i, side="right")) for i in where]
    steps = ["push", "pull", "ahead", "tick", "again", "die", "restart", "exclude"]
    with ranks(servers, number, bound) as made:
        counted = [set() for _ in range(number)]
        out = set()  # ranks that nobody waits for
        ever_out = set()
        pushed = [False] * number
        asked = [None] * number

        def check(rank, values, clock):
            """``values`` are used in ``clock``, in which the rank is."""
            assert values[rank] == len(counted[rank]) + pushed[rank]
            for other in set(range(number)) - {rank} - ever_out:
                if rank in ever_out:
                    continue  # it may be behind: nobody waited for it
                if bound is not None:
                    assert values[other] >= clock - bound
                if bound == 0:
                    assert values[other] == clock

        for _ in range(data.draw(st.integers(5, 40), "length")):
            rank = data.draw(st.integers(0, number - 1), "rank")
            pace, step = made.paces[rank], data.draw(st.sampled_from(steps), "step")
            if step == "push" and not pushed[rank] and pace.now not in counted[rank]:
                pace.push(made.target, where[rank : rank + 1], np.ones(1))
                pushed[rank] = True
            elif step == "pull":
                others = [one.now for k, one in enumerate(made.paces) if k not in out]
                found = made.ask(rank, where)
                if not ever_out:
                    near = bound is None or min(others) >= pace.now - bound
                    assert found is not None or not near
                if found is not None and pace.now not in counted[rank]:
                    check(rank, pace.receive(made.target, found), pace.now)
            elif step == "ahead":
                asked[rank] = made.ask(rank, where, ahead=1)
            elif step in ("tick", "die"):
                if not pushed[rank] and pace.now not in counted[rank]:
                    pace.push(made.target, where[rank : rank + 1], np.ones(1))
                reached = range(servers)
                if step == "die":
                    reached = data.draw(st.sets(st.integers(0, servers - 1)), "reached")
                if home[rank] in reached:
                    counted[rank].add(pace.now)
                pushed[rank] = False
                clock = pace.now
                if step == "die":
                    made.tick_and_die(rank, reached)
                    out.discard(rank)
                    asked[rank] = None
                else:
                    pace.tick()
                    assert pace.now == clock + 1
                    if rank in out and clock + 1 >= min(
                        (p.now for k, p in enumerate(made.paces) if k not in out), default=0
                    ):
                        out.discard(rank)
                    ahead, asked[rank] = asked[rank], None
                    if ahead is not None and ahead.clock == pace.now:
                        check(rank, pace.receive(made.target, ahead), pace.now)
            elif step == "again" and pace.now:
                made.loop.tick(rank, pace.attempt, pace.now - 1, {})
            elif step == "restart":
                made.restart(rank)
                pushed[rank], asked[rank] = False, None
                out.discard(rank)
            elif step == "exclude":
                made.loop.exclude(rank, pace.attempt)
                out.add(rank)
                ever_out.add(rank)
        for rank, pace in enumerate(made.paces):
            if pushed[rank]:
                counted[rank].add(pace.now)
            pace.leave()
        assert made.values()[where].tolist() == [len(clocks) for clocks in counted]


def work_of(seed, rank, clock, pulled):
    """What a rank pushes: it depends on what it pulled."""
    rng = np.random.default_rng((seed, rank, clock))
    indices = rng.integers(0, LENGTH, 30) if clock % 2 else None
    values = rng.normal(size=LENGTH if indices is None else 30)
    return indices, values * (1.0 + 0.1 * np.sin(pulled.sum()))


def wanted_of(seed, rank, clock):
    rng = np.random.default_rng((seed, rank, clock, 1))
    return None if clock % 3 == 2 else rng.integers(0, LENGTH, 40)


def lockstep_in_numpy(seed, number, clocks, start):
    """What ranks do in lockstep: all pull, then all add, in their order."""
    w = start.copy()
    for clock in range(clocks):
        made = []
        for rank in range(number):
            wanted = wanted_of(seed, rank, clock)
            pulled = w if wanted is None else w[wanted]
            made.append(work_of(seed, rank, clock, pulled))
        for indices, values in made:
            if indices is None:
                w += values
            else:
                distinct, places = np.unique(indices, return_inverse=True)
                sums = np.zeros(len(distinct))
                np.add.at(sums, places, values)
                w[distinct] += sums
    return w


@settings(max_examples=40)
@given(st.data(), st.integers(1, 3), st.integers(1, 4), st.integers(0, 1000))
def test_lockstep_gives_numpys_bits_whoever_dies_when(data, servers, number, seed):
    clocks, start = 4, np.random.default_rng(seed).normal(size=LENGTH)
    with ranks(servers, number, 0, start) as made:
        left, deaths = set(), 6
        while len(left) < number:
            order = data.draw(st.permutations(range(number)), "order")
            moved = False
            for rank in order:
                pace = made.paces[rank]
                if rank in left:
                    continue
                if pace.now == clocks:
                    pace.leave()
                    left.add(rank)
                    moved = True
                    continue
                found = made.ask(rank, wanted_of(seed, rank, pace.now))
                if found is None:
                    continue
                moved = True
                pulled = pace.receive(made.target, found)
                pace.push(made.target, *work_of(seed, rank, pace.now, pulled))
                if deaths and data.draw(st.booleans(), "dies"):
                    deaths -= 1
                    reached = data.draw(st.sets(st.integers(0, servers - 1)), "reached")
                    made.tick_and_die(rank, reached)
                else:
                    pace.tick()
            assert moved, "all wait for each other"
        expected = lockstep_in_numpy(seed, number, clocks, start)
        assert made.values().tobytes() == expected.tobytes()


def test_a_loop_ends_though_an_array_that_it_waits_to_add_to_is_over():
    with ranks(1, 2, 0) as made:
        made.ask(0, homes(2))
        made.paces[0].push(made.target, None, np.ones(LENGTH))
        made.paces[0].tick()  # it waits for the other rank
        made.client.snapshot([made.target], [end := made.client.new_id()], last=True)
        made.loop.close()
        assert not made.client.read(end, array_type(SPACE, float)).any()
