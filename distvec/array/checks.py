"""Refusals that depend on the values on the servers."""

from __future__ import annotations

from typing import Any

import numpy as np


def refuse_if(wrong: Any, error: type[Exception], message: str) -> None:
    """``error`` if any of ``wrong``, booleans, is true: an implicit evaluation, one message."""
    found = np.any(wrong)
    if found.scalar(message) if hasattr(found, "scalar") else found:
        raise error(message)
