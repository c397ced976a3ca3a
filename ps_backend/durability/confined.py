"""Stores within some folders alone: what a server lets its clients name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from ps_backend.durability.stores import Directory, Store, open_store
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
                f"with: distvec serve --store {path.parent}"
            )
        return path


def open_within(folders: Iterable[str | os.PathLike[str]]) -> Callable[[str], Store]:
    """As ``open_store``, for what lies in ``folders``; ``StoreUnseen`` for URLs of elsewhere."""
    roots = [Path(os.path.realpath(Path(one).expanduser())) for one in folders]

    def open_confined(url: str) -> Store:
        store = open_store(url) if "://" not in url or url.startswith("file:") else None
        if not isinstance(store, Directory):
            raise StoreUnseen(f"{url} is none of the folders of distvec serve --store")
        return Confined(store.url, roots)

    return open_confined
