"""Where the example's rows come from: packages' sources, and LIBSVM files."""

import bz2
import gzip
import io
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
    assert libsvm.survey(path) == (12, {0.0: 100, 1.0: 100})
    train, test = (rows.collect() for rows in libsvm.read(spark, path, 12))
    seconds = sorted(row["features"].values[1] for row in (*train, *test))
    assert seconds == list(range(1, 201))
    assert 20 < len(test) < 60
    assert {row["features"].size for row in (*train, *test)} == {12}
    again = (rows.collect() for rows in libsvm.read(spark, path, 12))
    assert list(again) == [train, test]


def test_libsvm_positive_label(spark, tmp_path):
    path = tmp_path / "three.svm"
    path.write_text("".join(f"{i % 3 + 1} 1:{i}\n" for i in range(60)))
    assert libsvm.survey(path, 3.0).labels == {1.0: 20, 2.0: 20, 3.0: 20}
    train, test = libsvm.read(spark, path, 1, positive_label=3.0)
    for row in (*train.collect(), *test.collect()):
        assert row["label"] == (row["features"][0] % 3 == 2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ": it has no rows"),
        ("# a comment\n\n", ": it has no rows"),
        ("1 1:2\n\n# ü\n0 2:x\n", ", line 4: '2:x' is not index:value"),
        ("1 1:2\n0 1:nan\n", ", line 2: '1:nan' is not index:value, a whole and a finite number"),
        ("1 1:2\n0 1:1e999\n", ", line 2: a number is larger than float64 can hold"),
        ("1 1:2\nspam 1:1\n", ", line 2: the label is 'spam'; it must be a finite number"),
        ("inf 1:2\n", ", line 1: the label is 'inf'; it must be a finite number"),
        ("1 0:2\n", ", line 1: index 0 comes after 0; indices count from 1, and ascend"),
        ("1 1:2 5:1 3:1\n", ", line 1: index 3 comes after 5"),
        ("1 1:2\n0 2147483648:1\n", ", line 2: index 2147483648 is above 2147483647"),
        ("1 1:2\n0 -1:1\n", ", line 2: '-1:1' is not index:value"),
        ("1\t1:2\n", ", line 1: the label is '1\\t1:2'"),
        ("1 1:2\n1 1:3\n", ": all rows have one label, 1 (2 rows)"),
        ("1 1:2\n2 1:3\n", ", line 2: the label is 2; labels are 0 and 1, or -1 and 1, unless"),
        ("1 1:2\n0 1:3\n-1 1:3\n", ", line 3: the label is -1; labels are 0 and 1, or -1 and 1"),
    ],
)
def test_what_is_wrong_with_a_libsvm_file_is_told_with_its_line(tmp_path, text, told):
    path = tmp_path / "rows.svm"
    path.write_text(text)
    with pytest.raises(SystemExit) as caught:
        libsvm.survey(path)
    assert str(caught.value).startswith(f"--data {path}{told}")


def test_a_positive_label_must_occur(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:2\n0 1:3\n0 2:3\n")
    told = r"no row has --positive-label 7; its labels are 0 \(2 rows\), 1 \(1 rows\)$"
    with pytest.raises(SystemExit, match=told):
        libsvm.survey(path, 7.0)


def test_libsvm_rows_of_all_forms():
    text = io.StringIO("+1 1:.5 3:-2.\n -1   2:1e-3 \n1\n0.0 7:+4E2")
    rows = [line.strip() for line in text]
    known = [libsvm._label_and_last_index(row) for row in rows]
    assert known == [(1.0, 3), (-1.0, 2), (1.0, 0), (0.0, 7)]


def test_a_libsvm_file_that_cannot_be_read(tmp_path):
    with pytest.raises(SystemExit, match=r"--data .*none\.svm: no such file"):
        libsvm.survey(tmp_path / "none.svm")
    broken = tmp_path / "rows.svm.gz"
    broken.write_bytes(gzip.compress(LIBSVM.encode())[:-20])
    with pytest.raises(SystemExit, match=r"--data .*rows\.svm\.gz: it cannot be read: "):
        libsvm.survey(broken)
