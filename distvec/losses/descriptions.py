"""Losses as plain data in the description of a saved model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

import numpy as np

from distvec.losses.loss import Loss, check_loss

_PUBLIC = "distvec.losses"


def description_of(loss: Loss) -> dict[str, Any]:
    """Its public name and parameters; of one that somebody wrote, the name alone."""
    kind = type(loss)
    if getattr(import_module(_PUBLIC), kind.__name__, None) is not kind:
        return {"own": str(loss)}
    given = {one.name: getattr(loss, one.name) for one in fields(loss) if one.init}  # type: ignore[arg-type]  # losses are dataclasses
    return {"name": kind.__name__, "parameters": {key: _plain(one) for key, one in given.items()}}


def _plain(one: Any) -> Any:
    if isinstance(one, Loss):
        return description_of(one)
    return one.item() if isinstance(one, np.generic) else one


def loss_of(description: Mapping[str, Any], given: Loss | None, path: str) -> Loss:
    """The loss that was described, or the one that is ``given``. ValueError where they differ."""
    if given is None:
        return _loss_of(description, path)
    check_loss(given)
    found = description_of(given)
    if found != description:
        raise ValueError(
            f"loss={given}: {path} holds a model of {_shown(description)}; give that loss, or "
            "leave loss= out where it is one of distvec.losses"
        )
    return given


def _loss_of(description: Mapping[str, Any], path: str) -> Loss:
    if "own" in description:
        raise ValueError(
            f"{path} holds a model of {description['own']}, a loss that is none of {_PUBLIC}; type "
            f"Model.load(path, loss=...) with the one that it was fitted by"
        )
    kind = getattr(import_module(_PUBLIC), description["name"], None)
    if kind is None:
        raise ValueError(
            f"{path} holds a model of {description['name']}, which this version of distvec does "
            "not know; load it with the version that wrote it, or a later one"
        )
    parameters = {
        name: _loss_of(one, path) if isinstance(one, Mapping) else one
        for name, one in description["parameters"].items()
    }
    loss: Loss = kind(**parameters)
    return loss


def _shown(description: Mapping[str, Any]) -> str:
    if "own" in description:
        return str(description["own"])
    given = ", ".join(
        f"{name}={_shown(one) if isinstance(one, Mapping) else repr(one)}"
        for name, one in description["parameters"].items()
    )
    return f"{description['name']}({given})"
