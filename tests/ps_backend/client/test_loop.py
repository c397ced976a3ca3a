"""Loops: attempts that are fenced, ranks that are out, own pushes, cost, and refusals."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ps_backend.client.loop import LoopRank
from ps_backend.errors import AttemptFenced, BufferLost, LoopClosed, ServerLost
from ps_backend.program.spaces import DenseSpace
from tests.ps_backend.helpers import share
from tests.ps_backend.ranks import LENGTH, homes, ranks


@pytest.mark.parametrize("bound", [0, 1, None])
def test_threads_over_both_transports(connect, bound):
    """Pulls that wait are answered, on the way of small messages and of large ones."""
    owner, number, clocks = connect(2), 3, 6
    space = DenseSpace(60_000)  # dense pulls and pushes are bulk
    target = share(owner, space, np.zeros(60_000))
    loop = owner.loop("l")
    loop.open(number, bound)

    def work(rank):
        pace = LoopRank(owner.loop("l"), rank, rank + 1)
        for clock in range(clocks):
            if clock % 2:
                values = pace.pull(target)
            else:
                values = pace.pull(target, np.array([rank, 59_999, 5]))[[1]]
            pace.push(target, None, np.ones(60_000))
            pace.push(target, np.array([59_999]), np.array([1.0]))
            if bound is not None:
                assert values[-1] >= 2 * number * (clock - bound)
            assert (pace.pull(target) >= clock + 1).all()
            pace.tick()
        pace.leave()

    with ThreadPoolExecutor(number) as pool:
        list(pool.map(work, range(number)))
    values = owner.pull(target)
    assert (values[:-1] == number * clocks).all()
    assert values[-1] == 2 * number * clocks
    assert loop.clocks() == [clocks + 1] * number


def test_an_older_attempt_is_refused():
    with ranks(2, 2, 1) as made:
        old = made.paces[0]
        made.restart(0)
        for late in (old.tick, old.leave, lambda: old.pull(made.target, homes(1))):
            with pytest.raises(
                AttemptFenced, match=r"attempt 1 of rank 0 .* attempt 3 has replaced"
            ):
                late()
        with pytest.raises(AttemptFenced):
            made.loop.join(0, 2)


def test_a_waiting_pull_hears_that_it_is_fenced_or_that_the_loop_ends():
    with ranks(1, 3, 0) as made, ThreadPoolExecutor(2) as pool:
        for rank in (0, 1):
            made.paces[rank].tick()
        waits = [pool.submit(made.paces[rank].pull, made.target, homes(1)) for rank in (0, 1)]
        made.restart(0)
        with pytest.raises(AttemptFenced):
            waits[0].result()
        made.loop.close()
        with pytest.raises(LoopClosed):
            waits[1].result()
        with pytest.raises(LoopClosed, match="no loop 'test': it was closed"):
            made.loop.clocks()


def test_a_rank_that_was_out_goes_on_with_the_slowest_of_the_others():
    with ranks(3, 3, 1) as made:
        for rank, clocks in ((0, 5), (1, 3)):
            for _ in range(clocks):
                made.paces[rank].tick()
        assert made.ask(0, homes(1)) is None
        made.loop.exclude(2, 999)
        assert made.ask(0, homes(1)) is None, "another attempt was meant"
        made.loop.exclude(2, made.paces[2].attempt)
        made.paces[1].tick()
        assert made.ask(0, homes(1)) is not None
        made.restart(2)
        assert made.paces[2].now == 4
        made.paces[0].leave()
        made.paces[1].tick()
        made.restart(0)
        assert made.paces[0].now == 6, "its own clock, as it had left after that"


@pytest.mark.parametrize("bound", [0, 1, None])
def test_own_pushes_are_seen_once_where_only_some_servers_have_the_tick(bound):
    where = np.array([7, LENGTH - 1])  # on the first server, on the last
    with ranks(2, 2, bound) as made:
        made.paces[0].push(made.target, where, np.ones(2))
        made.tick_and_die(0, reached=[0])
        pace = made.paces[0]
        assert pace.now == 0
        pace.push(made.target, where, np.ones(2))
        assert pace.pull(made.target, where).tolist() == [1.0, 1.0]
        made.paces[1].tick()
        assert pace.pull(made.target).sum() == 2.0
        pace.tick()
        assert pace.pull(made.target, where).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("where", [None, np.arange(LENGTH)])
def test_what_was_pushed_may_be_overwritten(where):
    with ranks(2, 1, 1) as made:
        pace, values = made.paces[0], np.ones(LENGTH)
        ahead = pace.ask(made.target, None, 1)
        pace.push(made.target, where, values)
        values[:] = 10.0
        assert (pace.pull(made.target) == 1.0).all()
        pace.tick()
        values[:] = 100.0
        assert (pace.receive(made.target, ahead) == 1.0).all()
        assert (made.values() == 1.0).all()


def test_a_rank_that_comes_back_skips_what_some_servers_would_not_count():
    where = np.array([7, LENGTH - 1])
    with ranks(2, 2, 0) as made:
        made.loop.exclude(1, made.paces[1].attempt)
        made.unreachable = {1}
        with pytest.raises(ServerLost):
            made.paces[0].tick()
        made.unreachable = set()
        made.restart(1)
        assert made.paces[1].now == 1
        made.restart(0)
        made.paces[0].tick()
        made.paces[1].push(made.target, where, np.ones(2))
        for pace in made.paces:
            pace.leave()
        assert made.values()[where].tolist() == [1.0, 1.0]


def test_a_rank_whose_first_question_was_answered_in_vain_asks_again():
    """It hears once more that it had been out, and goes on at one clock on all servers."""
    with ranks(2, 2, 0) as made:
        made.loop.exclude(1, made.paces[1].attempt)
        made.unreachable = {1}
        with pytest.raises(ServerLost):
            made.paces[0].tick()
        made.unreachable = set()
        made.loop._join(member=1, attempt=9)
        assert made.loop.join(1, 9) == 1


def test_an_excluded_rank_that_lives_counts_on_and_catches_up():
    with ranks(2, 2, 0) as made:
        made.loop.exclude(1, made.paces[1].attempt)
        for _ in range(3):
            made.paces[0].tick()
        for clock in range(3):
            assert made.ask(1, homes(1)) is not None
            assert made.paces[1].now == clock
            made.paces[1].push(made.target, np.array([7]), np.ones(1))
            made.paces[1].tick()
        assert made.values()[7] == 3.0
        made.paces[0].tick()
        assert made.ask(0, homes(1)) is None, "rank 1 is waited for again"


def test_messages():
    """A clock of a rank: one message a server to pull and one to tick; a push sends nothing."""
    with ranks(3, 1, 0) as made:
        pace, counters = made.paces[0], made.client.counters
        counters.reset()
        pace.pull(made.target, np.array([1, 2, 3]))
        assert counters.snapshot()["messages"] == 1
        pace.push(made.target, np.array([4000, 1]), np.ones(2))
        pace.push(made.target, None, np.ones(LENGTH))
        pace.pull(made.target)
        assert counters.snapshot()["messages"] == 2
        pace.tick()
        assert counters.snapshot()["messages"] == 3
        assert pace.pull(made.target, np.empty(0, np.int64)).shape == (0,)
        assert counters.snapshot()["messages"] == 4


def test_nothing_of_a_loop_stays():
    with ranks(1, 2, 0) as made:
        before = made.client.status()[0].used
        made.paces[0].push(made.target, None, np.ones(LENGTH))
        made.paces[0].tick()
        kept = made.client.status()[0].used - before
        assert 2 * 8 * LENGTH <= kept < 2 * 8 * LENGTH + 4096
        made.loop.close()
        assert made.client.status()[0].used <= before


def test_refusals():
    with ranks(2, 2, 1) as made:
        with pytest.raises(ValueError, match="ranks must be between 1"):
            made.client.loop("other").open(0, None)
        with pytest.raises(ValueError, match="rank 2 is out of range: loop 'test' has 2"):
            made.loop.join(2, 9)
        with pytest.raises(LoopClosed):
            made.client.loop("other").join(0, 1)
        made.client.free([made.target.number])
        with pytest.raises(BufferLost):
            made.paces[0].pull(made.target)
