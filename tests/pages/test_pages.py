"""The examples of each page run, and print what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import pages


@pytest.mark.parametrize("page", sorted({*pages.PAGES} - {*pages.NEEDS_SPARK}))
def test_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pages.run(page)
