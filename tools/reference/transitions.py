"""The states of a submission in docs/explanation/guarantees.md, from the table in the store."""

from pathlib import Path
from typing import Final

from forwarder.store.submissions.transitions import TRANSITIONS

_PAGE: Final = Path(__file__).parents[2] / "docs/explanation/guarantees.md"
_BEGIN: Final = "<!-- transitions: begin. Generated from forwarder/store/submissions/transitions.py. -->"
_END: Final = "<!-- transitions: end -->"


def guarantees_page() -> str:
    """The page with its table as the code has it; the rest as it is."""
    before, _, rest = _PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    rows = [
        f"| {each.before or '—'} | {each.after} | {each.when} | {each.by} | {'; '.join(each.checks) or '—'} | `{each.statement}` |"
        for each in TRANSITIONS
    ]
    head = ("| from | to | when | made by | changes nothing unless | statement |", "|---|---|---|---|---|---|")
    return before + "\n".join((_BEGIN, *head, *rows, _END)) + after
