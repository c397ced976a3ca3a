"""Where there can be no hosts of their own, these tests say why they are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.hosts import why_no_latency, why_not


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    reason = (why_not() or why_no_latency()) if here else ""
    for item in here if reason else ():
        item.add_marker(pytest.mark.skip(reason=reason))
