"""``dv.save``: arrays into one complete file, or into a folder with a part for each server.

Files are filled by the servers that hold the rows, or through the client.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from distvec.array.core.handle import SessionBase
from distvec.durability.keyed import with_keys
from distvec.durability.save_plan import (
    CLIENT,
    DIRECTORY,
    Place,
    PlannedFile,
    SavedArray,
    SavePlan,
    bar_of,
    place_of,
    plan_of,
)
from distvec.graph.node import Buffer
from ps_backend.client.files import Target
from ps_backend.durability import manifest as manifests
from ps_backend.durability.files import Stored
from ps_backend.durability.manifest import Kept, Manifest
from ps_backend.durability.stores import Directory, Store, beside
from ps_backend.errors import Corrupted, StoreUnseen
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type, dtype_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from distvec.array.array import DistArray
    from distvec.keyed.array import KeyedArray

_MOST_BYTES = 256 << 20
_MOST_ARRAYS = 256
"""In one message to a server: so often a progress bar moves."""


def fill(plan: SavePlan, store: Directory, files: Sequence[PlannedFile], bar: Any) -> None:
    """Write the rows of ``files``, which were begun in ``store``; durable on return.

    The servers write their rows, unless they do not see the store. Raises ``OSError``.
    """
    seen = plan.session is not None
    if plan.session is not None:
        try:
            _by_servers(plan.session, plan.arrays, store.url, files, bar)
        except StoreUnseen:
            bar.reset()
            seen = False
    for file in files:
        mine = [one for one in file.ranges if not seen or one.server == CLIENT]
        if mine:
            places = [(one.lies.offset, one.chunks(bar)) for one in mine]
            store.write_into(file.name, file.head, places)


def _by_servers(
    session: SessionBase,
    arrays: Sequence[SavedArray],
    store: str,
    files: Sequence[PlannedFile],
    bar: Any,
) -> None:
    heads = {file.name: file.head for file in files}
    for group in _groups(arrays):
        names: dict[int, str] = {}
        offsets: dict[int, dict[int, int]] = {}
        for id, (_, array) in group.items():
            for one in array.ranges:
                names[one.server] = one.lies.file
                offsets.setdefault(one.server, {})[id] = one.lies.offset
        found = session.client.save_into(
            {id: buffer.type for id, (buffer, _) in group.items()},
            store,
            {k: Target(name, heads[name], offsets[k]) for k, name in names.items()},
        )
        for id, (_, array) in group.items():
            crcs = {one.low: one.crcs for one in found[id]}
            for one in array.ranges:
                one.lies = replace(one.lies, crcs=crcs[one.lies.low])
                bar.update(one.nbytes)


def _groups(arrays: Sequence[SavedArray]) -> Iterator[dict[int, tuple[Buffer, SavedArray]]]:
    """Those of servers by their ids, a message's at a time: none twice in a message."""
    group: dict[int, tuple[Buffer, SavedArray]] = {}
    nbytes = 0
    for array in arrays:
        buffer = array.buffer
        if buffer is None or not array.ranges:
            continue
        full = nbytes >= _MOST_BYTES or len(group) >= _MOST_ARRAYS
        if group and (full or buffer.id in group):
            yield group
            group, nbytes = {}, 0
        group[buffer.id] = (buffer, array)
        nbytes += array.about.nbytes
    if group:
        yield group


Saveable: TypeAlias = "DistArray | KeyedArray | npt.ArrayLike"

SAVED = "distvec.save"
"""What a manifest's document says that it is of."""
_ATTEMPTS = 2
"""A file that could not be written, or not be made durable, is written anew, under another name."""
_MOST_RANK = 2


def save(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Saveable] | None = None,
    /,
    *,
    metadata: Mapping[str, str] | None = None,
    optimizers: bool = True,
    progress: bool = False,
    store: Store | None = None,
    **named: Saveable,
) -> None:
    """Save arrays to a file or a folder under their names.

    Parameters
    ----------
    path : str or path-like
        A file that ends in ``.safetensors`` or, for one array, ``.npy``; other libraries can read
        both. Any other path is a folder with one part for each server and a manifest. URLs, such
        as ``s3://bucket/model``, are opened by fsspec.
    arrays : mapping of str to array, optional
        Arrays by names that need not be keywords.
    metadata : mapping of str to str, optional
        Strings to save beside the arrays.
    optimizers : bool, default True
        Whether to save the optimizers of keyed arrays, with their states as arrays such as
        ``"t.squares"``. Then ``t.step`` continues after ``load``.
    progress : bool, default False
        Whether to show a progress bar.
    store : Store, optional
        A storage class of your own for ``path``.
    **named : DistArray, KeyedArray or array_like
        Arrays by name: of one session, or NumPy arrays. Keyed arrays are all of one space, and are
        saved with its keys, as ``keys``.

    Raises
    ------
    OSError
        If a file cannot be written in two attempts.
    ValueError
        If there is no array, or the file format cannot hold the arrays.
    TypeError
        If names or metadata are not strings.
    FileExistsError
        If the folder contains a checkpoint or a damaged manifest.
    ServerLost
        If a server does not answer.

    See Also
    --------
    load : Load saved arrays.

    Notes
    -----
    Lazy arrays are evaluated first. Servers that can reach the path write their own rows: one
    request per server for each 256 MiB, or each 256 arrays. Otherwise, and for URLs, the rows pass
    through this process, a few MiB at a time. Files that exist are replaced in one step at the end,
    so a failure leaves them as they were. Each block of rows has a checksum.

    Examples
    --------
    >>> dv.save("model.safetensors", w=ps.arange(3.0), bias=np.ones(1))
    >>> dv.load("model.safetensors")["w"]
    array([0., 1., 2.])
    """
    place = place_of(path, store)
    given = {**(arrays or {}), **named}
    texts = _check_texts(place, given, metadata)
    given, marks = with_keys(given, optimizers=optimizers)
    texts |= marks
    plan = plan_of(given, by_columns=place.kind != "safetensors")
    writer = _save_folder if place.kind == DIRECTORY else _save_file
    for attempt in range(_ATTEMPTS):
        with bar_of("save", sum(one.about.nbytes for one in plan.arrays), shown=progress) as bar:
            try:
                writer(place, plan, texts, bar)
                return
            except OSError:
                if attempt + 1 == _ATTEMPTS:
                    raise
                plan.forget_checksums()


