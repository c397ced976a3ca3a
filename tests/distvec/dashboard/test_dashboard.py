"""The page of a session: who may see it, and the state that it shows, beside the session's own."""

from __future__ import annotations

import http.client
import json
import logging
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import distvec as dv
import optim
from distvec.dashboard.series import Series, thinned
from ps_backend.metrics import DRIVER
from tests.served import Served
from tests.waiting import PATIENCE

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture
def ps():
    with dv.local(2, in_process=True) as session:
        yield session


def get(page, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=PATIENCE)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def state_of(page, since=0.0):
    headers = {"Authorization": f"Bearer {page.token}"}
    status, _, body = get(page, f"/state.json?since={since}", **headers)
    assert status == 200
    return json.loads(body)


def square(x):
    return float(x @ x), 2 * x


# --- who may see it -------------------------------------------------------------------------------


def test_the_link_lets_a_browser_in(ps):
    page = ps.dashboard()
    assert get(page, "/")[0] == get(page, "/state.json")[0] == get(page, "/metrics")[0] == 401
    assert get(page, "/login?token=wrong")[0] == get(page, "/login")[0] == 401
    status, headers, _ = get(page, page.url.partition(f":{page.port}")[2])
    assert (status, headers["Location"]) == (303, "./")
    cookie = headers["Set-Cookie"]
    assert cookie.startswith(f"distvec_{page.port}=")
    assert "HttpOnly; SameSite=Strict" in cookie
    status, headers, body = get(page, "/", Cookie=f"other=1; {cookie.partition(';')[0]}")
    assert status == 200 and page.token not in body
    nonce = re.search(r"script-src 'nonce-([^']+)'", headers["Content-Security-Policy"])[1]
    assert body.count(f'nonce="{nonce}"') == 3 and "{{" not in body
    assert nonce not in get(page, "/", Cookie=cookie.partition(";")[0])[2]


def test_nothing_comes_from_another_origin(ps):
    page = ps.dashboard()
    body = get(page, "/", Authorization=f"Bearer {page.token}")[2]
    assert re.findall(r"(?:src|href|url\(|@import|fetch\()[^>]{0,20}(?://|http)", body) == []
    assert len(body) < 120_000


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:1", ""])
def test_a_strangers_name_is_refused(ps, host):
    page = ps.dashboard()
    headers = {"Host": host, "Authorization": f"Bearer {page.token}"}
    assert get(page, "/state.json", **headers)[0] == 421


def test_a_proxys_name_may_be_allowed(ps):
    page = ps.dashboard(allowed_hosts=["Hub.example"])
    headers = {"Authorization": f"Bearer {page.token}"}
    for host in ("hub.example", f"hub.example:{page.port}", f"localhost:{page.port}"):
        assert get(page, "/state.json", Host=host, **headers)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(ps, method):
    page = ps.dashboard()
    status, headers, _ = get(page, "/state.json", method, Authorization=f"Bearer {page.token}")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


# --- what it shows --------------------------------------------------------------------------------


def test_runs_are_those_of_the_solver(ps):
    page = ps.dashboard()
    result = optim.LBFGS().minimize(lambda x: square(x - 1.0), ps.zeros(5))
    (run,) = state_of(page)["runs"]
    assert run["solver"] == "LBFGS" and run["success"] and run["outcome"] == result.message
    assert run["points"]["value"] == [record.value for record in result.history]
    assert run["points"]["gradient_norm"] == [record.gradient_norm for record in result.history]
    assert run["points"]["iteration"] == list(range(len(result.history)))
    assert run["iteration"] == result.nit and run["value"] == result.fun
    assert state_of(page, since=run["points"]["t"][-1])["runs"][0]["points"]["value"] == []


def test_values_that_are_not_finite_leave_a_gap(ps):
    page = ps.dashboard()
    optim.GradientDescent().minimize(lambda x: (float("inf"), x), np.ones(2))
    (run,) = state_of(page)["runs"]
    assert run["value"] is None and run["points"]["value"] == [None]


def test_lines_arrays_and_events(ps):
    page = ps.dashboard()
    x = ps.array(np.arange(1000.0))
    y = 2 * x
    total = float(y.sum())
    logging.getLogger("distvec.tests").warning("hostile %s", HOSTILE)
    state = state_of(page)
    costs = {line["site"]: line for line in state["lines"]}
    (site,) = [site for site in costs if "float(y.sum())" in site]
    assert total == 999_000 and costs[site]["messages"] == costs[site]["calls"] == 1
    assert costs[site]["reasons"][0]["count"] == 1
    rows = {row["site"].partition("  ")[2][:14].strip(): row for row in state["arrays"]}
    stored = rows["x = ps.array(n"]
    assert stored["shape"] == [1000] and stored["stored"] and stored["bytes"] == 8000
    assert sum(stored["shares"]) == 8000
    assert "y = 2 * x" in rows
    assert any(HOSTILE in event["text"] for event in state["events"])
    newest = state["events"][-1]["t"]
    assert state_of(page, since=newest)["events"] == []


