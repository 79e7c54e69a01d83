"""The tables of docs/explanation/protocol.md that the code has: the states of a submission, and what follows from evidence."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from forwarder.reservation import evidence
from tools.reference.transition_table import TRANSITIONS

_PAGE: Final = Path(__file__).parents[2] / "docs/explanation/protocol.md"
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
