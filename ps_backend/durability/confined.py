"""Stores within some folders and URLs alone: what a server lets its clients name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from ps_backend.durability.stores import LOCAL, Directory, Remote, Store, open_store
from ps_backend.errors import StoreUnseen


class Confined(Directory):
    """A directory whose files must lie, after all links, in one of ``roots``."""

    def __init__(self, path: str, roots: Iterable[Path]) -> None:
        super().__init__(path)
        self._roots = tuple(roots)

    def _at(self, name: str) -> Path:
        path = Path(os.path.realpath(super()._at(name)))
        if not any(path.is_relative_to(root) for root in self._roots):
            listed = ", ".join(map(str, self._roots)) or "none"
            raise StoreUnseen(
                f"{path} is not in a folder whose files clients may name here ({listed}); start it "
                f"with: distvec serve --store {os.path.realpath(self.url)}"
            )
        return path


class ConfinedRemote(Remote):
    """Objects at a URL, none of whose names leads above it."""

    def _at(self, name: str) -> str:
        if ".." in name.split("/"):
            raise StoreUnseen(f"{self.url}/{name} leads out of what distvec serve --store names")
        return super()._at(name)


def open_within(places: Iterable[str | os.PathLike[str]]) -> Callable[[str], Store]:
    """As ``open_store``, for what lies in ``places``, folders or URLs; ``StoreUnseen`` else."""
    given = [os.fspath(one) for one in places]
    folders = [one for one in given if _is_folder(one)]
    roots = [Path(os.path.realpath(open_store(one).url)) for one in folders]
    urls = [one.rstrip("/") for one in given if not _is_folder(one)]

    def open_confined(url: str) -> Store:
        if _is_folder(url):
            return Confined(open_store(url).url, roots)
        below = any(url == one or url.startswith(f"{one}/") for one in urls)
        if not below or ".." in url.split("/"):
            raise StoreUnseen(f"clients may not name {url} here; start the server with: distvec "
                              f"serve --store {url}")  # fmt: skip
        return ConfinedRemote(url)

    return open_confined


def _is_folder(place: str) -> bool:
    """Told without opening what a stranger names."""
    return "://" not in place or place.startswith(LOCAL)
