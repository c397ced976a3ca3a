"""Non-zeros as Parquet and as text: read back, read by Spark, and by whoever reads lines."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import distvec as dv
from distvec.spark import load_nonzeros, save_nonzeros
from ps_backend.program.types import DTYPES


@pytest.fixture(scope="module")
def session():
    with dv.local(servers=3, in_process=True) as opened:
        yield opened


def sparse(dtype, length=5000):
    """Some non-zeros, and the numbers at the ends of the dtype."""
    rng, kind = np.random.default_rng(0), np.dtype(dtype).kind
    values = (rng.integers(1, 100, length) * (rng.random(length) < 0.1)).astype(dtype)
    if kind == "f":
        limits = np.finfo(dtype)
        values[:6] = np.nan, np.inf, -np.inf, limits.tiny, limits.max, -1 / 3
    elif kind in "iu":
        values[:2] = np.iinfo(dtype).max, np.iinfo(dtype).min
    return values


@pytest.mark.parametrize("form", ["parquet", "text"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip(tmp_path, session, monkeypatch, form, dtype):
    monkeypatch.setattr("distvec.spark.nonzeros._SLOTS", 1500)
    values = sparse(dtype)
    save_nonzeros(tmp_path / "w", session.array(values), format=form)
    found, on_servers = load_nonzeros(tmp_path / "w"), load_nonzeros(tmp_path / "w", session)
    assert found.dtype == on_servers.dtype == dtype
    assert np.array_equal(found, values, equal_nan=values.dtype.kind == "f")
    assert np.array_equal(on_servers.numpy(), found, equal_nan=values.dtype.kind == "f")
    assert len(list((tmp_path / "w").glob("part-*"))) == 4


def test_lines_and_columns(tmp_path, session):
    x = session.array([0.0, 1.5, 0.0, -2.0, 0.0])
    save_nonzeros(tmp_path / "text", x, format="text")
    assert (tmp_path / "text" / "part-00000.txt").read_text() == "2:1.5\n4:-2\n"
    save_nonzeros(f"file://{tmp_path}/table", x.numpy(), progress=True)
    table = pq.read_table(tmp_path / "table")
    assert table.to_pydict() == {"index": [1, 3], "value": [1.5, -2.0]}
    save_nonzeros("memory://nonzeros/w", x)
    assert load_nonzeros("memory://nonzeros/w", session).numpy().tolist() == x.numpy().tolist()
    for nothing in (np.zeros(7), np.zeros(0)):
        save_nonzeros(tmp_path / f"none{len(nothing)}", nothing, format="text")
        assert load_nonzeros(tmp_path / f"none{len(nothing)}").tolist() == nothing.tolist()


def test_what_is_wrong_says_so(tmp_path, session):
    with pytest.raises(FileNotFoundError, match=r"does not exist or is empty"):
        load_nonzeros(tmp_path / "nothing")
    path = tmp_path / "w"
    with pytest.raises(ValueError, match=r"needs a vector, got the shape \(2, 2\)"):
        save_nonzeros(path, np.ones((2, 2)))
    with pytest.raises(ValueError, match="format"):
        save_nonzeros(path, np.ones(2), format="csv")
    save_nonzeros(path, np.ones(2000))
    with pytest.raises(FileExistsError, match="not empty"):
        save_nonzeros(path, np.ones(2))
    part = path / "part-00000.parquet"
    data = bytearray(part.read_bytes())
    data[200] ^= 1
    part.write_bytes(data)
    with pytest.raises(dv.Corrupted, match=r"part-00000.parquet cannot be read"):
        load_nonzeros(path, session)
    data[200] ^= 1
    part.write_bytes(data)
    with pytest.raises(dv.Corrupted, match="indices beyond the 1000 elements"):
        load_nonzeros(path, length=1000)
    (path / "_SUCCESS").unlink()
    with pytest.raises(dv.CheckpointIncomplete, match="no _SUCCESS"):
        load_nonzeros(path)


def test_spark_reads_and_writes_it(spark, tmp_path, session):
    values = sparse("float64")[6:]
    save_nonzeros(tmp_path / "ours", values)
    frame = spark.read.parquet(str(tmp_path / "ours"))
    assert frame.count() == np.count_nonzero(values)
    frame.repartition(2).write.parquet(str(tmp_path / "theirs"))
    found = load_nonzeros(tmp_path / "theirs", session, length=len(values))
    assert found.numpy().tolist() == values.tolist()
    shorter = load_nonzeros(tmp_path / "theirs")
    assert len(shorter) == np.flatnonzero(values)[-1] + 1
    assert json.loads((tmp_path / "ours" / "_SUCCESS").read_text())["length"] == len(values)
