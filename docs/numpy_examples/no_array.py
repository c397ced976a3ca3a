"""Names of NumPy that take no array: they are used as they are."""

from __future__ import annotations

from types import ModuleType

import numpy as np

_OTHERS = {
    "Constants": "e euler_gamma inf nan newaxis pi True_ False_ little_endian __version__",
    "Dtypes and their properties": "dtype finfo iinfo issubdtype isdtype promote_types "
    "mintypecode typename typecodes sctypeDict ScalarType datetime_data __array_namespace_info__",
    "Shapes and indices, which the client computes": "broadcast_shapes ndindex s_ index_exp "
    "mgrid ogrid indices diag_indices tril_indices triu_indices mask_indices",
    "Windows; copy them to the servers with `session.array(...)`": "bartlett blackman hamming "
    "hanning kaiser",
    "Settings and information": "errstate geterr seterr geterrcall seterrcall "
    "getbufsize setbufsize printoptions get_printoptions set_printoptions get_include info "
    "show_config show_runtime test",
    "Strings of single numbers": "base_repr binary_repr",
    "Files; copy their arrays to the servers with `session.array(...)`": "load fromregex memmap",
    "Other classes": "ndarray flatiter recarray record busdaycalendar",
}


def no_arrays() -> dict[str, list[str]]:
    """By what they are, the names."""
    found = {what: [f"np.{name}" for name in names.split()] for what, names in _OTHERS.items()}
    listed = {name for names in found.values() for name in names}
    for name in sorted(np.__all__):
        value = getattr(np, name)
        if f"np.{name}" in listed:
            continue
        if isinstance(value, type) and issubclass(value, np.generic):
            found.setdefault("Dtypes and their kinds", []).append(f"np.{name}")
        elif isinstance(value, ModuleType):
            found.setdefault("Modules", []).append(f"np.{name}")
    found["Errors"] = ["np.linalg.LinAlgError"]
    return found
