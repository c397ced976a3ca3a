"""The examples of the pages that need Spark run, and print what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pages import pages


@pytest.mark.parametrize("page", pages.NEEDS_SPARK)
def test_the_page_runs(
    page: str, one_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pages.run(page)
