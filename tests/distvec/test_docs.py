"""The page on operations is the op table."""

from __future__ import annotations

from docs import make_operations


def test_the_page_on_operations_is_up_to_date() -> None:
    assert make_operations.PAGE.read_text() == make_operations.page(), (
        "run python -m docs.make_operations"
    )
