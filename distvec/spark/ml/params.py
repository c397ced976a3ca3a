"""Params of estimators and models: keyword arguments, setters, and checks, made from the class."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple, Self

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasFeaturesCol

from distvec.objectives import model as models
from optim.scipy_interface import METHODS, solver_class


def tolerances(tol: float) -> dict[str, float]:
    """Limits of a solver for the Param ``tol``.

    Gains fall with the square of the distance from the minimum, gradients with the distance. At
    small tolerances a gain in proportion to ``tol`` would end fits of ill-conditioned rows early.
    """
    return {
        "gradient_tolerance": max(1e-2 * tol, 1e-12),
        "value_tolerance": min(1e-2 * tol, (1e2 * tol) ** 2),
    }


class Range(NamedTuple):
    """The values that a Param may have."""

    contains: Callable[[Any], bool]
    description: str


def at_least(least: float) -> Range:
    """Return the range of finite numbers from ``least``."""
    return Range(lambda x: least <= x < math.inf, f"finite and {least:g} or more")


def between(least: float, most: float) -> Range:
    """Return the closed range of numbers."""
    return Range(lambda x: least <= x <= most, f"between {least:g} and {most:g}")


def one_of(*names: str) -> Range:
    """Return the range of some names, in any case."""
    return Range(lambda x: x.lower() in names, "one of " + ", ".join(map(repr, names)))


class KeywordParams(Params):
    """Params that are set by keywords, and checked then.

    Classes list the ranges of their Params in ``_ranges``, which adds to the inherited ones.
    """

    _ranges: ClassVar[Mapping[str, Range]]

    def __init__(self, *args: Any, **params: Any) -> None:
        if args:
            raise TypeError("Method __init__ forces keyword arguments.")
        super().__init__()
        self.setParams(**params)

    def setParams(self, *args: Any, **params: Any) -> Self:
        """Set Params by keywords.

        Parameters
        ----------
        *args
            Not allowed: Params are set by name.
        **params
            The Params. ``None`` leaves a Param as it is.

        Returns
        -------
        Params
            This object.

        Raises
        ------
        TypeError
            If there is no Param of that name, or it takes values of another type.
        ValueError
            If a value is out of range, or contradicts another Param.
        """
        if args:
            raise TypeError("Method setParams forces keyword arguments.")
        for name in params:
            if not self.hasParam(name):
                near = difflib.get_close_matches(name, [one.name for one in self.params], 1, 0.4)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"{type(self).__name__} has no Param {name!r}{hint}")
        self._set(**{name: one for name, one in params.items() if one is not None})
        self._check_together()
        return self

    def _check_together(self) -> None:
        """Raise ``ValueError`` for Params that contradict each other."""

    def _set(self, **kwargs: Any) -> Self:
        super()._set(**kwargs)
        for name, value in kwargs.items():
            self._check(name, value)
        return self

    def set(self, param: Param[Any], value: Any) -> None:
        """Set a Param.

        Parameters
        ----------
        param : Param
            The Param.
        value : Any
            Its value.

        Raises
        ------
        TypeError, ValueError
            If the Param does not take this value.
        """
        super().set(param, value)
        self._check(param.name, value)

    def _check(self, name: str, value: Any) -> None:
        """Raise ``ValueError`` if ``value`` is out of range; ``name`` keeps no such value."""
        ranges = (vars(one).get("_ranges", {}) for one in type(self).__mro__)
        allowed: Range | None = next((one[name] for one in ranges if name in one), None)
        if allowed is not None and value is not None and not allowed.contains(value):
            self.clear(self.getParam(name))
            raise ValueError(
                f"parameter {name} given invalid value {value!r}; must be {allowed.description}"
            )


class SettableParams(KeywordParams):
    """The same with a setter for each Param of a subclass."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in dir(cls):
            setter = f"set{name[0].upper()}{name[1:]}"
            if isinstance(getattr(cls, name, None), Param) and not hasattr(cls, setter):
                setattr(cls, setter, _setter(cls, setter, name))


def _is_optimizer(name: str) -> bool:
    with suppress(ValueError):
        return bool(solver_class(name))
    return False


