"""One owner per server number, leases, lives; without Spark."""

from __future__ import annotations

import pytest

from distvec.spark.cluster.registry import LEAVE, SERVE, STOP, WAIT, Claim, Registry
from ps_backend.errors import ServerLost
from ps_backend.transport import Location


def test_a_number_has_one_owner():
    registry = Registry(2)
    assert registry.claim(Claim(0, 7), 1) == SERVE
    assert registry.claim(Claim(0, 8), 2) == WAIT
    assert registry.claim(Claim(1, 9), 3) == SERVE
    assert registry.locate(0) is None
    assert registry.claim(Claim(0, 7, "a:1", 5), 1) == SERVE
    assert registry.locate(0) == Location("a:1", 0)
    assert not registry.wait_until_serving(0)
    assert registry.claim(Claim(1, 9, "b:1", 6), 3) == SERVE
    assert registry.wait_until_serving(0)
    assert registry.pids == (5, 6)
    with pytest.raises(ValueError, match="server=2; there are 2"):
        registry.claim(Claim(2, 1), 4)


def test_news_is_answered_without_waiting(monkeypatch):
    """A task that has little time left must hear that its new server may answer."""
    registry, waits = Registry(1), []
    monkeypatch.setattr(registry, "wait_for_stop", waits.append)
    assert registry.renew(Claim(0, 7), 1) == SERVE
    assert registry.renew(Claim(0, 7), 1) == SERVE, "its server is starting"
    assert registry.renew(Claim(0, 7, "a:1", 5), 1) == SERVE
    assert not waits
    assert registry.renew(Claim(0, 7, "a:1", 5), 1) == SERVE
    assert len(waits) == 1


def test_servers_whose_task_was_lost_do_not_serve(monkeypatch):
    registry = Registry(2)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    assert registry.missing() == "server 1: no task has claimed it yet"
    registry.claim(Claim(1, 8), 2)
    assert registry.missing() == "server 1: its process is starting"
    registry.claim(Claim(1, 8, "b:1", 6), 2)
    assert registry.wait_until_serving(0) and not registry.missing()
    registry.let_go(1)
    assert not registry.wait_until_serving(0)
    assert registry.missing() == "server 0: the task that ran it was lost"
    registry.claim(Claim(0, 9, "", 0, "server 0 at a:1: its process 5 was killed"), 3)
    assert "server 0: its process is starting (server 0 at a:1: its pro" in registry.missing()
    monkeypatch.setattr("distvec.spark.cluster.registry.LEASE_SECONDS", 0.0)
    assert not registry.wait_until_serving(0)


def test_a_broken_connection_lets_another_in_and_the_first_learns_of_it():
    registry = Registry(1)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    registry.let_go(1)
    assert "was lost" in registry.diagnose("a:1")
    assert registry.claim(Claim(0, 8), 2) == SERVE
    assert registry.claim(Claim(0, 7, "a:1", 5), 3) == WAIT
    assert registry.locate(0) is None
    registry.claim(Claim(0, 8, "b:1", 6), 2)
    assert registry.locate(0) == Location("b:1", 1)


def test_an_owner_that_connects_again_keeps_its_server():
    registry = Registry(1)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    registry.claim(Claim(0, 7, "a:1", 5), 2)
    registry.let_go(1)  # noticed late
    assert registry.claim(Claim(0, 8), 3) == WAIT
    assert registry.locate(0) == Location("a:1", 0)


def test_a_lease_that_was_not_renewed_runs_out(monkeypatch):
    registry = Registry(1)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    monkeypatch.setattr("distvec.spark.cluster.registry.LEASE_SECONDS", 0.0)
    assert registry.locate(0) is None
    assert registry.claim(Claim(0, 8), 2) == SERVE


def test_a_restart_on_the_same_executor_is_a_generation_too():
    registry = Registry(1)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    registry.claim(Claim(0, 7, "", 0, "server 0 at a:1: it was killed"), 1)
    assert registry.diagnose("a:1") == "server 0 at a:1: it was killed"
    registry.claim(Claim(0, 7, "a:2", 6), 1)
    assert registry.locate(0) == Location("a:2", 1)


def test_each_life_has_a_number_that_no_other_ever_has():
    registry = Registry(1)
    first, second = Claim(0, 7, "a:1", 5), Claim(0, 8)
    assert registry.life(first) == 0
    registry.claim(Claim(0, 7), 1)
    assert registry.life(first) == 1
    registry.claim(Claim(0, 7, "a:1", 5, life=1), 1)
    assert registry.life(first) == 1
    registry.let_go(1)
    registry.claim(second, 2)
    assert (registry.life(first), registry.life(second)) == (0, 2)
    registry.let_go(2)  # before its server answered
    registry.claim(Claim(0, 7, "a:1", 5, life=1), 3)
    assert registry.life(first) == 3
    assert registry.locate(0) is None, "its process is of the first life"
    registry.claim(Claim(0, 7), 3)
    registry.claim(Claim(0, 7, "a:2", 6, life=3), 3)
    assert registry.locate(0) == Location("a:2", 2)
    registry.claim(Claim(0, 7, "", 0, "it was killed"), 3)
    assert registry.life(first) == 4


def test_the_task_of_a_lost_server_that_spark_repeats_leaves_and_the_driver_places_it():
    registry = Registry(2)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    registry.claim(Claim(1, 8, "b:1", 6), 2)
    assert registry.claim(Claim(1, 9, retry=True), 3) == WAIT, "a speculative copy"
    registry.let_go(2)
    assert registry.pids == (5, 0)
    assert registry.claim(Claim(1, 9, retry=True), 3) == LEAVE
    assert registry.locate(1) is None
    assert registry.vacancy() == 1
    assert registry.place(1) == 1
    assert registry.claim(Claim(1, 8, "b:1", 6), 4) == LEAVE, "of the old job"
    assert registry.claim(Claim(1, 10, placement=1), 5) == SERVE
    assert registry.claim(Claim(1, 10, "c:1", 6, placement=1), 5) == SERVE
    assert registry.locate(1) == Location("c:1", 1)
    assert registry.generations == (0, 1)


def test_a_task_that_fails_before_its_server_answers_is_repeated_by_spark():
    registry = Registry(1)
    registry.claim(Claim(0, 7), 1)
    registry.let_go(1)
    assert registry.claim(Claim(0, 8, retry=True), 2) == SERVE
    assert not registry.vacate(0, 0), "to place it anew helps nothing"
    registry.claim(Claim(0, 8, "a:1", 5, retry=True), 2)
    assert registry.vacate(0, 0)
    assert registry.vacancy() == 0
    assert registry.vacate(0, 0), "it is known"


def test_without_room_a_lost_server_is_lost_once_it_was_waited_for(monkeypatch):
    registry = Registry(1)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    registry.vacate(0, 0)
    registry.hold_back("there is no room")
    assert registry.locate(0) is None
    assert "there is no room" in registry.diagnose("a:1")
    monkeypatch.setattr("distvec.spark.cluster.registry.COMING_SECONDS", 0.0)
    with pytest.raises(ServerLost, match=r"server 0 was lost, and there is no room"):
        registry.locate(0)
    registry.place(0)
    assert registry.locate(0) is None


def test_the_end():
    registry = Registry(1)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    registry.stop("because")
    registry.stop("again")
    assert registry.claim(Claim(0, 7, "a:1", 5), 1) == STOP
    assert registry.claim(Claim(0, 8), 2) == STOP
    with pytest.raises(ServerLost, match="because"):
        registry.locate(0)
    assert not registry.wait_until_serving(60)
