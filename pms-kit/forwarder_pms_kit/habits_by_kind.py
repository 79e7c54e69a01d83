"""`python -m forwarder_pms_kit.habits_by_kind [KIND ...]`: every simulated kind of PMS with every habit, as a table.

Each cell: the bookings made of one submission, how it ended, and after how many virtual seconds. The last lines count them. Exits 1
if more than one booking was made, or an end was wrong.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence

from forwarder.operate.output import say
from forwarder.pms.registry import registered
from forwarder.reservation.outcome import Status
from forwarder_pms_kit.conformance.course import course_of, may_need_a_person
from forwarder_pms_kit.conformance.habits import HABITS
from forwarder_pms_kit.conformance.trial import NotApplicable, trial
from forwarder_pms_kit.runs import simulated_site
from forwarder_pms_kit.simulators import SITES


async def table(kinds: Sequence[str]) -> tuple[Sequence[str], int]:
    """The lines, and how many courses went wrong."""
    lines = [f"{'kind':16} {'habit':34} {'made':>4}  {'end':10} {'after, s':>8}"]
    counts: dict[str, Counter[str]] = {}
    for kind in kinds:
        counted = counts[kind] = Counter()
        async with simulated_site(kind, calendars=False) as site, trial(kind, registered().kinds[kind], site) as tried:
            for name, habit in HABITS.items():
                try:
                    course = await course_of(habit, tried)
                except NotApplicable as reason:
                    counted["not applicable"] += 1
                    lines.append(f"{kind:16} {name:34}    -  {reason}")
                    continue
                wrong = course.wrong(person=may_need_a_person(habit, tried.can))
                ends = {"twice": course.made > 1, "wrong": wrong, "person": course.status is not Status.CONFIRMED}
                counted.update(["habits", *(name for name, is_so in ends.items() if is_so)])
                cell = f"{course.made:>4}  {course.status:10} {course.seconds:>8.0f}"
                lines.append(f"{kind:16} {name:34} {cell}{'' if wrong is None else f'  WRONG: {wrong}'}")
    lines += ["", f"{'kind':16} {'habits':>6} {'made more than once':>20} {'wrong ends':>11} {'for a person':>13}"]
    lines += [
        f"{kind:16} {one['habits']:>6} {one['twice']:>20} {one['wrong']:>11} {one['person']:>13}"
        for kind, one in counts.items()
    ]
    return lines, sum(one["wrong"] for one in counts.values())


if __name__ == "__main__":
    shown, wrongs = asyncio.run(table(sys.argv[1:] or list(SITES)))
    say("\n".join(shown))
    sys.exit(1 if wrongs else 0)
