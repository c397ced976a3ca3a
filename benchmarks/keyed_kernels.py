"""The kernels of keyed spaces beside a dict, pandas, Arrow, NumPy and PyTorch.

Keys are random int64, in batches of 100,000 that ascend, one thread. A table says how many millions
a second are found and inserted among a million and ten million keys; another one rows of 16
float32 gathered, and added to. Peers look up the same batches, or take the same rows by their
numbers. Memory is of the whole process, before and after all keys and their rows are in.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Ratio, Report, Table, main, seconds_of
from ps_backend.kernels.keyed.group_by_key import group_rows
from ps_backend.kernels.keyed.index import KeyIndex
from ps_backend.kernels.keyed.rows import RowStore
from ps_backend.program.initializers import Constant
from ps_backend.wire.keyed import decode, encode

BATCH, COLUMNS, REPEAT = 100_000, 16, 9
_PAGE = 4096


def measure(options: argparse.Namespace) -> Report:
    """All tables."""
    counts = [100_000] if options.quick else [1_000_000, options.keys]
    lookups: dict[str, list[float | None]] = {}
    rows: dict[str, list[float | None]] = {}
    ratios: list[Ratio] = []
    for count in counts:
        keys = np.random.default_rng(0).integers(-(1 << 63), (1 << 63) - 1, count)
        own, index, store = _grown(keys, ratios)
        own |= _found(index, keys)
        for name, value in (own | _peers(keys, options.quick)).items():
            lookups.setdefault(name, []).append(value)
        for name, value in _rows(index, store, keys).items():
            rows.setdefault(name, []).append(value)
        ratios += [
            Ratio(f"million finds/s among {count:,}", own["find: hits"] or 0.0, ">= 20"),
            Ratio(f"million inserts/s up to {count:,}", own["insert"] or 0.0, ">= 10"),
        ]
        del index, store
    columns = [f"{count:,} keys" for count in counts]
    tables = [
        Table("millions of keys a second, batches of 100,000", columns, lookups),
        Table("millions of rows of 16 float32 a second", columns, rows),
        _messages(),
    ]
    return Report(__doc__.split("\n")[0], [], ratios, {}, tables)


def _batches(keys: Any, seed: int, count: int = REPEAT) -> list[Any]:
    """Ascending batches of those keys."""
    rng = np.random.default_rng(seed)
    return [np.sort(rng.choice(keys, BATCH, replace=False, shuffle=False)) for _ in range(count)]


def _rate(run: Callable[[Any], object], batches: list[Any]) -> float:
    """Millions of keys a second, of the median batch."""
    seconds = [seconds_of(lambda batch=batch: run(batch)) for batch in batches]  # type: ignore[misc]
    return BATCH / statistics.median(seconds) / 1e6


def _grown(keys: Any, ratios: list[Ratio]) -> tuple[dict[str, float | None], KeyIndex, RowStore]:
    """An index and rows of all keys, and how fast they came in."""
    index, store = KeyIndex(), RowStore("float32", (COLUMNS,), Constant(0))
    warm = KeyIndex()
    warm.insert(np.arange(100))
    store.grow(warm, np.zeros_like(warm.counts))
    store = RowStore("float32", (COLUMNS,), Constant(0))
    before, took, whole = _resident(), [], []
    for low in range(0, len(keys), BATCH):
        batch, counts = np.sort(keys[low : low + BATCH]), index.counts.copy()
        missing = index.find(batch)
        began = time.perf_counter()
        index.insert(batch, missing)
        took.append(time.perf_counter() - began)
        store.grow(index, counts)
        whole.append(time.perf_counter() - began)
    each = 8 + COLUMNS * 4
    bytes_a_key = (index.nbytes + store.nbytes) / len(keys)
    resident = (_resident() - before) / len(keys)
    ratios += [
        Ratio(
            f"bytes of {len(keys):,} keys and rows / 72, by nbytes", bytes_a_key / each, "<= 1.6"
        ),
        Ratio(f"bytes of {len(keys):,} keys and rows / 72, resident", resident / each, "<= 1.6"),
        Ratio(f"longest insert of a batch up to {len(keys):,}, ms", max(took) * 1e3),
        Ratio(f"longest insert and growth of rows up to {len(keys):,}, ms", max(whole) * 1e3),
    ]
    rates = {
        "insert": len(keys) / sum(took) / 1e6,
        "insert, with room for rows": len(keys) / sum(whole) / 1e6,
    }
    return rates, index, store


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def _found(index: KeyIndex, keys: Any) -> dict[str, float | None]:
    rng = np.random.default_rng(7)
    misses = [np.sort(rng.integers(-(1 << 63), (1 << 63) - 1, BATCH)) for _ in range(REPEAT)]
    hits = _batches(keys, 1)
    return {
        "find: hits": _rate(index.find, hits),
        "find: hits in random order": _rate(index.find, [rng.permutation(hit) for hit in hits]),
        "find: misses": _rate(index.find, misses),
    }


def _peers(keys: Any, quick: bool) -> dict[str, float | None]:
    """What others take to look up the same batches; None where they are not installed."""
    rates: dict[str, float | None] = {"dict: insert": None, "dict: find": None}
    batches = _batches(keys, 1, 3)
    if len(keys) <= 1_000_000:
        numbers = keys.tolist()
        table: dict[int, int] = {}
        seconds = seconds_of(lambda: table.update(zip(numbers, range(len(numbers)), strict=True)))
        rates["dict: insert"] = len(keys) / seconds / 1e6
        lists = [batch.tolist() for batch in batches]
        rates["dict: find"] = _rate(lambda batch: [table.get(key) for key in batch], lists)
    try:
        import pandas as pd
    except ImportError:
        rates["pandas: get_indexer"] = None
    else:
        held = pd.Index(keys)
        held.get_indexer(batches[0])
        rates["pandas: get_indexer"] = _rate(held.get_indexer, batches)
    try:
        import pyarrow as pa
        import pyarrow.compute as pc
    except ImportError:
        rates["pyarrow: index_in, which hashes all keys each time"] = None
    else:
        values = pa.array(keys)
        rates["pyarrow: index_in, which hashes all keys each time"] = _rate(
            lambda batch: pc.index_in(pa.array(batch), value_set=values), batches[: 1 + quick]
        )
    return rates


def _rows(index: KeyIndex, store: RowStore, keys: Any) -> dict[str, float | None]:
    batches = _batches(keys, 2)
    located = [(index.find(batch), batch) for batch in batches]
    out = np.zeros((BATCH, COLUMNS), np.float32)
    dense = np.ones((len(keys), COLUMNS), np.float32)
    rng = np.random.default_rng(3)
    numbers = [rng.choice(len(keys), BATCH, replace=False) for _ in range(REPEAT)]
    store.gather(*located[0], out)
    store.scatter(located[0][0], out, "add")
    take = lambda ids: np.take(dense, ids, axis=0, out=out, mode="clip")  # noqa: E731
    rates: dict[str, float | None] = {
        "gather": _rate(lambda one: store.gather(*one, out), located),
        "NumPy: take": _rate(take, numbers),
        "add": _rate(lambda one: store.scatter(one[0], out, "add"), located),
        "NumPy: add.at": _rate(lambda ids: np.add.at(dense, ids, out), numbers[:3]),
        "find and gather": _rate(lambda b: store.gather(index.find(b), b, out), batches),
    }
    return rates | _torch(dense, numbers)


def _torch(dense: Any, numbers: list[Any]) -> dict[str, float | None]:
    try:
        import torch
    except ImportError:
        return {"PyTorch: embedding": None, "PyTorch: sparse gradient and SGD": None}
    torch.set_num_threads(1)
    weight = torch.nn.Parameter(torch.from_numpy(dense))
    bag = torch.nn.EmbeddingBag(*dense.shape, mode="sum", sparse=True, _weight=weight.data)
    sgd = torch.optim.SGD(bag.parameters(), lr=0.1)
    offsets = torch.arange(BATCH)

    def step(ids: Any) -> None:
        sgd.zero_grad()
        bag(ids, offsets).sum().backward()
        sgd.step()

    ids = [torch.from_numpy(one) for one in numbers]
    look = torch.nn.functional.embedding
    with torch.no_grad():
        looked = _rate(lambda one: look(one, weight), ids)
    return {"PyTorch: embedding": looked, "PyTorch: sparse gradient and SGD": _rate(step, ids[:4])}


def _messages() -> Table:
    """Repeated keys joined, and key lists there and back."""
    rng = np.random.default_rng(5)
    values = rng.standard_normal((BATCH, COLUMNS)).astype(np.float32)
    columns = ["distinct, %", "group_rows, ms", "np.unique, add.at, ms"]
    columns += ["bytes a key", "encode, M/s", "decode, M/s"]
    rows = {}
    for name, top in (("Zipf", 0), ("dense ids", 1 << 20), ("all of int64", 1 << 62)):
        keys = rng.zipf(1.2, BATCH) if not top else rng.integers(-top, top, BATCH)
        batches = [keys.copy() for _ in range(REPEAT)]
        joined = BATCH / _rate(lambda one: group_rows(one, values, "add"), batches) / 1e3
        peer = BATCH / _rate(lambda one: _by_numpy(one, values), batches[:3]) / 1e3
        lists = [np.unique(one) for one in batches]
        size, data = len(lists[0]), encode(lists[0])
        share = size / BATCH
        rows[name] = [
            100 * share,
            joined,
            peer,
            len(data) / size,
            _rate(encode, lists) * share,
            _rate(partial(decode, count=size), [data] * REPEAT) * share,
        ]
    title = "100,000 keys with rows of 16 float32, and their different ones as bytes"
    return Table(title, columns, rows)


def _by_numpy(keys: Any, values: Any) -> Any:
    different, inverse = np.unique(keys, return_inverse=True)
    sums = np.zeros((len(different), COLUMNS), values.dtype)
    np.add.at(sums, inverse, values)
    return sums


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=10_000_000, help="how many at most")


if __name__ == "__main__":
    main(__doc__, measure, _configure)
