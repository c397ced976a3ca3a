"""A registry that listens, and tasks that supervise a server of it, without Spark."""

from __future__ import annotations

import threading
from contextlib import contextmanager

from distvec.spark.cluster.registry import Registry, serve_registry
from distvec.spark.cluster.supervise import RegistryClient, ServerSpec, Supervisor
from ps_backend.errors import PSError
from tests.waiting import PATIENCE, join_all

KEY = "a key for tests"


@contextmanager
def service(servers):
    registry = Registry(servers)
    listening = serve_registry(registry, "127.0.0.1", "127.0.0.1", KEY)
    try:
        yield registry, listening
    finally:
        registry.stop("the test is over")
        listening.close()


@contextmanager
def supervised(attempts, listening, **more):
    """Tasks that supervise server 0, in threads: yields the threads and their errors by attempt."""
    orders = ServerSpec(listening.address, KEY, 1, 1 << 26, 1, **more)
    found = {
        attempt: Supervisor(orders, 0, attempt, RegistryClient(listening.address, KEY))
        for attempt in attempts
    }
    errors = {}

    def run(attempt):
        try:
            found[attempt].run()
        except PSError as error:
            errors[attempt] = error

    threads = {attempt: threading.Thread(target=run, args=(attempt,)) for attempt in attempts}
    for thread in threads.values():
        thread.start()
    yield threads, errors
    for thread in threads.values():
        join_all(thread)


def until(registry, condition):
    """Wait until something changed in the registry so that the condition holds."""
    with registry._changed:
        assert registry._changed.wait_for(condition, PATIENCE), (
            registry._owners,
            registry._troubles,
        )
