"""Pages that are made from code are up to date."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import yaml

from docs import make_losses, make_monitoring, make_operations
from ps_backend.metrics import metric_of

PAGE = make_losses.PAGE.read_text()


def test_the_table_is_that_of_the_losses() -> None:
    assert make_losses.page(PAGE) == PAGE, "run python -m docs.make_losses"


def test_the_table_has_every_loss() -> None:
    assert len(make_losses.losses()) == 18
    assert all(kind.formula for kind in make_losses.losses())


def test_the_page_on_operations_is_up_to_date() -> None:
    assert make_operations.PAGE.read_text() == make_operations.page(), (
        "run python -m docs.make_operations"
    )


def test_alerts_and_charts_are_up_to_date() -> None:
    for path, text in (
        (make_monitoring.RULES, make_monitoring.rules()),
        (make_monitoring.DASHBOARD, make_monitoring.dashboard()),
    ):
        assert path.read_text() == text, "run python -m docs.make_monitoring"


def test_alerts_and_charts_ask_for_metrics_of_the_table() -> None:
    (group,) = yaml.safe_load(make_monitoring.rules())["groups"]
    panels = json.loads(make_monitoring.dashboard())["panels"]
    exprs = [rule["expr"] for rule in group["rules"]]
    exprs += [target["expr"] for panel in panels for target in panel["targets"]]
    for expr in exprs:
        names = re.findall(r"\b(?:distvec|process)_\w+", re.sub(r'"[^"]*"', "", expr))
        assert names or "up{" in expr
        metrics = [metric_of(name) for name in names]
        assert None not in metrics, expr
        labels = {"job", *(label for one in metrics if one for label in one.labels)}
        assert set(re.findall(r"[{,(](\w+)=", expr)) <= labels
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_prometheus_reads_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run([promtool, "check", "rules", make_monitoring.RULES], capture_output=True)
    assert done.returncode == 0, done.stderr
