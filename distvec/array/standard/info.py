"""What the array API standard lets one ask: versions, devices, dtypes, capabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.array.core.shapes import MOST_RANK
from ps_backend.program.types import DTYPES

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""Of the array API standard: each holds what the ones before it do."""

DEVICE = "servers"
"""The only one that there is."""

_FLOAT, _INT = np.dtype(np.float64), np.dtype(np.int64)
_BEYOND = ("float16",)
"""Dtypes of ours that the standard has not."""


class Info:
    """What ``__array_namespace_info__()`` returns."""

    def capabilities(self) -> dict[str, Any]:
        """What is possible: masks as indices, shapes that depend on data; rank 2 at most."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": MOST_RANK,
        }

    def default_device(self) -> str:
        """The only device there is."""
        return DEVICE

    def devices(self) -> list[str]:
        """All devices."""
        return [DEVICE]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """By kind; there is no complex one."""
        check_device(device)
        return {"real floating": _FLOAT, "integral": _INT, "indexing": _INT}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype[Any]]:
        """Those of the standard that there are, by name; of ``kind`` alone if given."""
        check_device(device)
        found = {name: np.dtype(name) for name in DTYPES if name not in _BEYOND}
        return {name: one for name, one in found.items() if kind is None or _is_of(one, kind)}


def _is_of(dtype: np.dtype[Any], kind: Any) -> bool:
    """As ``numpy.isdtype``; a tuple of no kinds has no dtypes."""
    return kind != () and bool(np.isdtype(dtype, kind))


def check_version(version: str | None) -> None:
    """``ValueError`` for a version of the array API that is not followed here."""
    if version is not None and version not in VERSIONS:
        raise ValueError(
            f"api_version={version!r} is none of {', '.join(VERSIONS)}; leave it out for the last"
        )


def check_device(device: Any) -> None:
    """``ValueError`` for a device that there is not."""
    if device not in (None, DEVICE):
        raise ValueError(f"device={device!r}: arrays are on the only device, {DEVICE!r}")
