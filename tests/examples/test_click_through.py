"""Click-through: a stream whose keys grow, and a picture of how well it is predicted."""

import numpy as np
import pytest

from examples.click_through import area, draw, main


@pytest.mark.spark
def test_the_stream_is_learned(one_spark, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "auc.png"
    main(["--hours", "3", "--rows", "3000", "--users", "40", "--picture", str(picture)])
    *hours, total, told = capsys.readouterr().out.splitlines()
    fields = [line.replace(",", "").split() for line in hours]
    assert [int(words[1]) for words in fields] == [0, 1, 2]
    assert [int(words[2]) for words in fields] == [3000, 6000, 9000]
    keys = [int(words[4]) for words in fields]
    assert keys == sorted(set(keys))
    found = [float(words[9]) for words in fields]
    assert 0.5 < found[0] < found[2] < float(fields[2][-1].rstrip(")")) + 0.02
    assert total == f"{keys[-1]:,} weights after 9,000 rows"
    assert told.endswith(str(picture)) and picture.stat().st_size > 10_000


def test_without_matplotlib_it_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("examples.click_through.find_spec", lambda name: None)
    draw(tmp_path / "auc.png", {"best": [0.6], "found": [0.5]})
    assert "pip install 'distvec[plot]'" in capsys.readouterr().out
    assert area(np.array([0.1, 0.9, 0.5, 0.2]), np.array([0, 1, 0, 1])) == 0.75
