"""DeepFM: the rows of a generated stream and of a file are learned."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

pytest.importorskip("torch")

from examples.deep_fm import generate, main, parse


def test_generated_clicks_are_learned(capsys):
    main(["--rows", "20000", "--batch", "500"])
    *lines, requests, keys = capsys.readouterr().out.splitlines()
    found = [float(line.split()[3]) for line in lines]
    best = [float(line.split()[6].rstrip(")")) for line in lines]
    assert len(lines) == 5
    assert 0.55 < found[-1] < best[-1] + 0.02
    assert requests == "4.0 requests to a server per batch"
    assert keys.endswith("keys with 9 numbers each")


def test_a_file(tmp_path, capsys):
    rows = generate(parse(["--rows", "2000"]))
    fields = {name: rows.keys[:, k] for k, name in enumerate(["user", "ad", "site"])}
    parquet.write_table(pa.table({**fields, "y": rows.clicks.astype(np.int32)}), tmp_path / "c")
    main(["--data", str(tmp_path / "c"), "--label", "y", "--batch", "300"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].startswith("    2,000 rows  AUC 0.")
    with pytest.raises(SystemExit, match="no column 'click'"):
        main(["--data", str(tmp_path / "c")])
