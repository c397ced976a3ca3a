"""docs/reference/losses.md: its table is made from the losses, and lists all of them."""

from __future__ import annotations

from docs import make_losses

PAGE = make_losses.PAGE.read_text()


def test_the_table_is_that_of_the_losses() -> None:
    assert make_losses.page(PAGE) == PAGE, "run python -m docs.make_losses"


def test_the_table_has_every_loss() -> None:
    assert len(make_losses.losses()) == 17
    assert all(kind.formula for kind in make_losses.losses())
