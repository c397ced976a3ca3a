"""Counts of requests: of many threads, as histograms, and in Prometheus' own reading."""

from __future__ import annotations

import math
import threading

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import distvec as dv
from ps_backend.metrics import DRIVER, SERVER, Sample, escape_label, metric_of, text_of
from ps_backend.server.meters import Meters

_REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["run", "write", "wait"]),
        st.floats(0.0, 1000.0),
        st.integers(0, 1 << 40),
        st.integers(0, 1 << 40),
        st.booleans(),
    ),
    max_size=30,
)


def _values(samples):
    return {one.key: one.value for one in samples}


@given(st.lists(_REQUESTS, min_size=1, max_size=4), st.booleans())
def test_threads_add_up(parts, waits):
    """The counts of several threads, some of which have ended, are those of one list."""
    meters = Meters()

    def work(requests):
        for command, seconds, received, sent, failed in requests:
            meters.count(command, seconds, received, sent, failed=failed, waits=waits)

    threads = [threading.Thread(target=work, args=(part,)) for part in parts[1:]]
    for thread in threads:
        thread.start()
    work(parts[0])
    for thread in threads:
        thread.join()
    values = _values(meters.samples())
    every = [request for part in parts for request in part]
    for command in {request[0] for request in every}:
        mine = [request for request in every if request[0] == command]
        label = f'command="{command}"'
        failed = sum(request[4] for request in mine)
        assert values[f'distvec_requests_total{{{label},outcome="error"}}'] == failed
        assert values[f'distvec_requests_total{{{label},outcome="ok"}}'] == len(mine) - failed
        seconds = [] if waits else [request[1] for request in mine]
        assert values[f"distvec_request_seconds_count{{{label}}}"] == len(seconds)
        assert math.isclose(values[f"distvec_request_seconds_sum{{{label}}}"], math.fsum(seconds))
        for key, count in values.items():
            if key.startswith(f'distvec_request_seconds_bucket{{{label},le="'):
                bound = float(key.split('le="')[1][:-2])
                assert count == sum(one < bound for one in seconds)
    received, sent = (sum(request[place] for request in every) for place in (2, 3))
    assert values['distvec_bulk_bytes_total{direction="received"}'] == received
    assert values['distvec_bulk_bytes_total{direction="sent"}'] == sent


def test_many_threads_take_no_memory():
    meters = Meters()
    for _ in range(500):
        one = threading.Thread(
            target=meters.count, args=("run", 0.1, 0, 0), kwargs={"failed": False, "waits": False}
        )
        one.start()
        one.join()
    assert len(meters._shards) <= 65
    assert _values(meters.samples())['distvec_requests_total{command="run",outcome="ok"}'] == 500


@given(st.text(max_size=20), st.floats(allow_nan=False))
def test_text_is_what_prometheus_reads(label, value):
    sample = Sample("distvec_buffers", value, f'name="{escape_label(label)}"')
    (family,) = text_string_to_metric_families(text_of([sample]))
    (found,) = family.samples
    assert found.labels == {"name": label} and found.value == value


def test_a_server_gives_the_metrics_of_the_table():
    """All of them; as Prometheus reads them they have the table's kinds and labels."""
    with dv.local(2, in_process=True) as ps:
        x = ps.arange(10.0)
        x.push([1], [2.0])
        samples = ps.client.observe()[0].samples
        families = {one.name: one for one in text_string_to_metric_families(text_of(samples))}
    assert {metric_of(one.name).name for one in samples} == set(SERVER)
    for name, metric in SERVER.items():
        family = families[name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert {label for one in family.samples for label in one.labels} == set(metric.labels)
    assert not set(SERVER) & set(DRIVER)


def test_counts_of_a_session():
    with dv.local(2, in_process=True) as ps:
        x = ps.arange(100_000.0)
        before = dv.metrics(ps)
        messages = ps.counters.messages
        float(x @ x)
        assert ps.counters.messages == messages + 1  # ``metrics`` itself counts nowhere
        after = dv.metrics(ps)
        key = 'distvec_requests_total{command="run",outcome="ok"}'
        for address, values in after.items():
            assert values[key] == before[address].get(key, 0.0) + 1
            assert values["distvec_sessions"] == 1 and values["distvec_ready"] == 1
            assert values["distvec_memory_refused_total"] == 0


def test_refused_memory_and_errors_are_events():
    with dv.local(1, in_process=True, memory="1m") as ps:
        for _ in range(2):
            try:
                ps.ones(1_000_000).persist()
            except dv.OutOfBudget:
                continue
        (values,) = dv.metrics(ps).values()
    assert values['distvec_events_total{event="out_of_budget"}'] >= 2
    assert values["distvec_memory_refused_total"] >= 2
    assert values['distvec_events_total{event="session_opened"}'] == 1
