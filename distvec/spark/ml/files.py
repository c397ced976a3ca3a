"""Save and load estimators and models: in MLlib's layout, under our class names or MLlib's."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from operator import attrgetter
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pyspark.ml.linalg import DenseMatrix, DenseVector, Matrices, Matrix, SparseVector, Vector
from pyspark.ml.param import Params
from pyspark.ml.util import (
    DefaultParamsReader,
    GeneralMLWriter,
    MLReadable,
    MLReader,
    MLWritable,
    invoke_helper_attr,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from distvec.losses.loss import Loss
from distvec.spark.jobs.application import is_connect
from ps_backend.arguments import check_choice

T = TypeVar("T", bound="Saved")

_OURS, _JVM = "distvec.spark.ml.", "org.apache.spark.ml."


class Saved(MLWritable, Params, MLReadable[Any]):
    """An estimator or model with files.

    A directory has ``metadata`` (one line of JSON: class, uid and Params) and, for models,
    ``data`` (Parquet), both as MLlib writes them.
    """

    _own_params: ClassVar[frozenset[str]] = frozenset({"featuresCols"})
    """Params that MLlib's class of the same name lacks."""
    _module: ClassVar[str] = ""
    """The module that users import the class from, if it is another than its own."""
    _unsaved_params: ClassVar[frozenset[str]] = frozenset()
    """Params that no file has."""

    _formats: ClassVar[tuple[str, ...]] = ("distvec", "mllib")
    """Formats of ``write().format``; MLlib's model writes those that other classes lack."""
    _is_in_mllib: ClassVar[bool] = True
    """Whether MLlib has a class of this name."""
    _is_on_servers = False
    """Whether the servers hold parameters, so that no frame has them."""

    def _attributes(self) -> dict[str, Any]:
        """Attributes beside parameters and Params, which only our files have."""
        return {}

    def _check_in_mllib(self) -> None:
        """``NotImplementedError`` if MLlib has no such object."""
        if not self._is_in_mllib:
            raise NotImplementedError(
                f"MLlib has no class {type(self).__name__}; leave format() out"
            )

    def _save_from_servers(self, path: str) -> None:
        """Let the servers write the parameters."""
        raise NotImplementedError

    def write(self) -> Writer:
        """Return a writer.

        Returns
        -------
        Writer
            ``write().overwrite().save(path)`` replaces an existing directory. With
            ``format("mllib")`` pyspark and Scala load the directory as MLlib's class.
        """
        return Writer(self)

    @classmethod
    def read(cls) -> Reader[Self]:
        """Return a reader.

        Returns
        -------
        Reader
            ``read().load(path)`` reads files of this class, and of MLlib's class of this name.
        """
        return Reader(cls)

    def _data(self, session: SparkSession) -> DataFrame | None:
        """The attributes of a model as a DataFrame in MLlib's schema; None for estimators."""
        return None

    def _frames(self, session: SparkSession) -> dict[str, DataFrame]:
        """The frames of a model by the name of their directory."""
        data = self._data(session)
        return {} if data is None else {"data": data}

    def _metadata(self) -> dict[str, Any]:
        """Further entries of the metadata, in MLlib's files, too."""
        return {}

    @classmethod
    def _from_data(cls, session: SparkSession, path: str, metadata: Mapping[str, Any]) -> Self:
        """A new object without Params, for models with the attributes of ``data`` at ``path``."""
        return cls()

    @classmethod
    def _jvm_name(cls) -> str:
        """The class in MLlib."""
        return cls._class_name().replace(_OURS, _JVM)

    @classmethod
    def _class_name(cls) -> str:
        """As users import it."""
        return f"{cls._module or cls.__module__}.{cls.__name__}"


