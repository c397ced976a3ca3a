"""numpydoc's validation of the docstrings of everything that users import.

``python -m docs.check_docstrings [PREFIX ...]`` prints each error as ``file:line: name: CODE
text`` and exits with 1 if there is one. With prefixes, such as ``distvec.spark`` or
``optim.LBFGS.minimize``, or paths, such as ``distvec/array/``, it checks these alone.
"""

from __future__ import annotations

import inspect
import sys
from enum import EnumType
from pathlib import Path
from typing import Any

from numpydoc.docscrape import get_doc_object
from numpydoc.validate import Validator, validate

from docs.public import documented

ROOT = Path(__file__).parents[1]
# The layout of this project's docstrings, or sections that not every docstring needs.
WAIVED = {
    "GL01",  # the summary follows the opening quotes on their line
    "GL02",  # the closing quotes of a docstring of one line
    "GL03",  # blank lines
    "ES01",  # an extended summary
    "SA01",  # See Also
}


class _Validator(Validator):  # type: ignore[misc]
    """numpydoc's, also of functions whose source cannot be found."""

    def __init__(self, obj_name: str, thing: Any) -> None:
        super().__init__(get_doc_object(thing))
        # A method without a docstring has that of the method that it overrides.
        self.raw_doc = self.raw_doc or self.clean_doc

    @property
    def method_source(self) -> str:
        """What tells whether the function returns something."""
        try:
            return str(super().method_source)
        except OSError:  # made by Hypothesis: it returns a strategy
            return "def strategy(): return 1"


def _property_of(function: Any) -> property | None:
    """The property that a function is the getter of."""
    owner: Any = sys.modules.get(function.__module__)
    *parents, name = function.__qualname__.split(".")
    for parent in parents:
        owner = getattr(owner, parent, None)
    found = inspect.getattr_static(owner, name, None) if parents else None
    return found if isinstance(found, property) else None


def errors(name: str, thing: Any) -> list[str]:
    """The errors in the docstring of ``thing``, as ``CODE text``."""
    is_method = inspect.isfunction(thing) and "." in thing.__qualname__
    is_exception = isinstance(thing, type) and issubclass(thing, BaseException)
    # A method or an exception needs no example of its own.
    waived = WAIVED | {"EX01"} if is_method or is_exception else WAIVED
    if isinstance(thing, EnumType):  # its members are attributes; its call has Python's parameters
        waived |= {"PR01"}
    if (inspect.getdoc(thing) or "").startswith("Deprecated: "):  # it names the one to use
        waived |= {"PR01", "RT01", "EX01"}
    if inspect.isfunction(thing):
        thing = _property_of(thing) or thing  # described as an attribute, without Returns
    report = validate(name, _Validator, thing=thing)
    return [f"{code} {text}" for code, text in report["errors"] if code not in waived]


def place(thing: Any) -> str:
    """``file:line`` of the definition, relative to the project."""
    source = inspect.unwrap(thing)
    file = inspect.getsourcefile(source)
    if file is None or not Path(file).is_relative_to(ROOT):  # Hypothesis made it
        return str(thing.__module__).replace(".", "/") + ".py:1"
    return f"{Path(file).relative_to(ROOT)}:{inspect.getsourcelines(source)[1]}"


def main(prefixes: list[str]) -> int:
    """Print the errors of all names, or of those that start with a prefix; their number."""
    count = 0
    for name, thing in documented().items():
        where = place(thing)
        if prefixes and not (name.startswith(tuple(prefixes)) or where.startswith(tuple(prefixes))):
            continue
        for error in errors(name, thing):
            print(f"{where}: {name}: {error}")
            count += 1
    return count


if __name__ == "__main__":
    found = main(sys.argv[1:])
    print(f"{found} errors" if found else "All docstrings are valid.")
    sys.exit(bool(found))
