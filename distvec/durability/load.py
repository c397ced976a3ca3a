"""``dv.load``: what was saved, on any number of servers, or as NumPy's arrays."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from distvec.array.array import DistArray
from distvec.array.core.handle import SessionBase
from distvec.array.core.shapes import shape_of, type_of
from distvec.array.transposed import transpose
from distvec.durability.keyed import adopt_keys
from distvec.durability.save import SAVED
from distvec.durability.save_plan import DIRECTORY, Place, bar_of, place_of
from distvec.graph.node import Buffer
from ps_backend.client.files import Source
from ps_backend.durability import manifest as manifests
from ps_backend.durability.checkpoint_directory import names_checkpoint
from ps_backend.durability.file_ranges import bytes_of, read_rows
from ps_backend.durability.files import Stored, read_file, with_checksums
from ps_backend.durability.stores import Store
from ps_backend.errors import CheckpointIncomplete, Corrupted, StoreUnseen
from ps_backend.program.types import dtype_of

_MOST_BYTES = 256 << 20
_MOST_ARRAYS = 256
"""In one message to a server."""
_MOST_IN_MEMORY = 256 << 20
"""What is larger, and cannot be read by the servers, is mapped from a file on its way to them."""
_STEP_BYTES = 16 << 20


class Loaded(dict[str, Any]):
    """A dict of loaded arrays by name; ``metadata`` has the strings that were saved with them."""

    metadata: dict[str, str]

    def __missing__(self, name: str) -> Any:
        raise KeyError(
            f"no array called {name!r} was loaded; loaded arrays: {', '.join(self) or '(empty)'}"
        )


def load(
    path: str | os.PathLike[str],
    session: SessionBase | None = None,
    *,
    names: Iterable[str] | None = None,
    progress: bool = False,
    store: Store | None = None,
) -> Loaded:
    """Load arrays that ``save`` or another program wrote.

    Parameters
    ----------
    path : str or path-like
        A ``.safetensors`` or ``.npy`` file, a folder of ``save``, or a URL.
    session : Session, optional
        The session that receives the arrays. It may have another number of servers than the
        session that saved them. Default: return NumPy arrays.
    names : iterable of str, optional
        Names of the arrays to load. Default: all.
    progress : bool, default False
        Whether to show a progress bar.
    store : Store, optional
        A storage class of your own for ``path``.

    Returns
    -------
    Loaded
        A dict of the arrays by name; its ``metadata`` has the saved strings. The array of a
        ``.npy`` file that NumPy wrote has the name of the file. Tables in column order are
        column-partitioned. Arrays of a keyed space belong to a new space with the same keys; if
        ``names`` leaves out ``keys``, they are plain arrays.

    Raises
    ------
    OSError
        If the files cannot be read.
    ValueError
        If the file has another format.
    KeyError
        If a name does not exist.
    TypeError, NotImplementedError
        If the dtype or rank of an array is not supported on the servers.
    CheckpointIncomplete
        If the folder has no manifest.
    Corrupted
        If a checksum differs; the message names the file, the array and the rows.
    OutOfBudget
        If a server has too little memory.

    See Also
    --------
    save : Save arrays.

    Notes
    -----
    Every block of rows is verified before it is used. Servers that can reach the files read their
    own rows: one request per server for each 256 MiB, or each 256 arrays. Otherwise the rows pass
    through this process. Files of other programs have no checksums: this process reads them once
    to compute them. Before it loads such files, or more than 16 MiB, it asks each server in one
    more request whether it has enough memory.

    Examples
    --------
    >>> np.save("model.npy", np.array([1.0, 2.0]))
    >>> dv.load("model.npy", ps)["model"]
    DistArray([1., 2.], dtype=float64, shape=(2,))
    """
    place = place_of(path, store)
    found, metadata = _read_place(place)
    wanted = list(found) if names is None else list(dict.fromkeys(names))
    for name in wanted:
        if name not in found:
            raise KeyError(f"{place} has no array called {name!r}; it has: {', '.join(found)}")
    chosen = [found[name] for name in wanted]
    loaded = Loaded()
    loaded.metadata = metadata
    with bar_of("load", sum(one.nbytes for one in chosen), shown=progress) as bar:
        if session is None:
            loaded.update({one.name: _numpy(place, one, bar) for one in chosen})
        else:
            loaded.update(_on_servers(place, session, chosen, bar))
    if session is not None:
        adopt_keys(loaded, session)
    return loaded


def _read_place(place: Place) -> tuple[dict[str, Stored], dict[str, str]]:
    if place.kind == DIRECTORY:
        return _read_manifest(place)
    found, metadata = read_file(place.store, place.file, place.kind)
    return {one.name: one for one in found}, metadata


def _read_manifest(place: Place) -> tuple[dict[str, Stored], dict[str, str]]:
    store, file = place.store, manifests.NAME
    try:
        data = bytearray(store.size(file))
        store.read(file, 0, memoryview(data))
    except NotADirectoryError:
        raise ValueError(_is_other_file(place)) from None
    except FileNotFoundError:
        names = store.names()
        if not names:
            raise FileNotFoundError(f"there is no file or folder {place}") from None
        if any(map(names_checkpoint, names)):
            raise ValueError(_is_checkpoint(place)) from None
        raise CheckpointIncomplete(
            f"{place} has no {file}, so no save to it was completed"
        ) from None
    manifest = manifests.decode(bytes(data), f"{place}/{file}")
    document = manifest.document
    if document.get("kind") != SAVED:
        raise ValueError(_is_checkpoint(place))
    found = {}
    for one in manifest.arrays:
        (name,) = one.names
        shape, by_columns = document["arrays"][name]
        found[name] = Stored(name, one.type.dtype.name, tuple(shape), one.pieces, by_columns)
    return found, dict(document["metadata"])


def _is_other_file(place: Place) -> str:
    name = str(place)
    if name.endswith(".npz"):
        return (
            f"{name} is a .npz file, which load does not read; give its arrays to a session one by "
            f"one: ps.array(numpy.load({name!r})['w'])"
        )
    return (
        f"{name} is a file, but neither .safetensors nor .npy, and load reads these and folders "
        "that save wrote; rename it if it is one of the two"
    )


def _is_checkpoint(place: Place) -> str:
    return f"{place} holds checkpoints of a session; read the newest: ps.restore({str(place)!r})"


# --- on the client ------------------------------------------------------------------------------


def _numpy(place: Place, one: Stored, bar: Any) -> np.ndarray:
    values = _rows(place, one, np.empty(one.stored_shape, one.dtype), bar)
    return values.T if one.by_columns else values


def _rows(place: Place, one: Stored, into: np.ndarray, bar: Any) -> np.ndarray:
    """Fill ``into``, of its stored shape, a few MiB at a time; the same array."""
    data, what = bytes_of(into), f"{place}: array {one.name!r}"
    units = max((piece.unit for piece in one.pieces), default=1) * max(one.row_bytes, 1)
    step = max(_STEP_BYTES // units, 1) * units
    for start in range(0, len(data), step):
        some = data[start : start + step]
        if one.unsummed is None:
            read_rows(place.store, one.pieces, one.row_bytes, start // one.row_bytes, some, what)
        else:
            file, offset = one.unsummed
            place.store.read(file, offset + start, some)
        bar.update(len(some))
    return into


# --- on servers ---------------------------------------------------------------------------------


def _on_servers(
    place: Place, session: SessionBase, chosen: Sequence[Stored], bar: Any
) -> dict[str, DistArray]:
    made: dict[str, Any] = {}
    rest = {}
    for one in chosen:
        if one.shape:
            shape_of(one.stored_shape)  # raises for more than two axes
            rest[one.name] = session.new_buffer(type_of(one.stored_shape, dtype_of(one.dtype)))
        else:
            made[one.name] = session._put(_numpy(place, one, bar))
    arrays = {one.name: one for one in chosen}
    nbytes = sum(arrays[name].nbytes for name in rest)
    if nbytes > _STEP_BYTES or any(arrays[name].unsummed for name in rest):
        session.client.check_room([buffer.type for buffer in rest.values()], f"loading {place}")
    seen = True
    for unread in _groups([arrays[name] for name in rest]):
        group = [with_checksums(place.store, one) for one in unread]
        if seen:
            try:
                _by_servers(place, session, group, rest)
                bar.update(sum(one.nbytes for one in group))
                continue
            except (StoreUnseen, Corrupted):  # a server may find another file there
                seen = False
        for one in group:
            # Under a new id: servers that did see the file have made theirs.
            rest[one.name] = session.new_buffer(rest[one.name].type)
            _through_client(place, session, one, rest[one.name], bar)
    for name, buffer in rest.items():
        array = DistArray(session, session.graph.leaf(buffer))
        made[name] = transpose(array) if arrays[name].by_columns else array
    return {one.name: made[one.name] for one in chosen}


def _by_servers(
    place: Place, session: SessionBase, group: Sequence[Stored], buffers: dict[str, Buffer]
) -> None:
    session.client.load(
        Source(buffers[one.name].id, buffers[one.name].type, place.store.url, one.pieces)
        for one in group
    )


def _through_client(
    place: Place, session: SessionBase, one: Stored, buffer: Buffer, bar: Any
) -> None:
    with _scratch(one) as values:
        _rows(place, one, values, bar)
        session.client.write(buffer.id, buffer.type.space, values)


@contextmanager
def _scratch(one: Stored) -> Iterator[np.ndarray]:
    """An array of its stored shape: in memory, or of a file that goes when it is closed."""
    if one.nbytes <= _MOST_IN_MEMORY:
        yield np.empty(one.stored_shape, one.dtype)
        return
    with tempfile.TemporaryFile(prefix="distvec-load-") as file:
        yield np.memmap(file, dtype_of(one.dtype), "w+", shape=one.stored_shape)


def _groups(arrays: Sequence[Stored]) -> Iterator[list[Stored]]:
    group: list[Stored] = []
    nbytes = 0
    for one in arrays:
        if group and (nbytes >= _MOST_BYTES or len(group) >= _MOST_ARRAYS):
            yield group
            group, nbytes = [], 0
        group.append(one)
        nbytes += one.nbytes
    if group:
        yield group
