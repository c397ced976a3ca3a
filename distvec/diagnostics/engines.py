"""What the servers run the sweeps of a plan by."""

from __future__ import annotations

from collections.abc import Iterator

from distvec.planner.plan import Template
from ps_backend.kernels import explained


def engines(template: Template) -> Iterator[str]:
    """A line for each sweep, in order: the engine, and why it is that one."""
    for number, program in enumerate(template.programs, 1):
        for place, sweep in enumerate(program.sweeps, 1):
            which = f"sweep {place} of program {number}"
            yield f"{which} runs by {explained(sweep.structure, sweep.space.length)}"