class Writer(GeneralMLWriter):
    """Writes an estimator or a model to a directory.

    Parameters
    ----------
    instance : Params
        The estimator or model.
    """

    def __init__(self, instance: Saved) -> None:
        super().__init__()
        self.instance = instance
        self.source = "distvec"

    def format(self, source: str) -> Writer:
        """Choose the class name and the Params that are written.

        Parameters
        ----------
        source : {"distvec", "mllib", "pmml"}
            With "mllib", pyspark and Scala load the directory. Params that MLlib lacks are left
            out. "pmml" is for models of ``LinearRegression`` and ``KMeans``.

        Returns
        -------
        Writer
            This writer.

        Raises
        ------
        ValueError
            If ``source`` is another name.
        NotImplementedError
            If MLlib has no class of this name.
        """
        check_choice(source, self.instance._formats, "source")
        if source == "mllib":
            self.instance._check_in_mllib()
        self.source = source
        return self

    def _handleOverwrite(self, path: str) -> None:
        if is_connect(self.sparkSession):
            invoke_helper_attr("handleOverwrite", path, True)
        else:
            super()._handleOverwrite(path)

    def saveImpl(self, path: str) -> None:
        """Write the directory ``path``, which does not exist."""
        session, instance = self.sparkSession, self.instance
        if self.source not in Saved._formats:
            instance.to_mllib().write().format(self.source).save(path)  # type: ignore[attr-defined]
            return
        is_ours = self.source == "distvec"
        on_servers = instance._is_on_servers and is_ours
        frames = {} if on_servers else instance._frames(session)
        name, skipped = instance._class_name(), instance._unsaved_params
        if self.source == "mllib":
            name, skipped = instance._jvm_name(), skipped | instance._own_params
        metadata = {
            "class": name,
            "timestamp": round(time.time() * 1000),
            "sparkVersion": session.version,
            "uid": instance.uid,
            "paramMap": encode_map(instance._paramMap, skipped),
            "defaultParamMap": encode_map(instance._defaultParamMap, skipped),
            **instance._metadata(),
            **({"attributes": instance._attributes(), "onServers": on_servers} if is_ours else {}),
        }
        line = session.createDataFrame([(json.dumps(metadata),)], "value string")
        line.coalesce(1).write.text(os.path.join(path, "metadata"))
        if on_servers:
            instance._save_from_servers(os.path.join(path, "data"))
        for folder, frame in frames.items():
            frame.coalesce(1).write.parquet(os.path.join(path, folder))


class Reader(MLReader[T], Generic[T]):
    """Reads an estimator or a model from a directory.

    Parameters
    ----------
    kind : type
        The class to read.
    """

    def __init__(self, kind: type[T]) -> None:
        super().__init__()
        self.kind = kind

    def load(self, path: str) -> T:
        """Read a directory.

        Parameters
        ----------
        path : str
            The directory.

        Returns
        -------
        Params
            An estimator or a model of the class that this reader belongs to.

        Raises
        ------
        ValueError
            If the directory contains another class.
        """
        session, kind = self.sparkSession, self.kind
        metadata = DefaultParamsReader.loadMetadata(path, session)
        found = metadata["class"]
        if found not in (kind._class_name(), kind._jvm_name()):
            raise ValueError(f"{path} contains a {found}, not a {kind._class_name()}")
        made = kind._from_data(session, path, metadata)
        made._resetUid(metadata["uid"])
        for name, value in metadata["defaultParamMap"].items():
            if made.hasParam(name):
                made._setDefault(**{name: _decode(value)})
        for name, value in metadata["paramMap"].items():
            if not made.hasParam(name):
                raise ValueError(f"{path} has the Param {name}, which {kind.__name__} lacks")
            made._set(**{name: _decode(value)})
        return made


def encode_map(params: Mapping[Any, Any], skipped: frozenset[str]) -> dict[str, Any]:
    """The values of Params by name, as the JVM's reader wants them."""
    return {
        param.name: _encode(value)
        for param, value in params.items()
        if param.name not in skipped and value is not None
    }


def _encode(value: Any) -> Any:
    """A Param's value as the JVM's reader wants it."""
    if isinstance(value, float | np.floating):
        number = float(value)
        if math.isfinite(number):
            return number
        return "NaN" if math.isnan(number) else "Inf" if number > 0 else "-Inf"
    if isinstance(value, Matrix):
        dense = value.toArray().ravel(order="F")
        return {
            "class": "matrix",
            "type": 1,
            "numRows": value.numRows,
            "numCols": value.numCols,
            "values": _encode_elements(dense),
            "isTransposed": False,
        }
    if isinstance(value, Vector):
        return {"type": 1, "values": _encode_elements(value.toArray())}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Loss):
        return encode_loss(value)
    if callable(value):
        return {"function": _import_path(value, f"the function {value}")}
    if isinstance(value, Mapping):
        return {name: _encode(one) for name, one in value.items()}
    return [_encode(one) for one in value] if isinstance(value, list | tuple) else value


