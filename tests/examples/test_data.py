"""Where the example's rows come from: packages' sources, and LIBSVM files."""

import bz2
import gzip
import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import libsvm, source_corpus
from examples.ngrams import hashed_ngrams

LIBSVM = "".join(f"{i % 2} {i % 7 + 1}:0.5 {i % 5 + 8}:{i}\n" for i in range(1, 201))


@given(st.lists(st.text(max_size=8), max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_text_of_an_arrow_column_and_of_its_slices(lines, start, length):
    column = pa.array(lines, pa.string()).slice(start, length)
    text, offsets = source_corpus.text_and_offsets(column)
    found = [bytes(text[a:b]).decode() for a, b in itertools.pairwise(offsets)]
    assert found == lines[start : start + length]


def test_python_files_of_a_package():
    files = source_corpus.python_files("hypothesis")
    assert files == sorted(files)
    assert any(path.endswith("hypothesis/__init__.py") for path in files)


def test_missing_package():
    with pytest.raises(ModuleNotFoundError, match="pip install no_such_package"):
        source_corpus.python_files("no_such_package")


def test_stripped_lines():
    assert source_corpus.stripped_lines("  return None\n\n x = 1\r\n\timport os") == [
        "return None",
        "import os",
    ]


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Two small packages that share some lines."""
    root = tmp_path_factory.mktemp("packages")
    shared = [f"shared line {i}" for i in range(50)]
    for name in ("scipy", "pyspark"):
        own = [f"{name} line {i}" for i in range(300)]
        for part, lines in enumerate((own[:200] + shared, [*own[100:], "short", ""])):
            file = root / name / "_private" / f"_{part}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(lines))
    return root


@pytest.fixture
def corpus(spark, packages, monkeypatch):
    def files(package):
        return sorted(str(path) for path in Path(packages, package).rglob("*.py"))

    monkeypatch.setattr(source_corpus, "python_files", files)
    return lambda rows=None: source_corpus.source_lines(spark, rows)


def pairs(lines):
    return [(row["line"], row["label"]) for row in lines.collect()]


def test_lines_are_distinct_and_of_one_package(corpus):
    found = pairs(corpus())
    assert sorted(found) == sorted(
        (f"{name} line {i}", label)
        for name, label in (("scipy", 1.0), ("pyspark", 0.0))
        for i in range(300)
    )
    assert pairs(corpus()) == found


def test_a_sample_is_part_of_the_whole_and_always_the_same(corpus):
    some = pairs(corpus(300))
    assert some == pairs(corpus(300))
    assert 250 < len(some) < 350
    assert set(some) < set(pairs(corpus()))


def test_split_parts_are_disjoint_and_whole(corpus):
    lines = corpus()
    train, test = (set(pairs(part)) for part in source_corpus.split(lines))
    assert not train & test
    assert train | test == set(pairs(lines))
    assert 0.1 < len(test) / len(train | test) < 0.3


def test_features_are_those_of_the_line(corpus):
    lines = corpus(100)
    rows = source_corpus.features(lines).collect()
    for (line, label), row in zip(pairs(lines), rows, strict=True):
        text = np.frombuffer(line.encode(), dtype=np.uint8)
        expected = hashed_ngrams(text, np.array([0, text.size]))
        assert row["label"] == label
        assert row["features"].size == 1 << 20
        np.testing.assert_array_equal(row["features"].indices, expected.indices)
        np.testing.assert_array_equal(row["features"].values, expected.values)


@pytest.mark.parametrize(
    ("name", "compress"),
    [("a.svm", bytes), ("a.svm.bz2", bz2.compress), ("a.svm.gz", gzip.compress)],
)
def test_libsvm_file(spark, tmp_path, name, compress):
    path = tmp_path / name
    path.write_bytes(compress(LIBSVM.encode()))
    train, test = (rows.collect() for rows in libsvm.read(spark, path))
    seconds = sorted(row["features"].values[1] for row in (*train, *test))
    assert seconds == list(range(1, 201))
    assert 20 < len(test) < 60
    assert {row["features"].size for row in (*train, *test)} == {12}
    again = (rows.collect() for rows in libsvm.read(spark, path))
    assert list(again) == [train, test]


def test_libsvm_positive_label(spark, tmp_path):
    path = tmp_path / "three.svm"
    path.write_text("".join(f"{i % 3 + 1} 1:{i}\n" for i in range(60)))
    train, test = libsvm.read(spark, path, positive_label=3.0)
    for row in (*train.collect(), *test.collect()):
        assert row["label"] == (row["features"][0] % 3 == 2)


def test_no_such_libsvm_file(spark, tmp_path):
    with pytest.raises(SystemExit, match=r"--data .*: no such file"):
        libsvm.read(spark, tmp_path / "none.svm")
