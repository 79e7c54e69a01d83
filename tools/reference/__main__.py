"""`python -m tools.reference write` writes the generated pages of docs/, and what the chart knows of settings; `check` fails where
one is out of date."""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tools.reference.adapters import adapter_fields_page, mapped_kinds_page, mapping_format_page
from tools.reference.deployment import assumptions_page, chart_settings, commands_page, roles_page, settings_page
from tools.reference.signals import PAGE, RULES, alerts_page, log_events_page, metrics_page, rules
from tools.reference.source import FOLDER, HEAD
from tools.reference.transition_table import protocol_page

_DECISIONS: Final = """# Decisions

Why it is built as it is. Each page has the context, the decision and its consequence. A new decision takes the next number; one
that no longer holds is kept and says what replaced it.

"""


@cache
def pages() -> Mapping[str, str]:
    """Path below the repository → text."""
    decisions = [
        f"- [{path.read_text(encoding='utf-8').splitlines()[0].removeprefix('# ')}]({path.name})\n"
        for path in sorted((FOLDER / "docs/decisions").glob("0*.md"))
    ]
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
        "docs/decisions/index.md": HEAD + _DECISIONS + "".join(decisions),
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
