"""What a path says: one complete file, or a folder with parts and a manifest."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ps_backend.durability.files import KINDS
from ps_backend.durability.stores import Store, open_store

DIRECTORY = "directory"


@dataclass(frozen=True, slots=True)
class Place:
    """Where arrays are saved, or were."""

    store: Store
    """The folder; of a file the one that it is in."""
    file: str
    kind: str
    """A kind of file, or ``DIRECTORY``."""

    def __str__(self) -> str:
        return f"{self.store.url}/{self.file}" if self.file else self.store.url


def place_of(path: str | os.PathLike[str], store: Store | None = None) -> Place:
    """The place ``path``: in ``store``, or of the file system, or a URL that fsspec knows."""
    text = os.fspath(path)
    if not text:
        raise ValueError("the path is empty; say where, as in 'model.safetensors' or 'model/'")
    folder, _, file = text.rpartition("/")
    kind = file.rpartition(".")[2] if "." in file else ""
    if kind not in KINDS:
        return Place(open_store(text) if store is None else store, "", DIRECTORY)
    if store is not None:
        return Place(store, text, kind)
    if folder.endswith(":/"):
        folder += "/"  # memory://model.npy
    return Place(open_store(folder or ("/" if text.startswith("/") else ".")), file, kind)
