"""Every transition of a submission's state: who may make it, by which statement, and what the statement checks first.

The statements are in `forwarder.store.submissions`; a test compiles each and looks for its checks. `protocol_page`
prints the table into the page on the protocol.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from forwarder.reservation import evidence
from tools.reference.source import FOLDER


class Check(StrEnum):
    """A condition that a statement checks before it changes a row. The page prints its value."""

    HOLDER = "it is the holder"
    NO_HOLDER = "no worker holds it"
    REVISION = "the revision is the one it knows"
    TRIES = "nobody has tried since it was claimed"
    STATUS = "the status is the one before"
    TURN = "in the turn of the ingest, one at a time"


@dataclass(frozen=True, slots=True)
class Transition:
    """From `before` to `after`, when, and who makes it. `statement`: its module and name."""

    before: str
    after: str
    when: str
    by: str
    statement: str
    checks: tuple[Check, ...]


_HELD: Final = (Check.HOLDER, Check.REVISION)
_IN_DOUBT: Final = (Check.STATUS, Check.REVISION)

TRANSITIONS: Final = (
    Transition(
        "",
        "PENDING",
        "a message was ingested, and does not repeat an earlier one",
        "worker",
        "intake.ingest",
        (Check.TURN,),
    ),
    Transition("PENDING", "CONFIRMED", "the PMS made it", "worker", "recorder.finish", _HELD),
    Transition("PENDING", "REJECTED", "a rule or the PMS refused it", "worker", "recorder.finish", _HELD),
    Transition(
        "PENDING",
        "FAILED",
        "it was not delivered before its deadline; dead-lettered",
        "worker",
        "recorder.finish",
        _HELD,
    ),
    Transition(
        "PENDING", "IN_DOUBT", "it may have been made, and the PMS cannot be asked", "worker", "recorder.finish", _HELD
    ),
    Transition(
        "IN_DOUBT", "CONFIRMED, FAILED", "a look-up found it, or found nothing", "worker", "recorder.finish", _HELD
    ),
    Transition(
        "PENDING, IN_DOUBT",
        "CANCELLED",
        "it was cancelled, and nothing was made",
        "worker",
        "recorder.finish",
        _HELD,
    ),
    Transition("CONFIRMED", "CANCELLED", "it was cancelled in the PMS", "worker", "recorder.finish", _HELD),
    Transition(
        "any", "the same", "a try was postponed: due again later", "worker", "leases.postpone", (*_HELD, Check.TRIES)
    ),
    Transition("any", "the same", "a row was given back unsent", "worker", "leases.release", (Check.HOLDER,)),
    Transition(
        "any", "the same", "the holder lost its lease: due again", "another worker", "leases.free_abandoned", ()
    ),
    Transition(
        "any but CANCELLED",
        "the same, to be cancelled",
        "a cancellation was ingested",
        "worker",
        "cancellations.note",
        (Check.TURN,),
    ),
    Transition("IN_DOUBT", "CONFIRMED, REJECTED", "an operator settled it", "operator", "repairs.settle", _IN_DOUBT),
    Transition(
        "IN_DOUBT",
        "PENDING",
        "an operator says that it was not made",
        "operator",
        "repairs.reopen",
        (*_IN_DOUBT, Check.NO_HOLDER),
    ),
    Transition(
        "FAILED",
        "PENDING",
        "its dead letter was replayed, and no other submission replaces it",
        "worker",
        "intake.revive",
        (*_IN_DOUBT, Check.TURN),
    ),
    Transition("any", "the same", "an operator wants it tried now", "operator", "repairs.make_due", (Check.NO_HOLDER,)),
)
"""In the order of a submission's life."""

_PAGE: Final = FOLDER / "docs/explanation/protocol.md"
_BEGIN: Final = "<!-- transitions: begin. Generated from tools/reference/transition_table.py. -->"
_END: Final = "<!-- transitions: end -->"
_EVIDENCE: Final = (
    "<!-- evidence: begin. Generated from forwarder/reservation/evidence.py. -->",
    "<!-- evidence: end -->",
)


def protocol_page() -> str:
    """The page with its tables as the code has them; the rest as it is."""
    rows = [
        f"| {each.before or '—'} | {each.after} | {each.when} | {each.by} | {'; '.join(each.checks) or '—'} | `{each.statement}` |"
        for each in TRANSITIONS
    ]
    head = ("| from | to | when | made by | changes nothing unless | statement |", "|---|---|---|---|---|---|")
    table = [line for line in (evidence.__doc__ or "").splitlines() if line.startswith("|")]
    text = _PAGE.read_text(encoding="utf-8")
    return _with(_with(text, (_BEGIN, _END), [*head, *rows]), _EVIDENCE, table)


def _with(text: str, marks: tuple[str, str], lines: Sequence[str]) -> str:
    """`text` with these lines between the marks."""
    before, _, rest = text.partition(marks[0])
    _, _, after = rest.partition(marks[1])
    return before + "\n".join((marks[0], *lines, marks[1])) + after
