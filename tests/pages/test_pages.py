"""The examples of each page run, and print what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import pages


@pytest.mark.parametrize("page", sorted({*pages.PAGES} - {*pages.NEEDS_SPARK}))
def test_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pages.run(page)


def test_a_script_that_is_started_again_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        pages.run("how-to/resume_a_run.md")
