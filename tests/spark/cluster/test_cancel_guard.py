"""Ctrl-C, which cancels all jobs, spares those of the servers."""

from __future__ import annotations

import os
import threading

import pytest

from distvec.spark.cluster.executors import CancelGuard
from tests.waiting import join_all

pytestmark = pytest.mark.spark


def test_cancelling_all_jobs_spares_those_of_the_shield(spark, tmp_path):
    """As PySpark's handler of Ctrl-C does; that servers have such a guard: test_executors."""
    context = spark.sparkContext
    gates = {name: tmp_path / name for name in ("servers", "others")}
    begun = tmp_path / "begun"
    for path in (begun, *gates.values()):
        os.mkfifo(path)
    outcome = {}

    def run(group):
        def task(_):
            begun.write_bytes(b".")
            gates[group].read_bytes()

        context.setJobGroup(group, group, interruptOnCancel=True)
        try:
            context.parallelize([0], 1).foreach(task)
            outcome[group] = "done"
        except Exception as error:  # noqa: BLE001 - Spark's, whichever it is
            outcome[group] = str(error)

    threads = {group: threading.Thread(target=run, args=(group,)) for group in gates}
    guard = CancelGuard(context, "servers")
    guard.up()
    try:
        with begun.open("r+b", buffering=0) as signs:
            for thread in threads.values():
                thread.start()
                assert signs.read(1) == b"."
        context.cancelAllJobs()
        join_all(threads["others"])
        assert "cancelled" in outcome["others"]
        gates["servers"].write_bytes(b".")
        join_all(threads["servers"])
        assert outcome["servers"] == "done"
    finally:
        guard.down()
        context.cancelAllJobs()
    assert "cancelAllJobs" not in vars(context)