def _check_texts(
    place: Place, arrays: Mapping[str, Any], metadata: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the metadata; ``TypeError`` unless names and metadata are strings."""
    if len(arrays) < 1:
        raise ValueError(
            f"save({str(place)!r}) got no arrays; pass some by name: dv.save(path, w=w)"
        )
    if str(place).endswith(".npz"):
        raise ValueError(
            f"save({str(place)!r}): .npz files are not supported; use a name that ends in "
            ".safetensors, or call numpy.savez with x.numpy()"
        )
    texts = dict(metadata or {})
    if not all(isinstance(one, str) for one in (*arrays, *texts, *texts.values())):
        raise TypeError(
            f"save: names of arrays, and metadata, must be strings, got metadata={metadata!r}"
        )
    return texts


# --- one file -----------------------------------------------------------------------------------


def _save_file(place: Place, plan: SavePlan, metadata: Mapping[str, str], bar: Any) -> None:
    store, fresh = place.store, beside(place.file)
    if not isinstance(store, Directory):
        plan.one_file(place.file, place.kind, metadata)  # raises for arrays that it cannot hold
        for one in plan.ranges:
            for _ in one.chunks():  # the checksums stand before the data, which are sent once
                pass
        store.replace(place.file, plan.one_file(place.file, place.kind, metadata).chunks(bar))
        return
    file = plan.one_file(fresh, place.kind, metadata)
    try:
        store.begin(fresh, file.head, file.size)
        fill(plan, store, [file], bar)
        final = plan.one_file(fresh, place.kind, metadata)
        ends = [(0, [final.head]), (file.size - len(final.tail), [final.tail])]
        store.write_into(fresh, file.head, ends)
        store.rename(fresh, place.file)
    except BaseException:
        store.delete(fresh)
        raise


# --- a folder -----------------------------------------------------------------------------------


def _save_folder(place: Place, plan: SavePlan, metadata: Mapping[str, str], bar: Any) -> None:
    for one in plan.stored:
        if len(one.shape) > _MOST_RANK:
            raise NotImplementedError(
                f"save({one.name}=...): a folder supports arrays of rank {_MOST_RANK} at most, "
                f"got shape {one.shape}; save it to a .safetensors file"
            )
    store = place.store
    old = _manifest_of(store)
    files = plan.parts()
    try:
        if isinstance(store, Directory):
            for file in files:
                store.begin(file.name, file.head, file.size)
            fill(plan, store, files, bar)
        else:
            for file in files:
                store.write(file.name, file.chunks(bar))
        found = plan.stored
        about = {one.name: [list(one.shape), one.by_columns] for one in found}
        document = {"kind": SAVED, "metadata": metadata, "arrays": about}
        manifest = Manifest(tuple(map(_manifest_entry, found)), document)
        store.replace(manifests.NAME, [manifest.encode()])
    except BaseException:
        for file in files:
            store.delete(file.name)
        raise
    for name in old.files if old is not None else ():
        store.delete(name)


def _manifest_of(store: Store) -> Manifest | None:
    """Return the manifest of an earlier save; ``FileExistsError`` for other files."""
    try:
        data = bytearray(store.size(manifests.NAME))
        store.read(manifests.NAME, 0, memoryview(data))
        found = manifests.decode(bytes(data), f"{store.url}/{manifests.NAME}")
    except FileNotFoundError:
        return None
    except Corrupted as error:
        raise FileExistsError(f"{error}; save to another folder, or remove it first") from None
    if found.document.get("kind") != SAVED:
        raise FileExistsError(
            f"{store.url} contains a checkpoint, which save does not replace; save to another "
            "folder"
        )
    return found


def _manifest_entry(one: Stored) -> Kept:
    type = array_type(DenseSpace(one.length), dtype_of(one.dtype), one.stored_shape[1:])
    return Kept(0, (one.name,), type, one.pieces)
