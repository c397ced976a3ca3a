"""How far a long copy has come."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm


def bar_of(what: str, nbytes: int, *, shown: bool) -> Any:
    """A bar of ``nbytes`` on standard error, if ``shown``: a context manager with ``update``."""
    return tqdm(total=nbytes, desc=what, unit="B", unit_scale=True, disable=not shown)
