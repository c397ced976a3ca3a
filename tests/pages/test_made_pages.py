"""Pages that are made from code are up to date."""

from __future__ import annotations

from docs import make_losses, make_operations

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
