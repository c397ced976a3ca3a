"""The README is short, its examples print what it shows, and links lead somewhere."""

import re

import pytest

from tests.pages import pages

README = "../README.md"


def test_the_examples_run(one_spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pages.run(README)


def test_the_readme_is_one_page():
    lines = (pages.DOCS / README).read_text().splitlines()
    assert len(lines) <= 150
    assert "    make demo" in "\n".join(lines[:30])


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_links_lead_somewhere(page):
    root = pages.DOCS.parent
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (root / page).read_text())
    assert [link for link in links if not (root / link).exists()] == []
