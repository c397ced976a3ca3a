"""Whether the top-level packages that come with ``distvec`` are the ones that Python finds.

``optim`` and ``ps_backend`` are plain names; PyPI, for one, has another project called ``optim``.
"""

from __future__ import annotations

import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

_WORDS = {"optim": b"OWLQN", "ps_backend": b"distvec"}
"""What stands in our ``__init__.py``: another may have been installed over it."""


def check_neighbours(package: str) -> None:
    """Look for those beside ``package``, distvec's ``__init__.py``. Nothing is imported.

    ``ImportError`` with the path of another ``ps_backend``, on which all of distvec stands; a
    ``RuntimeWarning`` with that of another ``optim``, which vectors can do without.
    """
    root = Path(package).resolve().parent.parent
    if (other := _other("ps_backend", root)) is not None:
        raise ImportError(_text("ps_backend", root, other))
    if (other := _other("optim", root)) is not None:
        warnings.warn(_text("optim", root, other), RuntimeWarning, stacklevel=3)


def _other(name: str, root: Path) -> str | None:
    """Where Python finds another package ``name`` than the one in ``root``, if it does."""
    loaded = sys.modules.get(name)
    spec = find_spec(name) if loaded is None else loaded.__spec__
    if spec is None or spec.origin is None:
        return None
    ours = Path(spec.origin).resolve() == root / name / "__init__.py"
    read = getattr(spec.loader, "get_data", None)  # of a file, or of a member of a zip
    ours = ours and (read is None or _WORDS[name] in read(spec.origin))
    return None if ours else spec.origin


def _text(name: str, root: Path, other: str) -> str:
    here = f"{root / name} is not distvec's (another project was installed over it)"
    before = f"{other} comes before distvec's own in {root}"
    return (
        f"'import {name}' finds another package: "
        f"{here if Path(other).parent == root / name else before}; uninstall or rename the other, "
        f"install distvec again, or put it first on sys.path"
    )
