"""States as arrays by name and a document that JSON can hold, and back, bit for bit.

Nothing is pickled. Of classes, only dataclasses and enums of `optim` are made again, and the tuples
with named fields that the user's own start is made of. A document says for

    None, True, 3, 0.5, "a"  the same
    a tuple                  [...]
    a list, a dict           {"list": [...]}, {"dict": [[key, value], ...]}, in its order
    nan, inf                 {"float": its eight bytes}
    a NumPy scalar           {"scalar": [dtype, bytes]}
    an array                 {"array": name}, the same name for the same object
    a dataclass              {"object": "optim.State", "fields": {...}}
    an enum's member         {"enum": "optim.Outcome", "name": ...}
    a class of structures    {"type": "dict"}

Classes are named without their module, so that files stay readable when code moves. Files of
version 0.1 say "optim.core.state:State"; the module is passed over.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import struct
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from optim.core.arrays import Array
from optim.core.checkpoints.keeper import Corrupted

Node = Any  # A node of a document: any value that JSON can hold.

_PREFIX = "optim."
_STRUCTURES: dict[str, type] = {"dict": dict, "list": list, "tuple": tuple}


@dataclass
class Encoder:
    """Encodes values, and collects their arrays by the place at which each was first found.

    ``local`` says whether the arrays are NumPy's. If not, NumPy's among them are few and small, and
    go into the document: ``{"local": [dtype, shape, bytes]}``.
    """

    local: bool = True
    arrays: dict[str, Array] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)

    def encode(self, value: Any, place: str) -> Node:
        """Return the node for `value`; `place` names it in errors, and its arrays."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
        if isinstance(value, np.generic):
            return {"scalar": [_dtype(value, place), value.tobytes().hex()]}
        if isinstance(value, Enum):
            return {"enum": _class_name(type(value), place), "name": value.name}
        if isinstance(value, type):
            return {"type": structure_name(value)}
        if is_dataclass(value):
            return self._object(value, place)
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return self._array(value, place)
        return self._container(value, place)

    def _inner(self, value: Any, place: str, key: Any) -> Node:
        return self.encode(value, f"{place}.{key}")

    def _object(self, value: Any, place: str) -> Node:
        own = {
            name: self._inner(getattr(value, name), place, name)
            for name in _state_fields(type(value))
        }
        return {"object": _class_name(type(value), place), "fields": own}

    def _array(self, value: Array, place: str) -> Node:
        if isinstance(value, np.ndarray):
            dtype = _dtype(value, place)
            if not self.local:
                return {"local": [dtype, list(value.shape), value.tobytes().hex()]}
        name = self._names.setdefault(id(value), place)
        self.arrays.setdefault(name, value)  # While the array is held here, its id stays unique.
        return {"array": name}

    def _container(self, value: Any, place: str) -> Node:
        if isinstance(value, Mapping):
            pairs = enumerate(value.items())  # Places are numbered, because keys may contain dots.
            return {
                "dict": [[self.encode(k, place), self._inner(v, place, i)] for i, (k, v) in pairs]
            }
        if type(value) in (tuple, list):
            nodes = [self._inner(part, place, i) for i, part in enumerate(value)]
            return nodes if type(value) is tuple else {"list": nodes}
        raise TypeError(
            f"a checkpoint cannot hold {place}, a {type(value).__name__}; states may hold arrays, "
            "numbers, strings, tuples, lists, dicts and dataclasses of optim"
        )


