"""deploy/monitoring/prometheus-rules.yml and docs/operations/alerts.md, from the list of conditions that `forwarder status` shows.

The page's prose is written by hand: of each section, and of its head, only the first paragraph is made here. A section that has no
prose yet, or whose condition is gone, fails `check`.
"""

import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from forwarder.operate.deployment.conditions import Condition, conditions
from tools.reference.source import table

PAGE: Final = "docs/operations/alerts.md"
RULES: Final = "deploy/monitoring/prometheus-rules.yml"
NO_PROSE: Final = "(not written yet)"
_FOLDER: Final = Path(__file__).parents[2]
_HEAD: Final = """# Made from forwarder/operate/deployment/conditions.toml by `python -m tools.reference write`; do not edit.
# docs/operations/alerts.md says what each alert means and what to do. The thresholds are starting points.
groups:
"""
_ALONE: Final = "## Shown by status alone"
_ABOUT: Final = """`forwarder status` and the console show these, and Prometheus has no alert for them.

"""
_OPTIONAL: Final = re.compile(r"(?<=[\w}])\{\w+\}")
_VALUE: Final = re.compile(r"\{(\w+)[^}]*\}")
_UNITS: Final = {"s": "second", "m": "minute", "h": "hour"}


def rules() -> str:
    """The file of rules."""
    return _HEAD + "".join(_rules())


def _rules() -> Iterator[str]:
    for group, members in groupby(conditions(), key=lambda each: each.group):
        yield f"  - name: forwarder-{group}\n    rules:\n" + "".join(_rule(each) for each in members if each.expr)


def _rule(condition: Condition) -> str:
    lines = condition.expr.strip().splitlines()
    expression = lines[0] if len(lines) == 1 else "\n".join(["|", *(f"          {line}" for line in lines)])
    after = f"        for: {condition.after}\n" if condition.after else ""
    return (
        f"      - alert: Forwarder{condition.name}\n        expr: {expression}\n{after}"
        f"        labels: {{severity: {condition.severity}}}\n        annotations:\n"
        f"          summary: {json.dumps(condition.summary)}\n          runbook: {condition.runbook}\n"
    )


def alerts_page() -> str:
    """The page: the prose that it has, under the heads of the conditions as they are now."""
    head, *sections = re.split(
        r"^## (?=Forwarder|Shown by)", (_FOLDER / PAGE).read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    prose = dict(map(_section, sections))
    pages = [_written(each, prose.get(f"Forwarder{each.name}", NO_PROSE)) for each in conditions() if each.expr]
    rows = [
        [each.name, each.severity.value, f"`{_shown(each.says)}`", f"`{_shown(each.do)}`", each.alert_lacks]
        for each in conditions()
        if not each.expr
    ]
    alone = table(["condition", "severity", "status", "what to do", "why there is no alert"], rows)
    return head + "".join(pages) + f"{_ALONE}\n\n{_ABOUT}{alone}"


def _section(text: str) -> tuple[str, str]:
    """A section's title, and its prose without the first paragraph."""
    title, _, rest = text.partition("\n")
    return title, rest.strip().partition("\n\n")[2].strip()


def _written(condition: Condition, prose: str) -> str:
    amount, unit = condition.after[:-1], _UNITS.get(condition.after[-1:], "")
    waits = f", after {amount} {unit}{'' if amount == '1' else 's'}" if condition.after else ", at once"
    shown = (
        f"Not in the status: {condition.status_lacks}."
        if condition.status_lacks
        else f"Status: `{_shown(condition.says)}`."
    )
    head = f"*{condition.severity.value.capitalize()}{waits}.* {shown}"
    return f"## Forwarder{condition.name}\n\n{head}\n\n{prose}\n\n"


def _shown(text: str) -> str:
    """A text of a condition with its values in capitals, without those that are not always there."""
    return _VALUE.sub(lambda found: found[1].upper(), _OPTIONAL.sub("", text))
