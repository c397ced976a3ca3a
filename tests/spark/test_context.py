"""PSContext: one per SparkContext, found again, refused, stopped."""

from __future__ import annotations

import gc
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

from distvec.spark import LogisticLoss, PSContext
from distvec.spark import task_session as spark_access
from distvec.spark.cluster.start import Options
from distvec.spark.task_session import SessionTicket, join
from ps_backend.errors import ServerLost
from ps_backend.processes.launcher import launch_local
from tests.waiting import FOR_EVER, has_ended

pytestmark = pytest.mark.spark


def profile_of(cpus):
    return ResourceProfileBuilder().require(TaskResourceRequests().cpus(cpus)).build


def test_the_second_call_returns_the_first_context(spark, ps):
    assert PSContext.get_or_create(spark) is ps
    assert PSContext.get_or_create(spark.sparkContext, servers=2) is ps
    assert PSContext.active() is ps


def test_other_servers_than_the_running_are_refused(spark, ps):
    with pytest.raises(
        ValueError, match=r"servers=3, but a PSContext with 2 is running; call stop"
    ):
        PSContext.get_or_create(spark, servers=3)
    with pytest.raises(ValueError, match=r"addresses='localhost:1', but a PSContext with .* is"):
        PSContext.get_or_create(spark, addresses="localhost:1", token="x")


def test_it_is_a_session(ps):
    x = ps.arange(5000, dtype=np.float64)
    assert float(x @ x) == float(np.arange(5000.0) @ np.arange(5000.0))


def test_stop_and_start_again(spark, ps, problem):
    pids = ps.server_pids
    ps.stop()
    ps.stop()
    assert all(has_ended(pid) for pid in pids)
    with pytest.raises(RuntimeError, match=r"start one first: PSContext.get_or_create\(spark\)"):
        LogisticLoss(problem.frame)
    with PSContext.get_or_create(spark, servers=1) as again:
        assert again is not ps
        with LogisticLoss(problem.frame) as loss:
            value, _ = loss(again.zeros(loss.dimension))
            assert float(value) == pytest.approx(np.log(2.0), rel=1e-15)
    assert PSContext._active is None


def test_addresses_of_running_servers(spark, problem):
    if PSContext._active is not None:
        PSContext._active.stop()
    servers = launch_local(2)
    try:
        addresses = ",".join(servers.addresses)
        with pytest.raises(ValueError, match="addresses need the servers' token"):
            PSContext.get_or_create(spark, addresses=addresses)
        with pytest.raises(ValueError, match="servers=3, but addresses= has 2; leave servers out"):
            PSContext.get_or_create(spark, servers=3, addresses=addresses)
        with pytest.raises(ValueError, match="lease= goes with addresses="):
            PSContext.get_or_create(spark, lease=60)
        ps = PSContext.get_or_create(spark, addresses=addresses, token=servers.token, lease=60)
        with ps, LogisticLoss(problem.frame) as loss:
            assert [one.lease for status in ps.client.status() for one in status.held] == [60, 60]
            assert float(loss(ps.zeros(loss.dimension))[0]) == pytest.approx(np.log(2.0))
    finally:
        servers.stop()


def test_what_the_driver_cannot_give_its_servers(spark):
    if PSContext._active is not None:
        PSContext._active.stop()
    with pytest.raises(ValueError, match=r"resource_profile=... with master 'local\[2\]'"):
        PSContext.get_or_create(spark, resource_profile=profile_of(1))
    with pytest.raises(ValueError, match="cores must be 1 or more, got 0"):
        PSContext.get_or_create(spark, cores=0)
    assert PSContext._active is None


def test_the_servers_of_a_driver_have_as_many_threads_as_cores_says(spark):
    if PSContext._active is not None:
        PSContext._active.stop()
    with PSContext.get_or_create(spark, servers=1, cores=3, memory="64m") as ps:
        environment = Path(f"/proc/{ps.server_pids[0]}/environ").read_bytes().split(b"\0")
        assert b"NUMBA_NUM_THREADS=3" in environment
        assert PSContext.get_or_create(spark, cores=3, memory=64 << 20) is ps
        for options, running in [
            ({"memory": "65m"}, "memory='64m'"),
            ({"cores": 2, "memory": "64m"}, "cores=3"),
            ({"resource_profile": profile_of(2)}, "resource_profile=None"),
        ]:
            with pytest.raises(
                ValueError, match=f"but a PSContext with {running} is running; call"
            ):
                PSContext.get_or_create(spark, **options)


