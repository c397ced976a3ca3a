"""The README is short, and its examples print what it shows."""

from tests.pages import pages

README = "../README.md"


def test_the_examples_run(one_spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pages.run(README)


def test_the_readme_is_one_page():
    lines = (pages.DOCS / README).read_text().splitlines()
    assert len(lines) <= 150
    assert "    make demo" in "\n".join(lines[:30])
