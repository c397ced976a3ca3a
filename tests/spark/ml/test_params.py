"""Our classes have the public names, Params and defaults of pyspark's; no test needs Java."""

from __future__ import annotations

from importlib import import_module

import pytest
from pyspark.ml import Estimator, Model
from pyspark.ml.wrapper import JavaWrapper

from tests.mllib.sources import MODULES, ours


def _class(package, module, name):
    return getattr(import_module(f"{package}.ml.{module}"), name)


CLASSES = {
    name: (_class("pyspark", module, name), _class("distvec.spark", module, name))
    for module in MODULES
    for name in import_module(f"pyspark.ml.{module}").__all__
    if ours(module, name)
}
ESTIMATORS = [name for name, pair in CLASSES.items() if issubclass(pair[0], Estimator)]
MODELS = [name for name, pair in CLASSES.items() if issubclass(pair[0], Model)]


@pytest.mark.parametrize("name", CLASSES)
def test_each_public_name_of_pyspark_is_there(name):
    theirs, own = CLASSES[name]
    assert [one for one in dir(theirs) if one[0] != "_" and not hasattr(own, one)] == []


def _params(stage):
    """The Params by name: the description, the converter and the default, if there is one."""
    defaults = {one.name: value for one, value in stage._defaultParamMap.items()}
    if "seed" in defaults:  # pyspark's is the hash of a name, another one in each process
        defaults["seed"] = "some number"
    if "outputCol" in defaults:
        defaults["outputCol"] = defaults["outputCol"].removeprefix(stage.uid)
    return {
        one.name: (one.doc, one.typeConverter, defaults.get(one.name, "no default"))
        for one in stage.params
    }


@pytest.mark.parametrize("name", ESTIMATORS)
def test_params_and_defaults_are_those_of_pyspark(name, monkeypatch):
    monkeypatch.setattr(JavaWrapper, "_new_java_obj", staticmethod(lambda *_: None))
    theirs, own = (kind() for kind in CLASSES[name])
    assert _params(theirs).items() <= _params(own).items()


_READS = {"ALSModel": lambda model: model.rank, "Word2VecModel": lambda model: model.getVectors()}


# LDAModel is what two kinds of models have in common, in pyspark too.
@pytest.mark.parametrize("name", sorted({*MODELS} - {"LDAModel"}))
def test_models_can_be_made_empty(name):
    """As pyspark's, whose users call ``ALSModel().load(path)``."""
    made = CLASSES[name][1]()
    with pytest.raises(ValueError, match=f"this {name} has no .*load"):
        _READS.get(name, lambda model: model.fitted)(made)
