"""Write deploy/: Prometheus' alert rules and Grafana's dashboard, ``python -m docs.make_monitoring``.

Both are made here, so that a metric that is renamed in ``ps_backend/metrics.py`` fails a test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEPLOY = Path(__file__).parents[1] / "deploy"
RULES, DASHBOARD = DEPLOY / "prometheus" / "rules.yml", DEPLOY / "grafana" / "distvec.json"


@dataclass(frozen=True)
class Alert:
    """A rule: ``expr`` holds for so long."""

    name: str
    expr: str
    lasts: str
    severity: str
    summary: str
    action: str


ALERTS = (
    Alert(
        "DistvecServerDown",
        'up{job="distvec"} == 0',
        "1m",
        "critical",
        "A parameter server does not answer.",
        "Look at its log; sessions with durability=rollback wait for its replacement.",
    ),
    Alert(
        "DistvecServerRestarted",
        'changes(process_start_time_seconds{job="distvec"}[10m]) > 0',
        "0m",
        "warning",
        "A parameter server was restarted, and is empty.",
        "Sessions that used it restore a checkpoint, or make their arrays again.",
    ),
    Alert(
        "DistvecMemoryNearBudget",
        'distvec_memory_bytes{kind="used"} / on(instance) distvec_memory_budget_bytes > 0.9',
        "5m",
        "warning",
        "More than 90 % of the memory budget is used.",
        "Free arrays, raise --memory, or use more servers.",
    ),
    Alert(
        "DistvecMemoryRefused",
        "increase(distvec_memory_refused_total[10m]) > 0",
        "0m",
        "warning",
        "Requests were refused for want of memory (OutOfBudget).",
        "Free arrays, raise --memory, or use more servers.",
    ),
    Alert(
        "DistvecInternalErrors",
        'increase(distvec_events_total{event="internal_error"}[10m]) > 0',
        "0m",
        "warning",
        "A request failed by an internal error.",
        "The trace is in the log of the server: please report it.",
    ),
    Alert(
        "DistvecSlowRequests",
        'increase(distvec_events_total{event="slow_request"}[10m]) > 10',
        "0m",
        "warning",
        "Many requests take longer than a second.",
        "distvec status --slow lists them.",
    ),
    Alert(
        "DistvecWorkIsSkewed",
        "max(rate(process_cpu_seconds_total[5m]) and distvec_ready)"
        " > 1.5 * avg(rate(process_cpu_seconds_total[5m]) and distvec_ready)"
        " and max(rate(process_cpu_seconds_total[5m]) and distvec_ready) > 0.5",
        "5m",
        "warning",
        "One server works much more than the others.",
        "Look at keys and partitions of the running programs.",
    ),
    Alert(
        "DistvecBitsDiffer",
        "count(count by (bits) (distvec_build_info)) > 1",
        "5m",
        "warning",
        "Servers give different last digits.",
        "Use the same versions on all servers.",
    ),
    Alert(
        "DistvecVersionsDiffer",
        "count(count by (version) (distvec_build_info)) > 1",
        "5m",
        "warning",
        "Servers run different versions.",
        "Upgrade all of them: clients and servers must have one version.",
    ),
    Alert(
        "DistvecDraining",
        "distvec_ready == 0",
        "10m",
        "warning",
        "A server has been draining for ten minutes.",
        "It takes no sessions: end it, or close its last session.",
    ),
)


@dataclass(frozen=True)
class Panel:
    """A chart of Grafana: expressions with their legends."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    stacked: bool = False


PANELS = (
    Panel(
        "Memory used",
        "bytes",
        (
            ('distvec_memory_bytes{kind="used"}', "{{instance}}"),
            ("min(distvec_memory_budget_bytes)", "smallest budget"),
        ),
    ),
    Panel(
        "Requests",
        "reqps",
        (("sum by (command) (rate(distvec_requests_total[$__rate_interval]))", "{{command}}"),),
        stacked=True,
    ),
    Panel(
        "Errors",
        "reqps",
        (
            (
                (
                    'sum by (command) (rate(distvec_requests_total{outcome="error"}'
                    "[$__rate_interval]))"
                ),
                "{{command}}",
            ),
        ),
    ),
    Panel(
        "Seconds of a request, 99 %",
        "s",
        (
            (
                (
                    "histogram_quantile(0.99, sum by (command, le) "
                    "(rate(distvec_request_seconds_bucket[$__rate_interval])))"
                ),
                "{{command}}",
            ),
        ),
    ),
    Panel(
        "Processor",
        "percentunit",
        (
            (
                "rate(process_cpu_seconds_total[$__rate_interval]) and distvec_ready",
                "{{instance}}",
            ),
        ),
    ),
    Panel(
        "Elements per second",
        "Bps",
        (
            (
                "sum by (direction) (rate(distvec_bulk_bytes_total[$__rate_interval]))",
                "{{direction}}",
            ),
        ),
    ),
    Panel(
        "Waiting",
        "short",
        (
            ("distvec_turns_queued", "programs, {{instance}}"),
            ("distvec_waiting", "barriers, {{instance}}"),
        ),
    ),
    Panel(
        "Arrays, keys and sessions",
        "short",
        (
            ("sum(distvec_buffers)", "parts of arrays"),
            ("sum(distvec_keys)", "keys"),
            ("max(distvec_sessions)", "sessions"),
        ),
    ),
    Panel(
        "Resident memory",
        "bytes",
        (("process_resident_memory_bytes and distvec_ready", "{{instance}}"),),
    ),
    Panel(
        "Events",
        "short",
        (("sum by (event) (increase(distvec_events_total[$__rate_interval]))", "{{event}}"),),
        stacked=True,
    ),
)


def rules() -> str:
    """The alert rules as YAML; every text is quoted as JSON, which YAML reads."""
    lines = ["# Made by python -m docs.make_monitoring.", "groups:", "- name: distvec", "  rules:"]
    for one in ALERTS:
        lines += [
            f"  - alert: {one.name}",
            f"    expr: {json.dumps(one.expr)}",
            f"    for: {one.lasts}",
            f"    labels: {{severity: {one.severity}}}",
            "    annotations:",
            f"      summary: {json.dumps(one.summary)}",
            f"      description: {json.dumps(one.action)}",
        ]
    return "\n".join([*lines, ""])


def dashboard() -> str:
    """Grafana's dashboard, which asks for the data source when it is imported."""
    found = {
        "title": "distvec parameter servers",
        "uid": "distvec-servers",
        "tags": ["distvec"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"}
            ]
        },
        "panels": list(_panels()),
    }
    return json.dumps(found, indent=2) + "\n"


def _panels() -> Iterator[dict[str, Any]]:
    source = {"type": "prometheus", "uid": "${source}"}
    for place, one in enumerate(PANELS):
        stacking = {"mode": "normal" if one.stacked else "none", "group": "A"}
        custom = {"fillOpacity": 20 if one.stacked else 0, "stacking": stacking}
        yield {
            "id": place + 1,
            "type": "timeseries",
            "title": one.title,
            "datasource": source,
            "gridPos": {"h": 8, "w": 12, "x": 12 * (place % 2), "y": 8 * (place // 2)},
            "fieldConfig": {"defaults": {"unit": one.unit, "custom": custom}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
            "targets": [
                {
                    "refId": chr(ord("A") + k),
                    "expr": expr,
                    "legendFormat": legend,
                    "datasource": source,
                }
                for k, (expr, legend) in enumerate(one.queries)
            ],
        }


def main() -> None:
    """Write both."""
    for path, text in ((RULES, rules()), (DASHBOARD, dashboard())):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