def _to_model(value: Any) -> models.Model:
    """The parameters of a model that distvec has fitted or loaded."""
    found = getattr(value, "fitted", value)
    if isinstance(found, models.Model):
        return found
    raise TypeError(
        f"initialModel is {type(value).__name__}; must be a model of distvec; convert MLlib's, "
        "such as LogisticRegressionModel.from_mllib(model)"
    )


def _to_options(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"must be a dict of options, got {value!r}")


class ProgressParams(Params):
    """The Param of all estimators of distvec, which MLlib's lack."""

    verbose: Param[bool] = Param(
        Params._dummy(),
        "verbose",
        "whether to show a progress bar",
        typeConverter=TypeConverters.toBoolean,
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(verbose=False)

    def _given(self, name: str) -> Any:
        """The value of a Param; None without one."""
        return self.getOrDefault(name) if self.isDefined(name) else None


class StartParams(ProgressParams):
    """The same of those that can start from a model."""

    initialModel: Param[models.Model] = Param(
        Params._dummy(),
        "initialModel",
        "model that the fit starts from; it is not saved",
        typeConverter=_to_model,
    )


class CheckpointParams(Params):
    """The Param of estimators whose fits go on after a crash."""

    checkpointDir: Param[str] = Param(
        Params._dummy(),
        "checkpointDir",
        "directory or URL for checkpoints; the same fit continues from them after a crash",
        typeConverter=TypeConverters.toString,
    )


class FitParams(CheckpointParams, StartParams):
    """The same of those that minimize an objective by a solver of ``optim``."""

    _ranges: ClassVar[Mapping[str, Range]] = {
        "optimizer": Range(_is_optimizer, "one of " + ", ".join(map(repr, METHODS))),
        "checkpointInterval": Range(lambda k: k >= 1, "1 or more"),
    }

    optimizer: Param[str] = Param(
        Params._dummy(),
        "optimizer",
        "name of the solver, as Objective.minimize takes it; chosen by the penalty if unset",
        typeConverter=TypeConverters.toString,
    )
    optimizerOptions: Param[dict[str, Any]] = Param(
        Params._dummy(),
        "optimizerOptions",
        "options of the solver by name, such as {'history': 20}",
        typeConverter=_to_options,
    )
    checkpointInterval: Param[int] = Param(
        Params._dummy(),
        "checkpointInterval",
        "iterations between checkpoints (>= 1)",
        typeConverter=TypeConverters.toInt,
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(checkpointInterval=20)


class HasFeatures(HasFeaturesCol):
    """Features in a column of vectors or arrays, or in several columns of numbers."""

    featuresCols: Param[list[str]] = Param(
        Params._dummy(),
        "featuresCols",
        "columns of numbers; they replace featuresCol",
        typeConverter=TypeConverters.toListString,
    )

    def getFeaturesCols(self) -> list[str]:
        """Return the columns of numbers that are the features.

        Returns
        -------
        list of str
            The names of the columns.

        Raises
        ------
        KeyError
            If ``featuresCol`` names one column.
        """
        found: list[str] = self.getOrDefault(self.featuresCols)
        return found

    def _set(self, **kwargs: Any) -> Self:
        given = kwargs.get("featuresCol")
        if isinstance(given, list | tuple):
            del kwargs["featuresCol"]
            kwargs["featuresCols"] = list(given)
        elif given is not None:
            self.clear(self.featuresCols)
        return super()._set(**kwargs)

    @property
    def _features(self) -> str | list[str]:
        several = self.isSet(self.featuresCols)
        found: str | list[str] = self.getOrDefault("featuresCols" if several else "featuresCol")
        return found


def _setter(owner: type, name: str, param: str) -> Callable[..., Any]:
    def set_param(self: KeywordParams, value: Any) -> KeywordParams:
        return self._set(**{param: value})

    set_param.__name__, set_param.__qualname__ = name, f"{owner.__qualname__}.{name}"
    set_param.__doc__ = f"""Set the Param ``{param}``.

    Parameters
    ----------
    value : Any
        Its value.

    Returns
    -------
    Params
        This object.
    """
    return set_param
