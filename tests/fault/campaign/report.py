"""What a campaign survived, as a table: printed after every run, and kept as a page after a long one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fault.campaign.form import Form
from tests.fault.campaign.judge import Evidence

_COLUMNS = (
    "case",
    "faults injected",
    "submitted",
    "accepted",
    "refused",
    "made",
    "made twice",
    "lost",
    "events",
    "again",
    "seconds to quiet",
    "held",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One case, in numbers. `again`: events that were published more than once, under the same id."""

    case: str
    faults: Counter[str]
    submitted: int
    accepted: int
    made: int
    made_twice: int
    lost: int
    events: int
    again: int
    seconds_to_quiet: float
    held: bool

    @classmethod
    def of(cls, case: str, faults: Counter[str], evidence: Evidence, seconds: float, *, held: bool) -> "Row":
        """The row of a case that ended with this evidence."""
        all_events = [event for events in evidence.events.values() for event in events]
        return cls(
            case=case,
            faults=faults,
            submitted=len(evidence.submissions),
            accepted=sum(submission.accepted for submission in evidence.submissions),
            made=sum(evidence.made.values()),
            made_twice=len(evidence.made_twice),
            lost=len(evidence.lost),
            events=len({event.id for event in all_events}),
            again=len(all_events) - len({event.id for event in all_events}),
            seconds_to_quiet=seconds,
            held=held,
        )

    def cells(self) -> list[str]:
        """As it is shown, in the order of the columns."""
        numbers = (self.submitted, self.accepted, self.submitted - self.accepted, self.made, self.made_twice, self.lost)
        return [
            self.case,
            ", ".join(f"{count} {fault}" for fault, count in self.faults.items()),
            *(f"{number:,}" for number in (*numbers, self.events, self.again)),
            f"{self.seconds_to_quiet:.1f}",
            "yes" if self.held else "NO",
        ]


@dataclass(slots=True)
class Report:
    """Collects the rows of a run."""

    form: Form
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def text(self) -> list[str]:
        """The table in lines of even columns, and the notes."""
        table = [list(_COLUMNS), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
        return [*(line.rstrip() for line in lines), *self.notes]

    def markdown(self) -> list[str]:
        """The table as a page has it."""
        rule = ["---"] * 2 + ["---:"] * (len(_COLUMNS) - 3) + ["---"]
        return [f"| {' | '.join(row)} |" for row in (list(_COLUMNS), rule, *self._cells())]

    def write(self, page: Path, surroundings: Sequence[str]) -> None:
        """The page for readers: what was run, on what, and what came of it."""
        parts = [
            _HEAD.format(command=self.form.command(), surroundings="; ".join(surroundings)),
            *self.markdown(),
            "",
            *(f"- {note}" for note in self.notes),
            _FOOT,
            *_kept(page),
        ]
        page.write_text("\n".join(parts))

    def _cells(self) -> list[list[str]]:
        total = Counter(fault for row in self.rows for fault in row.faults.elements()).total()
        sums = [sum(numbers) for numbers in zip(*map(_numbers, self.rows), strict=True)]
        last = ["all", f"{total:,}", *(f"{number:,}" for number in sums), "", ""]
        return [*(row.cells() for row in self.rows), *([last] if self.rows else [])]


def _kept(page: Path) -> list[str]:
    """The sections below, which others write."""
    _, heading, text = page.read_text().partition("\n## ") if page.exists() else ("", "", "")
    return [heading.lstrip() + text] if heading else []


RANDOM_HISTORIES = "## Random histories"


def _numbers(row: Row) -> tuple[int, ...]:
    refused = row.submitted - row.accepted
    return (row.submitted, row.accepted, refused, row.made, row.made_twice, row.lost, row.events, row.again)


_HEAD = """\
# Reliability

Made by a long run of the fault suite (`tests/fault`), not by hand: `{command}` runs it again with the same faults. Each case
submits reservations to the real processes, under concurrency and to several PMSs of different kinds, injects its faults while they
flow, waits until all is quiet, and has everything counted that can be seen from outside: the answers, both topics, the pages, and
the bookings that the simulated PMSs made.

It ran on: {surroundings}.
"""

_FOOT = """\
- **faults injected**: how many of which kind, at moments drawn from the seed.
- **refused**: never answered with a 2xx, but with a 503 or not at all. It may have reached the log all the same; it is then made
  once, as any other.
- **made**: bookings in the simulated PMSs, by their own count. **made twice**: references of which there are two or more.
- **lost**: accepted, or on the log, and not in the store.
- **events**: different events on the results topic; **again**: those that were published once more, under the same id.
- **seconds to quiet**: from the end of the load until every submission was final and announced.
- **held**: nothing that the judge (`tests/fault/campaign/judge.py`) looks for was found.
"""
