"""docs/how-to/objectives.md: its table is that of the losses; its code runs."""

from __future__ import annotations

import re

from docs import make_objectives

PAGE = make_objectives.PAGE.read_text()


def test_the_table_is_that_of_the_losses():
    assert make_objectives.page(PAGE) == PAGE, "run python -m docs.make_objectives"


def test_the_table_has_every_loss():
    kinds = {type(loss) for loss, _ in make_objectives.FORMULAS}
    assert kinds == set(make_objectives.losses())


def test_the_page_runs(one_spark, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    exec(compile(code, "objectives.md", "exec"), {"__name__": "objectives"})
    over_spark, in_memory, checked, both, gradient, error, *rest = (
        capsys.readouterr().out.splitlines()
    )
    assert over_spark == in_memory
    assert over_spark.startswith("True [ 2. ")
    assert checked == "True"
    assert both.startswith("{'location': array([ 2., -1.,")
    assert gradient.startswith("0 of 13 derivatives differ")
    assert error.startswith(
        "the loss broken failed in row block 0, rows 0 to 1,999: the values are NaN"
    )
    structured, robust, bounded, scaled, rates, minibatches, *models, layouts = rest
    assert models[0].startswith("True [ 2. ") and models[1:3] == ["(2,) 3", "True"]
    assert sum("prediction" in line or "score" in line for line in models) == 2
    assert structured == "True (3, 2)"
    assert robust.endswith(" 0.  ]") and "-" not in bounded
    assert scaled == "True" and minibatches == "True"
    assert rates.startswith("[ 0.3")
    assert layouts == "{0: 'dense rows'}"
