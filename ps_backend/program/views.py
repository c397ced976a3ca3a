"""Views: how the slots of a sweep read an array at other slots, of its own space or of another.

Positions are counted in elements, in C order: a table ``(n, k)`` is seen as ``n * k`` of them, and
a slot reads a *piece*, as many consecutive ones as its row has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from ps_backend.program.spaces import Space
from ps_backend.program.types import Row

INDEX_DTYPES = ("int64", "int32")
"""Of arrays of indices that views have."""


@dataclass(frozen=True, slots=True)
class View:
    """How the slots of a sweep read a buffer over ``space``, with rows of shape ``row``.

    Slot ``i`` reads slot ``start + step * i`` of the buffer. Between rows of other widths ``step``
    is 1 and ``start`` counts elements: slot ``i`` of width ``w`` reads the ``w`` elements from
    ``start + w * i`` (a reshape, of spaces that are cut as they like).
    """

    space: Space
    row: Row = ()
    start: int = 0
    step: int = 1
    spread: bool = False
    """The inverse, for assignment: slot ``start + step * j`` reads slot ``j`` of the buffer, and a
    slot that is none of these reads zeros. Slots ``j`` that land beyond the sweep nobody reads: by
    step 1 this is a shift."""
    index: int = 0
    """The id of a buffer of one of ``INDEX_DTYPES`` over the space of the sweep, where slot ``i``
    says which slot of this buffer it reads, negative ones from its end; 0 if there is none."""

    @property
    def width(self) -> int:
        """Elements of one row of the buffer."""
        return prod(self.row)

    def fits(self, length: int, row: Row) -> bool:
        """Whether ``length`` slots with rows of shape ``row`` find all they read in the buffer."""
        width, there = prod(row), self.space.length
        if not self.step:
            return False
        if self.index:
            plain = (self.start, self.step, self.spread) == (0, 1, False)
            return plain and width == self.width and (there > 0 or not length)
        if self.spread:
            return width == self.width
        if width == self.width:
            return self._holds(there, length)
        return (
            self.step == 1 and self.start >= 0 and self.start + length * width <= there * self.width
        )

    def _holds(self, places: int, count: int) -> bool:
        """Whether ``start + step * k`` is one of so many places for all ``k`` below ``count``."""
        last = self.start + self.step * (count - 1)
        return not count or (0 <= self.start < places and 0 <= last < places)

    def __str__(self) -> str:
        if self.index:
            return f"at buffer {self.index} of {self.space}"
        kind = "spread from" if self.spread else "from"
        return f"{kind} {self.start} by {self.step} of {self.space}"


@dataclass(frozen=True, slots=True)
class Span:
    """Some of what a run of slots reads that lies on one server: ``count`` pieces, evenly spaced.

    Piece ``k`` are the ``width`` elements from ``start + step * k`` of the buffer, and it becomes
    those from ``first + stride * k`` of the run.
    """

    server: int
    start: int
    step: int
    count: int
    width: int
    first: int
    stride: int

    @property
    def size(self) -> int:
        """Elements in all."""
        return self.count * self.width


Ranges = Sequence[tuple[int, int, int]]
"""``(server, first, past the last)`` slot of a buffer, of the servers that hold some of it."""


def spans(view: View, row: Row, low: int, high: int, ranges: Ranges) -> Iterator[Span]:
    """What slots ``low`` to ``high`` of a sweep, with rows of shape ``row``, read from whom.

    For a view without index. Those slots of a ``spread`` one that no span names read zeros.
    """
    width = prod(row)
    if view.spread:
        yield from _spread_spans(view, width, low, high, ranges)
    elif width == view.width and view.step != 1:
        yield from _strided_spans(view, width, low, high, ranges)
    else:
        base = view.start * width if width == view.width else view.start
        first, last = base + low * width, base + high * width
        for server, begin, end in ranges:
            start, stop = max(first, begin * view.width), min(last, end * view.width)
            if start < stop:
                size = stop - start
                yield Span(server, start, size, 1, size, start - first, size)


def _strided_spans(view: View, width: int, low: int, high: int, ranges: Ranges) -> Iterator[Span]:
    for server, begin, end in ranges:
        first, last = _clip_range(view.start, view.step, begin, end)
        first, last = max(low, first), min(high, last)
        if first < last:
            start = (view.start + view.step * first) * width
            yield Span(
                server,
                start,
                view.step * width,
                last - first,
                width,
                (first - low) * width,
                width,
            )


def _spread_spans(view: View, width: int, low: int, high: int, ranges: Ranges) -> Iterator[Span]:
    first, last = _clip_range(view.start, view.step, low, high)
    for server, begin, end in ranges:
        start, stop = max(first, begin), min(last, end)
        if start < stop:
            to = (view.start + view.step * start - low) * width
            yield Span(
                server,
                start * width,
                width,
                stop - start,
                width,
                to,
                view.step * width,
            )


def _clip_range(start: int, step: int, low: int, high: int) -> tuple[int, int]:
    """The ``k``, first and past the last, for which ``low <= start + step * k < high``."""
    if step > 0:
        return -((start - low) // step), -((start - high) // step)
    return (start - high) // -step + 1, (start - low) // -step + 1


def in_place(view: View, row: Row, begin: int, end: int) -> tuple[int, int]:
    """The slots, first and past the last, whose pieces lie one after the other in the buffer's
    slots ``begin`` to ``end``."""
    width = prod(row)
    if view.index or view.step != 1:
        return 0, 0
    if view.spread:
        return begin + view.start, end + view.start
    if width == view.width:
        return begin - view.start, end - view.start
    return -((view.start - begin * view.width) // width), (end * view.width - view.start) // width
