"""How plain the project's texts are: ``python -m docs.words [PATH ...]`` prints it file by file.

Counted are five words that stand for a missing actor or noun, per 1,000 words of prose: they are
rare in documentation that newcomers read with ease. Code, tables' rules and literals do not count.
"""

from __future__ import annotations

import ast
import inspect
import re
import statistics
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from docs.public import PACKAGES, documented

ROOT = Path(__file__).parents[1]
MARKERS = {
    "what": re.compile(r"\bwhat\b", re.IGNORECASE),
    "who": re.compile(r"\b(who|whom|whoever|whose)\b", re.IGNORECASE),
    # `None` is a value.
    "nobody": re.compile(r"\b([Nn]obody|[Nn]othing|none|[Nn]either)\b"),
    # `np.where` is a function, `where=` a keyword.
    "where": re.compile(r"(?<!\.)\bwhere\b(?!=)", re.IGNORECASE),
    "that of": re.compile(r"\b(that|those) of\b", re.IGNORECASE),
}
LIMIT = 2.0
"""Markers per 1,000 words."""


def prose(markdown: str) -> str:
    """A page's text without code, links' targets, comments and markup."""
    text = re.sub(r"^(```|~~~|:::).*?^\1", "", markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^( {4,}|\t)(?![-*\d]).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"`+[^`]*`+", "CODE", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"^\s*\|.*$", lambda row: row[0].replace("|", "\n\n"), text, flags=re.MULTILINE)
    text = re.sub(r"^#.*$", r"\g<0>\n", text, flags=re.MULTILINE)
    return re.sub(r"[|#>*\[\]_]", " ", text)


def docstring(text: str) -> str:
    """A docstring's text without examples, literals and underlines of sections."""
    text = inspect.cleandoc(text)
    text = re.sub(r"^\s*(>>>|\.\.\.).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\nExamples\n-+\n.*?(?=\n\n\w[^\n]*\n--|\Z)", "", text, flags=re.DOTALL)
    text = re.sub(r"^-{3,}$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(\s*)\*{0,2}\w[\w, *]* : .*$", r"\1", text, flags=re.MULTILINE)  # parameters
    text = re.sub(r'"[\w ]+"', "CODE", text)  # the choices of a parameter, such as "none"
    return re.sub(r"`+[^`]*`+", "CODE", text)


def pages() -> dict[str, str]:
    """The prose of each page that users read."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return {str(path.relative_to(ROOT)): prose(path.read_text()) for path in sorted(paths)}


def docstrings() -> dict[str, str]:
    """The prose of the docstrings of everything that users import, by the module of each."""
    texts: dict[str, list[str]] = {}
    for thing in documented().values():
        module = str(getattr(thing, "__module__", ""))
        texts.setdefault(module, []).append(docstring(getattr(thing, "__doc__", None) or ""))
    return {module: "\n\n".join(parts) for module, parts in sorted(texts.items())}


def sources() -> Iterator[Path]:
    """The modules of the packages."""
    for package in sorted(PACKAGES):
        yield from sorted(p for p in (ROOT / package).rglob("*.py") if "_pb2" not in p.name)


def errors() -> dict[str, str]:
    """The literal parts of the messages of errors, by module."""
    texts = {}
    for path in sources():
        found = []
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                parts = [
                    part.value
                    for argument in node.exc.args
                    for part in ast.walk(argument)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                ]
                found.append(re.sub(r"\s+", " ", " ".join(parts)))
        if found:
            texts[str(path.relative_to(ROOT))] = "\n\n".join(found)
    return texts


def comments() -> dict[str, str]:
    """The comments, by module."""
    texts = {}
    for path in sources():
        with path.open("rb") as file:
            texts[str(path.relative_to(ROOT))] = "\n".join(
                token.string.lstrip("# ")
                for token in tokenize.tokenize(file.readline)
                if token.type == tokenize.COMMENT
            )
    return texts


def words(text: str) -> int:
    """The number of words."""
    return len(re.findall(r"[A-Za-z][\w'-]*", text))


def markers(text: str) -> dict[str, int]:
    """How often each marker occurs."""
    return {name: len(pattern.findall(text)) for name, pattern in MARKERS.items()}


def rate(texts: Iterable[str]) -> float:
    """Markers per 1,000 words."""
    whole = "\n\n".join(texts)
    return 1000 * sum(markers(whole).values()) / max(words(whole), 1)


def sentences(text: str) -> list[str]:
    """The sentences of running text."""
    whole = re.sub(r"[ \t]*\n(?!\n|\s*[-\d])[ \t]*", " ", text)
    parts = re.split(r"(?<=[.!?:])\s+|\n+", whole)
    return [part.strip() for part in parts if words(part) > 3]


KINDS = {"pages": pages, "docstrings": docstrings, "errors": errors, "comments": comments}


def table(kind: str, texts: Mapping[str, str]) -> Iterator[str]:
    """A line for the whole kind, and one for each file above the limit."""
    lengths = sorted(words(sentence) for text in texts.values() for sentence in sentences(text))
    ninety = lengths[int(0.9 * len(lengths))] if lengths else 0
    whole = "\n\n".join(texts.values())
    yield (
        f"{kind}: {words(whole):,} words, {rate(texts.values()):.2f} markers per 1,000 "
        f"{markers(whole)}, sentences: mean {statistics.fmean(lengths or [0]):.1f}, "
        f"90 % at most {ninety} words"
    )
    for name, text in texts.items():
        if rate([text]) >= LIMIT:
            counts = {marker: count for marker, count in markers(text).items() if count}
            yield f"  {rate([text]):6.1f}  {name} {counts}"


def main(paths: list[str]) -> None:
    """Print the tables; with paths, each sentence in these files that has a marker."""
    for kind, collect in KINDS.items():
        texts = collect()
        if not paths:
            print("\n".join(table(kind, texts)))
        for name, text in texts.items():
            if paths and name.replace(".", "/").startswith(
                tuple(path.removesuffix(".py").replace(".", "/") for path in paths)
            ):
                for sentence in sentences(text):
                    if any(markers(sentence).values()):
                        print(f"{name}: {kind}: {sentence}")


if __name__ == "__main__":
    main(sys.argv[1:])