def test_resource_profiles_are_what_they_require(spark):
    options = Options(resource_profile=profile_of(2))
    options.refuse_others(None, None, profile_of(2))
    options.refuse_others(None, None, None, 0)
    with pytest.raises(ValueError, match="spares=1, but a PSContext with spares=0 is running"):
        options.refuse_others(None, None, None, 1)
    with pytest.raises(ValueError, match=r"'cpus': 1.0.* a PSContext with .*'cpus': 2.0.* running"):
        options.refuse_others(None, None, profile_of(1))


def test_numbers_that_are_none_are_refused_before_a_running_context_is_found(spark, ps):
    for options, told in (
        ({"servers": "2"}, "servers must be an integer, got '2'; write servers=2"),
        ({"servers": 0}, "servers must be 1 or more, got 0"),
        ({"timeout": -1}, "timeout must be 0 or more seconds"),
    ):
        with pytest.raises((TypeError, ValueError), match=re.escape(told)):
            PSContext.get_or_create(spark, **options)


def test_something_without_a_spark_context():
    with pytest.raises(TypeError, match=r"spark is None; .*SparkSession.builder.getOrCreate\(\)"):
        PSContext.get_or_create(None)
    with pytest.raises(NotImplementedError, match="has no SparkContext"):
        PSContext.get_or_create(object())


def test_a_stopped_server_is_lost_and_replaced(ps, monkeypatch):
    x, before = ps.arange(5000, dtype=np.float64).persist(), ps.generations
    pid = ps.server_pids[1]
    with monkeypatch.context() as patch:  # the other one has the time that servers have
        os.kill(pid, signal.SIGSTOP)
        patch.setattr("ps_backend.processes.server_process.SILENT_SECONDS", 1.0)
        assert has_ended(pid)
    with pytest.raises(ServerLost, match=rf"{x.buffer_id} \(length 5000\)"):
        float(x.sum())
    assert float(ps.ones(3000).sum()) == 3000.0
    assert ps.generations[1] == before[1] + 1


def test_many_tasks_wait_for_a_lost_server_once(monkeypatch):
    connect, waits = spark_access._connect, []

    def connect_once(access):
        waits.append(access)
        try:
            return connect(access)
        finally:
            monkeypatch.setattr("distvec.spark.task_session._JOIN_SECONDS", FOR_EVER)

    monkeypatch.setattr("distvec.spark.task_session._connect", connect_once)
    monkeypatch.setattr("distvec.spark.task_session._JOIN_SECONDS", 0.2)
    access = SessionTicket(("127.0.0.1:1",), "token", "a session of nobody")
    for _ in range(10):
        with pytest.raises(ServerLost, match=r"server 127\.0\.0\.1:1 does not answer"):
            join(access)
    assert len(waits) == 1, "not each waits"


def test_what_a_process_of_spark_has_loaded_is_left_out_of_its_collections(spark, ps):
    access = ps.access

    def frozen(_: object) -> list[int]:
        join(access)
        return [gc.get_freeze_count()]

    before = gc.get_freeze_count()
    assert min(spark.sparkContext.parallelize(range(2), 2).mapPartitions(frozen).collect()) > 10_000
    ps.zeros(3).persist()
    assert gc.get_freeze_count() <= before  # the driver's is the user's; some of it may be gone


def test_a_lost_server_is_server_lost(spark, ps, problem, kill):
    before = ps.generations
    with LogisticLoss(problem.frame) as loss:
        w = ps.zeros(loss.dimension).persist()
        kill(ps.server_pids[1])
        with pytest.raises(ServerLost):
            loss(w)
        assert PSContext.get_or_create(spark) is ps
        assert np.isfinite(float(loss(ps.zeros(loss.dimension))[0])), "it went on with another"
    assert ps.generations == (before[0], before[1] + 1)
    assert float(ps.ones(3000).sum()) == 3000.0


def test_the_old_name_of_release_slots_still_works(ps):
    with pytest.warns(
        DeprecationWarning, match=r"make_way\(\) is deprecated; use release_slots\(\)"
    ):
        ps.make_way()
