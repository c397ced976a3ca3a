"""Pages, docstrings of what users import, and errors name who acts: see ``docs/words.py``."""

from __future__ import annotations

import pytest

from docs import words

MOST = {"pages": 14, "docstrings": 11, "errors": 3}
"""Markers that are left. These numbers may only fall."""


@pytest.mark.parametrize("kind", MOST)
def test_the_words_are_plain(kind: str) -> None:
    texts = words.KINDS[kind]()
    counts = {name: sum(words.markers(text).values()) for name, text in texts.items()}
    assert sum(counts.values()) <= MOST[kind], "python -m docs.words lists them"
    assert words.rate(texts.values()) < words.LIMIT
    many = {
        name: count
        for name, count in counts.items()
        if count > max(3, words.LIMIT * words.words(texts[name]) / 1000)
    }
    assert not many, "python -m docs.words FILE prints the sentences"
