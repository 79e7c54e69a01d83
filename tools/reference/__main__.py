"""`python -m tools.reference write` writes the generated pages of docs/, and what the chart knows of settings; `check` fails where
one is out of date."""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tools.reference.adapter_fields import adapter_fields_page
from tools.reference.alerts import PAGE, RULES, alerts_page, rules
from tools.reference.assumptions import assumptions_page
from tools.reference.chart import chart_settings
from tools.reference.commands import commands_page
from tools.reference.decisions import decisions_page
from tools.reference.log_events import log_events_page
from tools.reference.mapped_kinds import mapped_kinds_page
from tools.reference.mapping_format import mapping_format_page
from tools.reference.metrics import metrics_page
from tools.reference.roles import roles_page
from tools.reference.settings import settings_page
from tools.reference.transitions import protocol_page

FOLDER: Final = Path(__file__).parents[2]


@cache
def pages() -> Mapping[str, str]:
    """Path below the repository → text."""
    return {
        "docs/reference/settings.md": settings_page(),
        "docs/reference/adapter-fields.md": adapter_fields_page(),
        "docs/reference/mapped-kinds.md": mapped_kinds_page(),
        "docs/reference/mapping-format.md": mapping_format_page(),
        "docs/reference/commands.md": commands_page(),
        "docs/reference/metrics.md": metrics_page(),
        "docs/reference/log-events.md": log_events_page(),
        "docs/reference/database-roles.md": roles_page(),
        "docs/operations/assumptions.md": assumptions_page(),
        PAGE: alerts_page(),
        RULES: rules(),
        "docs/decisions/index.md": decisions_page(),
        "docs/explanation/protocol.md": protocol_page(),
        "deploy/helm/reservation-forwarder/files/settings.txt": chart_settings(),
    }


def outdated(folder: Path = FOLDER) -> list[str]:
    """The pages in `folder` that are missing, or not what the code says."""
    return [
        name
        for name, text in pages().items()
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text
    ]


def main(arguments: Sequence[str]) -> int:
    """Run one of the two; the exit code."""
    match arguments:
        case ["write"]:
            for name, text in pages().items():
                (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
                (FOLDER / name).write_text(text, encoding="utf-8")
            return 0
        case ["check"]:
            found = outdated()
            if found:
                names = ", ".join(found)
                print(f"{names} out of date. Run `python -m tools.reference write`.", file=sys.stderr)
            return 1 if found else 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
