"""Looking at plans and costs: explain, drawings, profiles."""

from __future__ import annotations

import contextvars
import io
import json
import threading
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import distvec as dv
from distvec.diagnostics.diagram import Box, Diagram
from distvec.diagnostics.profile import Profile
from distvec.planner import Reason

N = 5000


def direction(ps: dv.Session) -> dv.DistArray:
    """A pair of L-BFGS: two inner products, one after the other before the algebra."""
    s, y, g = (ps.random.normal(N, seed=seed).persist() for seed in range(3))
    q = g - (s @ g) / (s @ y) * y
    return q - (y @ q) / (s @ y) * s


def line_of(text: str) -> int:
    """Number of the line of this file that ends with ``text``."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = (k for k, line in enumerate(lines, 1) if line.endswith(text))
    return number


def test_explain_says_what_was_expanded_and_what_waits(ps: dv.Session) -> None:
    text = direction(ps).explain()
    assert "\nprogram 2, as 2 of its scalars follow from program 1\n" in text
    assert "\nsweep 1 of program 2 runs by an interpreter: the arrays are short" in text
    assert (
        "note: 1 inner products of linear combinations follow from those of stored vectors" in text
    )


def test_a_notebook_shows_the_lines_of_explain(ps: dv.Session) -> None:
    for text in (direction(ps).explain(), direction(ps).explain("dot"), ps.ones(1).explain()):
        assert isinstance(text, str) and repr(text) == str(text) == text
        assert type(str(text)) is str
    assert len(repr(direction(ps).explain()).splitlines()) > 2


def test_explain_says_what_was_computed_directly(ps: dv.Session) -> None:
    rng = np.random.default_rng(1)
    y = rng.standard_normal(N)
    a, b = ps.array(y + 1e-9 * rng.standard_normal(N)), ps.array(y)
    product = (a - (a @ b) / (b @ b) * b) @ b
    assert "cancel" not in product.explain()
    float(product)
    assert ps.cancellations == 1
    assert "1 inner products are computed directly" in product.explain()
    assert "note: 1 programs of an earlier plan ran before: 1 expanded" in product.explain()


def test_below_one_the_limit_switches_expansion_off(ps: dv.Session) -> None:
    ps.cancellation_limit = 0
    assert direction(ps).explain().startswith("3 programs")
    with pytest.raises(ValueError, match="must be 0 or more"):
        ps.cancellation_limit = -1


def test_explain_says_why_vectors_are_stored_or_not(ps: dv.Session) -> None:
    x = ps.array(np.linspace(0, 1, N))
    unnamed = np.exp(x) / np.exp(x).sum()
    assert "is stored: needed by 2 programs" in unnamed.explain()
    shifted = (x + 2.0) / (x + 2.0).sum()
    assert "cheaper than to store it" in shifted.explain()


def test_pending_arrays_that_come_along_are_told(ps: dv.Session) -> None:
    x = ps.array(np.ones(N))
    total, largest = x.sum(), x.max()
    assert "note: 1 pending arrays come along" in total.explain()
    assert largest.node.value is None


def test_a_plan_in_the_dot_language(ps: dv.Session) -> None:
    d = direction(ps)
    text = d.explain("dot")
    assert text.startswith("digraph plan {") and text.endswith("}")
    assert text.count("subgraph cluster_") == 2
    assert text.count("{") == text.count("}")
    assert 'label="store: asked for"' in text
    assert "client0 -> p1s0v" in text, "the scalars of the second program come from the first"
    d.persist()
    assert d.explain("dot") == text
    assert "cluster" not in ps.array([1.0]).explain("dot")
    with pytest.raises(ValueError, match="format must be 'text', 'dot' or 'svg'"):
        d.explain("pdf")


_SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("count", [1, 12, 300])
def test_a_plan_as_a_drawing(ps: dv.Session, count: int) -> None:
    """All nodes once, apart from one another, and edges from box to box."""
    d = direction(ps)
    for k in range(count):
        d = np.tanh(d + float(k)) if count < 300 else d * np.float64(k + 1) + np.sin(d)
    text = d.explain("svg")
    root = ElementTree.fromstring(text)
    assert text._repr_svg_() == text and d.explain()._repr_svg_() is None
    boxes = root.findall(f"{_SVG}g")
    labels = [box.find(f"{_SVG}text").text for box in boxes]
    names = [line.split()[0] for line in d.explain("dot").splitlines() if " [label=" in line]
    is_folded = any("operations" in label and "scalar" not in label for label in labels)
    assert is_folded == (len(names) > 200)
    assert is_folded or sorted(box.get("id") for box in boxes) == sorted(names)
    assert len(boxes) <= 220 and len(set(names)) == len(names)
    places = []
    for box in boxes:
        shape = box[0]
        if shape.tag == f"{_SVG}rect":
            x, y, width = (float(shape.get(key)) for key in ("x", "y", "width"))
            places.append((x, x + width, y))
        elif shape.tag == f"{_SVG}ellipse":
            x, y, radius = (float(shape.get(key)) for key in ("cx", "cy", "rx"))
            places.append((x - radius, x + radius, y - 12.0))
        else:
            points = [tuple(map(float, one.split(","))) for one in shape.get("points").split()]
            xs, ys = zip(*points, strict=True)
            places.append((min(xs), max(xs), min(ys)))
    for k, (left, right, top) in enumerate(places):
        for other_left, other_right, other_top in places[:k]:
            apart = right <= other_left or other_right <= left
            assert apart or abs(top - other_top) > 24.0
    middles = {(round((left + right) / 2, 1), round(top, 1)) for left, right, top in places}
    for path in root.findall(f"{_SVG}path"):
        numbers = path.get("d").replace("M", " ").replace("C", " ").split()
        start, end = (tuple(map(float, pair)) for pair in (numbers[:2], numbers[-2:]))
        assert any(abs(start[0] - x) < 0.2 and abs(start[1] - y - 24) < 0.2 for x, y in middles)
        assert any(abs(end[0] - x) < 0.2 and abs(end[1] - y) < 0.2 for x, y in middles)


def test_labels_are_escaped() -> None:
    found = Diagram([Box("a", "x < y & z"), Box("b", "b")], [("a", "b"), ("a", "gone")], []).svg()
    assert "x &lt; y &amp; z" in found
    assert len(ElementTree.fromstring(found).findall(f"{_SVG}path")) == 1
    assert ElementTree.fromstring(Diagram().svg()).tag == f"{_SVG}svg"


def test_a_profile_has_a_line_per_call_site(ps: dv.Session) -> None:
    x = ps.array(np.ones(N))
    out = io.StringIO()
    began = time.perf_counter()
    with dv.profile(file=out) as found:
        for k in range(3):
            float((x * float(k)).sum())  # first site
        x.pull([1, 2])  # second site
        ps.array(np.zeros(10))  # third site
    elapsed = time.perf_counter() - began
    sites = {int(site.rsplit(":", 1)[1]): cost for site, cost in found.sites.items()}
    first = sites[line_of("# first site")]
    assert (first.calls, first.messages, first.sweeps) == (3, 3, 3)
    assert first.memory == 3 * 8 * N
    second, third = sites[line_of("# second site")], sites[line_of("# third site")]
    assert (second.calls, second.messages, second.sweeps) == (1, 1, 0)
    assert third.messages == 1
    assert third.network > 80
    total = found.total
    assert total.messages == 5
    assert 0 < total.client + total.wire + total.server <= elapsed
    assert min(total.client, total.wire, total.server) > 0
    assert len(found.plans) == 3
    table = out.getvalue().splitlines()
    assert table[0].split()[:3] == ["call", "site", "calls"]
    assert any("# first site" in line or "float((x" in line for line in table)
    assert table[4].startswith("total")
    assert table[5].endswith(": 3 programs")
    assert table[6].startswith("  3: a value was asked for")


def test_a_profile_is_over_at_its_end(ps: dv.Session) -> None:
    x = ps.array(np.ones(N))
    with dv.profile(show=False) as outer, dv.profile(show=False) as inner:
        float(x.sum())
    float(x.max())
    assert (outer.total.calls, inner.total.calls) == (0, 1)


def test_helpers_of_other_libraries_are_not_the_call_site(ps: dv.Session) -> None:
    x = ps.array(np.ones(N))

    def helper() -> None:
        __tracebackhide__ = True
        (x + 1.0).persist()

    with dv.profile(show=False) as found:
        helper()  # here
    assert [int(site.rsplit(":", 1)[1]) for site in found.sites] == [line_of("# here")]


def test_a_profile_counts_all_programs_by_reason(ps: dv.Session) -> None:
    rng = np.random.default_rng(1)
    y = rng.standard_normal(N)
    a, b = ps.array(y + 1e-9 * rng.standard_normal(N)), ps.array(y)
    ps.counters.reset()
    with dv.profile(show=False) as report:
        float((a - (a @ b) / (b @ b) * b) @ b)
        x = b
        for _ in range(3):
            x = x / (x @ x)
        x.persist()
    (product, loop) = report.reasons.values()
    assert product == {Reason.ASKED: 1, Reason.CANCELLED: 1}
    assert loop == {Reason.ASKED: 1, Reason.SCALAR: loop.total() - 1}
    assert product.total() + loop.total() == ps.counters.messages == report.total.messages
    assert sum(len(plan.programs) for plan in report.plans) == ps.counters.messages
    assert "  1: an expanded inner product lost digits (session.cancellation_limit" in str(report)


def test_a_profile_leaves_out_a_plan_that_failed(ps: dv.Session) -> None:
    x, beyond = ps.array([1.0, 2.0]), ps.array([5, 0])
    with dv.profile(show=False) as report, pytest.raises(IndexError):
        x[beyond].persist()
    assert report.plans == []
    assert sum(counts.total() for counts in report.reasons.values()) == 0


def test_a_timeline_keeps_perfettos_rules(tmp_path):
    """Integers for processes and threads, names for both, and slices that nest or are apart."""
    with dv.local(2, in_process=True) as ps, dv.profile(show=False, timeline=True) as report:
        x = ps.array(np.arange(100_000.0))

        def work():
            for _ in range(5):
                float(x @ x)
                float((x + 1).sum())

        other = threading.Thread(target=contextvars.copy_context().run, args=(work,))
        other.start()
        work()
        other.join()
    report.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert all(type(one["pid"]) is int and 0 <= one["pid"] < 2**32 for one in events)
    assert all(type(one["tid"]) is int and 0 <= one["tid"] < 2**32 for one in events)
    named = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert named == {1: "driver", 100: "server 0", 101: "server 1"}
    slices = [one for one in events if one["ph"] == "X"]
    assert {one["pid"] for one in slices} == set(named)
    calls = [one for one in slices if one["pid"] == 1]
    assert len(calls) == report.total.calls
    assert sum(one["args"].get("messages", 0) for one in calls) == report.total.messages
    tracks: dict[tuple[int, int], float] = {}
    for one in sorted(slices, key=lambda one: one["ts"]):
        track = one["pid"], one["tid"]
        assert one["ts"] >= tracks.get(track, 0.0) - 1e-6 and one["dur"] >= 0.0
        tracks[track] = one["ts"] + one["dur"]
    with pytest.raises(ValueError, match="timeline=True"):
        Profile().save(tmp_path / "none.json")


def test_each_call_is_a_span_below_the_current_one(ps: dv.Session) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("tests")
    x, beyond = ps.array([1.0, 2.0]), ps.array([5, 0])
    with (
        tracer.start_as_current_span("step") as step,
        dv.profile(show=False, timeline=True, tracer=tracer) as report,
    ):
        float(x @ x)
        with pytest.raises(IndexError):
            x[beyond].persist()
    good, bad, outer = exporter.get_finished_spans()
    assert good.name.startswith("test_profile.py:") and good.name.endswith("float(x @ x)")
    assert outer.name == "step"
    for span, call in zip((good, bad), report.timeline or (), strict=True):
        assert span.parent is not None and span.parent.span_id == step.get_span_context().span_id
        assert span.attributes is not None
        assert span.attributes["distvec.messages"] == call.cost.messages
        assert span.attributes["distvec.memory"] == call.cost.memory
        assert (span.end_time or 0) - (span.start_time or 0) == round(call.seconds * 1e9)
    assert not good.events and [one.name for one in bad.events] == ["exception"]