def test_servers_and_checkpoints(ps, tmp_path):
    page = ps.dashboard()
    ps.checkpoint(tmp_path / "run", w=ps.ones(10))
    space = ps.keys()
    space.zeros().push([3, 5, 7], [1.0, 1.0, 1.0])
    page.report(tmp_path / "run.html")  # it takes a sample
    state = state_of(page)
    assert [row["address"] for row in state["servers"]] == list(ps.client.addresses)
    assert sum(row["keys"] for row in state["servers"]) == 3
    assert state["history"]["keys"][-1] == 3 and state["alarms"] == []
    (kept,) = state["durability"]["directories"]
    assert kept["arrays"] >= 1 and not kept["writing"]
    assert kept["path"].startswith(str(tmp_path / "run"))


def test_the_journal_of_a_session_with_replay(tmp_path):
    with dv.local(1, in_process=True, durability="replay", checkpoint=tmp_path) as ps:
        page = ps.dashboard()
        x = ps.ones(1000).persist()
        journal = state_of(page)["durability"]["journal"]
        assert journal["requests"] == 1
        assert journal["bytes"] == ps.client.journal.nbytes > 0
        assert journal["recoveries"] == 0
        ps.checkpoint(x=x)
        assert state_of(page)["durability"]["journal"]["requests"] == 0


def test_metrics_are_those_of_the_table(ps):
    page = ps.dashboard()
    optim.minimize(square, ps.ones(3))
    status, headers, text = get(page, "/metrics", Authorization=f"Bearer {page.token}")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert set(families) == {name.removesuffix("_total") for name in DRIVER}
    for name, metric in DRIVER.items():
        assert families[name.removesuffix("_total")].type == metric.kind
    assert families["distvec_driver_objective"].samples[0].value == 0.0


def test_a_viewer_costs_no_message(ps):
    """The counters, and so plans' costs, are those of a session without a page."""

    def work():
        x = ps.array(np.arange(100.0))
        ps.counters.reset()
        for _ in range(3):
            x = x / np.sqrt(x @ x)
        float(x[0])
        return ps.counters.snapshot()

    work()  # the servers know the programs from then on
    expected = work()
    page = ps.dashboard()
    state_of(page)
    assert work() == expected
    with dv.profile(show=False) as found:  # one's own profile goes before that of the page
        work()
    assert found.total.messages == sum(cost.messages for cost in found.sites.values()) > 0


def test_it_ends_with_the_session_and_leaves_nothing():
    with dv.local(1, in_process=True) as ps:
        page = ps.dashboard()
        assert ps.dashboard() is page and "ssh -L" in repr(page) and page.url in page._repr_html_()
        page.close()
        assert ps.counters.profile is None and ps.sites is None
        again = ps.dashboard()
        assert again is not page
    again.close()
    assert repr(again) == "<Dashboard, closed>"
    with pytest.raises(OSError, match="refused"):
        get(again, "/healthz")
    with pytest.raises(dv.PSError, match="closed"):
        ps.dashboard()


def test_the_report_is_one_file(ps, tmp_path):
    optim.minimize(square, ps.ones(3))
    with ps.dashboard() as page:
        optim.minimize(square, ps.ones(3))
        logging.getLogger("distvec.tests").warning("hostile %s", HOSTILE)
        ps.report(tmp_path / "run.html")
        text = (tmp_path / "run.html").read_text()
        assert page.token not in text
    found = re.search(r'<script id="state" type="application/json">(.*?)</script>', text, re.S)[1]
    state = json.loads(found)
    assert HOSTILE not in text and any(HOSTILE in one["text"] for one in state["events"])
    assert len(state["runs"]) == 1  # since the page was opened
    ps.report(tmp_path / "other.html")  # without one
    assert '"runs":[]' in (tmp_path / "other.html").read_text()


# --- series ---------------------------------------------------------------------------------------

_ROWS = st.lists(
    st.tuples(st.floats(-9, 9), st.none() | st.floats(-9, 9)), min_size=0, max_size=400
)


@given(_ROWS, st.integers(4, 50))
def test_thinned_rows_keep_ends_and_extremes(rows, most):
    found = thinned(rows, most)
    assert len(found) <= most or len(rows) <= most
    assert [row for row in rows if any(row is one for one in found)] == list(found)
    if rows:
        assert found[0] is rows[0] and found[-1] is rows[-1]
    values = [row[1] for row in rows if row[1] is not None]
    kept = [row[1] for row in found if row[1] is not None]
    if values:
        assert (min(values), max(values)) == (min(kept), max(kept))


def test_series_are_bounded():
    series = Series("value", kept=5)
    for time in range(10):
        series.add(float(time), float("nan") if time == 8 else time)
    assert series.since(0.0) == {"t": [5, 6, 7, 8, 9], "value": [5, 6, 7, None, 9]}
    assert series.since(9.0) == {"t": [], "value": []}


# --- servers without a driver ---------------------------------------------------------------------


def test_the_command_shows_servers_that_are_restarted(tmp_path):
    """``distvec dashboard``: the page goes on over the loss of a server, and says so."""
    served = Served(tmp_path, 1)
    try:
        command = [sys.executable, "-m", "distvec.command_line", "dashboard"]
        command += [",".join(served.addresses), "--token-file", str(tmp_path / "token")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            url = process.stdout.readline().split()[-1]

            class Page:
                port = int(re.search(r":(\d+)/", url)[1])
                token = url.partition("token=")[2]

            state = state_of(Page)
            assert not state["driver"] and state["servers_count"] == 1
            served.again(0)
            texts: list[str] = []
            while not any("took the place" in text for text in texts):
                texts += [one["text"] for one in state_of(Page)["events"]]
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
    finally:
        served.end()