_LOSSES = "distvec.losses"


def encode_loss(loss: Loss) -> dict[str, Any]:
    """A loss by the path that imports it, and its arguments. ``ValueError`` without a path."""
    own: Any = getattr(loss, "function", type(loss))
    path = _import_path(own, f"loss={loss}")
    if own is type(loss):
        given = {one.name: getattr(loss, one.name) for one in fields(loss) if one.init}  # type: ignore[arg-type]  # losses are dataclasses
    else:
        given = getattr(loss, "arguments", {})
    return {"loss": path, "arguments": _encode(given)}


def _import_path(own: Any, title: str) -> str:
    """Module and name of a class or function. ``ValueError`` for those that no program imports."""
    module, name = getattr(own, "__module__", ""), getattr(own, "__qualname__", "<object>")
    if getattr(import_module(_LOSSES), name, None) is own:
        module = _LOSSES
    if "<" in name:
        raise ValueError(
            f"{title} cannot be saved, as it is an object, or defined within a function; define "
            "it at the top of a module, which the program that loads it can import"
        )
    return f"{module}:{name}"


def _import(path: str, kind: str) -> Any:
    """The class or function of such a path. ``ValueError`` if it is not there."""
    module, _, name = path.partition(":")
    try:
        return attrgetter(name)(import_module(module))
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"the {kind} {name} cannot be imported from {module}: {error}; add its module to the "
            "Python path, or define it before you load the model"
        ) from None


def decode_loss(value: Mapping[str, Any]) -> Loss:
    """The loss of such a path: it imports the module, as Spark does with classes of files."""
    found, arguments = _import(value["loss"], "loss"), _decode(value["arguments"])
    if isinstance(found, type) and issubclass(found, Loss):
        return found(**arguments)
    if isinstance(found, Loss):
        return found(**arguments) if arguments else found  # type: ignore[operator]
    raise ValueError(f"{value['loss']} is {type(found).__name__}, not a loss")


_MOST = np.finfo(np.float64).max
"""Stands for infinity in vectors and matrices: the JVM's reader takes no other name of it there."""


def _encode_elements(values: npt.ArrayLike) -> list[float]:
    found: list[float] = np.clip(values, -_MOST, _MOST).tolist()
    return found


def _decode_elements(values: list[float]) -> npt.NDArray[np.float64]:
    found = np.array(values, np.float64)
    return np.where(np.abs(found) == _MOST, np.copysign(np.inf, found), found)


_NUMBERS = {"NaN": math.nan, "Inf": math.inf, "-Inf": -math.inf}


def _decode(value: Any) -> Any:
    if isinstance(value, str):
        return _NUMBERS.get(value, value)
    if isinstance(value, list):
        return [_decode(one) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"loss", "arguments"}:
        return decode_loss(value)
    if set(value) == {"function"}:
        return _import(value["function"], "function")
    if "values" not in value:
        return {name: _decode(one) for name, one in value.items()}
    numbers = _decode_elements(value["values"])
    if value.get("class") == "matrix":
        shape = value["numRows"], value["numCols"]
        if value["type"] == 0:
            structure = value["colPtrs"], value["rowIndices"]
            return Matrices.sparse(*shape, *structure, numbers)
        return DenseMatrix(*shape, numbers, value["isTransposed"])
    if value["type"] == 0:
        return SparseVector(value["size"], value["indices"], numbers)
    return DenseVector(numbers)


def frame_of(session: SparkSession, **columns: tuple[DataType, Any]) -> DataFrame:
    """One row with these columns: type and value by name."""
    schema = StructType([StructField(name, kind) for name, (kind, _) in columns.items()])
    return session.createDataFrame([tuple(value for _, value in columns.values())], schema)
