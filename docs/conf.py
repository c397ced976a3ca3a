"""The configuration of Sphinx: ``make docs`` builds the site into ``build/site``, offline."""

from __future__ import annotations

import enum
import inspect
from functools import cached_property
from pathlib import Path

from numpydoc.xref import DEFAULT_LINKS
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import distvec
from docs.make_inventories import ADDRESSES, TYPES
from docs.public import documented

DOCS = Path(__file__).parent

project = "distvec"
author = "distvec developers"
copyright = author
version = release = distvec.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

templates_path = ["_templates"]
exclude_patterns = ["_static", "_templates"]
# Named one by one: pages that are new since the last build are found, too.
autosummary_generate = sorted(str(page) for page in (DOCS / "reference").rglob("*.md"))
autodoc_typehints = "none"  # the parameters' sections tell the types
autodoc_member_order = "alphabetical"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False

# The links to NumPy, SciPy and PySpark come from small inventories in the tree: no network needed.
intersphinx_mapping = {
    project: (address, str(DOCS / "inventories" / f"{project}.inv"))
    for project, address in ADDRESSES.items()
}
# Types of parameters that are names of ours, or of those projects, are links; others are text.
# numpydoc's own links, such as that of "array" to numpy.ndarray, would be wrong or unknown here.
DEFAULT_LINKS.clear()
_classes = {
    name.rpartition(".")[2]: name for name, thing in documented().items() if inspect.isclass(thing)
}
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"
numpydoc_xref_aliases = _classes | TYPES

html_theme = "pydata_sphinx_theme"
html_title = f"distvec {release}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "distvec"},
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "navigation_depth": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
# The pages of single objects are many: a short navigation, as a full one takes half of the build.
html_sidebars = {"reference/api/generated/*": ["api_navigation.html"]}
# The prompts of examples are not copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def _skip(app: object, what: str, name: str, thing: object, skip: bool, options: object) -> bool:
    """Tell whether to leave out a member: a plain attribute, or a method of another library."""
    kept = property, cached_property, enum.Enum
    plain = what == "class" and not (inspect.isroutine(thing) or isinstance(thing, kept))
    # Their docstrings refer to pages and terms of other sites.
    foreign = (getattr(thing, "__module__", None) or "").startswith(("sklearn.", "torch."))
    return skip or plain or foreign


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", _skip)
    app.add_lexer("mermaid", TextLexer)  # repository browsers draw it
