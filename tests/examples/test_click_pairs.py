"""Clicks that depend on pairs: machines find what weights alone do not tell."""

import json

import pytest

from examples.click_pairs import main


def test_machines_predict_better_than_weights(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    picture, file = tmp_path / "auc.png", tmp_path / "auc.json"
    main([
        "--hours", "3", "--rows", "4000", "--users", "40",
        "--picture", str(picture), "--json", str(file),
    ])  # fmt: skip
    last = {name: curve[-1] for name, curve in json.loads(file.read_text())["auc"].items()}
    linear, machine = last["FTRL, linear"], last["factorization machine"]
    assert 0.5 < linear < machine < last["best possible"] + 0.02
    assert " 0 with factors" in capsys.readouterr().out
    assert picture.stat().st_size > 10_000
