"""Cost as an assertion: what a plan would send, read and write."""

from __future__ import annotations

from distvec.array.dist_array import DistArray


def assert_plan(
    *arrays: DistArray,
    messages: int | None = None,
    sweeps: int | None = None,
    vectors_read: int | None = None,
    vectors_written: int | None = None,
    programs: int | None = None,
    phases: int | None = None,
) -> None:
    """``AssertionError``, with the plan, unless computing ``arrays`` now would cost just this.

    ``messages`` to each server (one per program), ``sweeps`` over memory, vectors read (once per
    sweep) and written, ``phases`` of movements. What is not given is not checked. Nothing runs.
    """
    wanted = {
        "messages": messages,
        "sweeps": sweeps,
        "vectors_read": vectors_read,
        "vectors_written": vectors_written,
        "programs": programs,
        "phases": phases,
    }
    checked = {name: count for name, count in wanted.items() if count is not None}
    if not arrays or not checked:
        raise TypeError(
            f"assert_plan: needs arrays and at least one of {', '.join(wanted)}, "
            f"for instance assert_plan(x @ y, messages=1)"
        )
    plan = arrays[0].session.plan(*arrays)
    counts = {name: getattr(plan, name) for name in checked if name != "programs"}
    counts["programs"] = len(plan.programs)
    wrong = [
        f"{n} is {counts[n]}, not {count}" for n, count in checked.items() if counts[n] != count
    ]
    if wrong:
        raise AssertionError(f"{'; '.join(wrong)} in this plan:\n{plan}")