@dataclass(frozen=True)
class Decoder:
    """Makes the values of nodes again.

    It needs the arrays by name, and the classes of tuples with named fields by `structure_name`.
    """

    arrays: Mapping[str, Array]
    kinds: Mapping[str, type] = field(default_factory=dict)

    def decode(self, node: Node) -> Any:
        """Return the value of `node`. Raises `Corrupted` for a node that no encoder writes."""
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        try:
            if isinstance(node, list):
                return tuple(map(self.decode, node))
            kind, body = next(iter(node.items()))
            return _READERS[kind](self, node, body)
        except Corrupted:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise Corrupted(f"not the encoding of a state: {node!r:.200}: {error!r}") from error
        except (StopIteration, struct.error) as error:
            raise Corrupted(f"not the encoding of a state: {node!r:.200}") from error

    def _list(self, node: Node, body: Any) -> Any:
        return list(map(self.decode, body))

    def _dict(self, node: Node, body: Any) -> Any:
        return {self.decode(key): self.decode(value) for key, value in body}

    def _float(self, node: Node, body: Any) -> Any:
        return struct.unpack(">d", bytes.fromhex(body))[0]

    def _scalar(self, node: Node, body: Any) -> Any:
        dtype, content = body
        return np.frombuffer(bytes.fromhex(content), _plain(dtype))[0]

    def _local(self, node: Node, body: Any) -> Any:
        dtype, shape, content = body
        return np.frombuffer(bytes.fromhex(content), _plain(dtype)).reshape(shape).copy()

    def _array(self, node: Node, body: Any) -> Any:
        return self.arrays[body]

    def _enum(self, node: Node, body: Any) -> Any:
        cls = _class_of(body)
        if not issubclass(cls, Enum):
            raise Corrupted(f"{body} is not an enum")
        return cls[node["name"]]

    def _type(self, node: Node, body: Any) -> Any:
        if body not in _STRUCTURES and body not in self.kinds:
            raise ValueError(
                f"x in the checkpoint holds a {body}, but x0 does not; give an x0 of its structure"
            )
        return _STRUCTURES.get(body) or self.kinds[body]

    def _object(self, node: Node, body: Any) -> Any:
        cls, given = _class_of(body), node["fields"]
        if not is_dataclass(cls) or set(given) != set(_state_fields(cls)):
            raise Corrupted(
                f"{body} has other fields in this version of optim; resume with the version that "
                "wrote the checkpoint, or start again in another directory"
            )
        made = object.__new__(cls)  # The object was valid: no check runs, and bits stay.
        for own in fields(cls):
            if own.init:
                object.__setattr__(made, own.name, self.decode(given[own.name]))
            elif own.default_factory is not MISSING:
                object.__setattr__(made, own.name, own.default_factory())
        return made


_READERS: dict[str, Any] = {
    "list": Decoder._list,
    "dict": Decoder._dict,
    "float": Decoder._float,
    "scalar": Decoder._scalar,
    "local": Decoder._local,
    "array": Decoder._array,
    "enum": Decoder._enum,
    "type": Decoder._type,
    "object": Decoder._object,
}


def structure_name(kind: type) -> str:
    """How a class of structures is called in documents: "dict", or "module:Class"."""
    known = (name for name, cls in _STRUCTURES.items() if cls is kind)
    return next(known, f"{kind.__module__}:{kind.__qualname__}")


def _state_fields(cls: Any) -> list[str]:
    """The fields that make the object; it keeps others only for speed."""
    return [own.name for own in fields(cls) if own.init]


def _class_name(cls: type, place: str) -> str:
    if not cls.__module__.startswith(_PREFIX):
        raise TypeError(
            f"a checkpoint cannot hold {place}, a {cls.__module__}.{cls.__qualname__}; of "
            "classes it can hold only dataclasses of optim, because a file must not create others; "
            "make the solver's memory a tuple or a dict"
        )
    return _PREFIX + cls.__qualname__


def _class_of(name: str) -> type:
    if not name.startswith(_PREFIX):
        raise Corrupted(f"{name} is not a class of optim; no other class is created from a file")
    written = name.partition(":")[2] or name.removeprefix(_PREFIX)
    try:
        return _classes()[written]
    except KeyError as error:
        raise Corrupted(
            f"{name} does not exist in this version of optim; resume with the version that wrote "
            "the checkpoint, or start again in another directory"
        ) from error


@cache
def _classes() -> dict[str, type]:
    """The dataclasses and enums of `optim` by name. A name belongs to one class, as tests check."""
    package = importlib.import_module(_PREFIX[:-1])
    found = (module.name for module in pkgutil.walk_packages(package.__path__, _PREFIX))
    return {
        cls.__qualname__: cls
        for module in map(importlib.import_module, found)
        for cls in vars(module).values()
        if isinstance(cls, type) and cls.__module__ == module.__name__
        if is_dataclass(cls) or issubclass(cls, Enum)
    }


def _dtype(value: Any, place: str) -> str:
    if value.dtype.kind not in "fiubc":
        raise TypeError(
            f"a checkpoint cannot hold {place} of dtype {value.dtype}; give real or complex numbers"
        )
    return str(value.dtype.str)


def _plain(name: str) -> np.dtype[Any]:
    dtype = np.dtype(name)
    if dtype.kind not in "fiubc":
        raise Corrupted(f"dtype {name} is not a dtype of numbers")
    return dtype
