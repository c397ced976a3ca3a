"""Arrays and sessions as notebooks show them: nothing is evaluated for it, and all is escaped."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import distvec as dv
from ps_backend.client import Client
from ps_backend.in_process import InProcess
from ps_backend.server.service import Service

ARRAYS: dict[str, Callable[[dv.Session], Any]] = {
    "stored": lambda ps: ps.array(np.arange(5000.0)),
    "computed": lambda ps: (ps.array(np.arange(5000.0)) * 2).persist(),
    "pending": lambda ps: 2 * ps.array(np.arange(5000.0)) - 0.5,
    "sent off": lambda ps: sent_off(ps, ps.array(np.arange(5000.0)) * 2),
    "empty": lambda ps: ps.zeros(0),
    "short": lambda ps: ps.ones(1, np.int32),
    "number": lambda ps: ps.array(3.0),
    "lazy number": lambda ps: ps.arange(5000).sum() + 1,
    "table": lambda ps: ps.array(np.zeros((5000, 3))) + 1,
    "kept": lambda ps: ps.array(np.zeros((5000, 3))).sum(axis=0),
    "known": lambda ps: ps.array(np.zeros((5000, 3))).sum(axis=0).persist(),
    "selection of rows": lambda ps: selected_rows(ps.array(np.zeros((5000, 3)))),
    "selection": lambda ps: selected(ps.array(np.arange(5000.0))),
    "deep": lambda ps: deep(ps.array(np.arange(5000.0)), 300),
    "session": lambda ps: ps,
}


def sent_off(ps: dv.Session, x: Any) -> Any:
    ps.flush()
    return x


def selected(x: Any) -> Any:
    return x[x > 3]


def selected_rows(table: Any) -> Any:
    return table[(table @ np.ones(3)) > 3]


def deep(x: Any, operations: int) -> Any:
    x.session.pending_depth = 10 * operations
    for _ in range(operations):
        x = x * 0.5 + 1.0
    return x


class Reader(HTMLParser):
    """The text of well-formed HTML that has nothing from elsewhere."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.titles: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in {"table", "tbody", "tr", "th", "td"}
        assert {name for name, _ in attributes} <= {"style", "title", "colspan"}
        assert not any("url" in (value or "") for name, value in attributes if name == "style")
        self.titles += [value or "" for name, value in attributes if name == "title"]
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("name", ARRAYS)
def test_it_sends_nothing_and_changes_nothing(ps: dv.Session, name: str) -> None:
    shown = ARRAYS[name](ps)
    before = ps.counters.snapshot(), len(ps.graph), ps.implicit_transfers, ps.implicit_evaluations
    with ps.strict():
        html = shown._repr_html_()
    after = ps.counters.snapshot(), len(ps.graph), ps.implicit_transfers, ps.implicit_evaluations
    assert before == after
    assert len(html) < 6000
    open_texts = Reader(html).texts
    ps.close()
    assert len(Reader(shown._repr_html_()).texts) <= len(open_texts)


@pytest.mark.parametrize("name", [name for name in ARRAYS if name != "session"])
def test_a_notebook_asks_for_no_element(ps: dv.Session, name: str) -> None:
    """It shows the table, and keeps a line of text, which it would else ask ``repr`` for."""
    shown = ARRAYS[name](ps)
    before = ps.counters.snapshot(), ps.implicit_transfers, ps.implicit_evaluations
    with ps.strict():
        bundle = shown._repr_mimebundle_()
    assert before == (ps.counters.snapshot(), ps.implicit_transfers, ps.implicit_evaluations)
    assert bundle["text/html"] == shown._repr_html_()
    assert bundle["text/plain"].startswith(f"<{type(shown).__name__}, ")
    assert bundle["text/plain"].endswith("; print(x) shows its elements>")


def test_a_terminal_shows_elements(ps: dv.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython's there has text alone, and asks ``repr`` for it if the bundle is empty."""
    formatter = SimpleNamespace(active_types=["text/plain"])
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(display_formatter=formatter))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert ps.ones(3)._repr_mimebundle_() == {}
    formatter.active_types = ["text/plain", "text/html"]
    assert "text/html" in ps.ones(3)._repr_mimebundle_()


def rows(x: Any) -> dict[str, str]:
    texts = Reader(x._repr_html_()).texts[1:]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def test_what_it_tells(ps: dv.Session) -> None:
    x = ps.array(np.arange(5000.0))
    y = 2 * x + x * x - 0.5
    assert rows(y) == {
        "dtype": "float64",
        "shape": "(5000,)",
        "bytes": "40 kB on 2 of 2 servers, at most 23.6 kB on one",
        "state": "pending: computed when it is asked for",
        "an evaluation": "1 message to each server, 1 sweep, 1 vector read (40 kB), "
        "1 written (40 kB)",
        "expression": "subtract(add(multiply(2.0, x0), multiply(x0, x0)), 0.5)",
    }
    y.persist()
    told = rows(y)
    assert told["state"] == "stored on the servers"
    assert told["its evaluation"].startswith("1 message to each server, 1 sweep")
    assert "expression" not in told
    assert "its evaluation" not in rows(x), "it was put there"
    ps.close()
    assert rows(y)["state"] == "lost: its session is closed"


def test_what_it_tells_of_numbers_and_selections(ps: dv.Session) -> None:
    x = ps.array(np.arange(5000.0))
    total = (x * x).sum()
    assert rows(total)["expression"] == "sum(multiply(x0, x0))"
    assert "bytes" not in rows(total)
    chosen = x[x > 3]
    assert rows(chosen)["shape"] == "(?,)"
    assert len(chosen) == 4996
    assert rows(chosen)["shape"] == "(4996,)"
    assert rows(chosen)["elements of"] == "float64 (5000,), stored on the servers"
    value = float(total)
    ps.close()
    assert rows(total)["state"] == f"known to the client: {value}"


def test_the_strip_is_as_wide_as_the_servers_shares(sessions: dict[int, dv.Session]) -> None:
    html = sessions[3].zeros(5000)._repr_html_()
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", html)]
    assert widths == pytest.approx([100 * 1024 / 5000, 100 * 2048 / 5000, 100 * 1928 / 5000], 1e-3)
    assert Reader(html).titles[0] == "server 0, in-process:0: 8.19 kB"


def test_the_head_of_a_deep_expression_is_short(ps: dv.Session) -> None:
    told = rows(deep(ps.arange(9), 100))["expression"]
    assert told.startswith("add(multiply(add(multiply(")
    assert "..." in told
    assert len(told) < 100


def test_all_is_escaped() -> None:
    name = "<script>alert('\"&')</script>"
    with dv.Session(Client([InProcess(Service(), name)])) as ps:
        x = ps.array([1.0])
        assert name not in x._repr_html_() + ps._repr_html_()
        assert Reader(x._repr_html_()).titles == [f"server 0, {name}: 8 B"]
        assert f"server {name}" in rows(ps)
        assert "on 1 servers>" in Reader(ps._repr_html_()).texts[0]
