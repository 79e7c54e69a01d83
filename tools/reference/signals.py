"""The pages on what a running deployment shows: metrics, log events, and alerts with the rules that raise them."""

import ast
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from forwarder.operate.deployment.conditions import DeploymentCondition, conditions
from tools.reference.source import FOLDER, HEAD, documented, modules, table

# --- docs/reference/metrics.md ----------------------------------------------------------------------------------------------

_TYPES: Final = {"Counter": "counter", "Gauge": "gauge", "SnapshotGauge": "gauge", "Histogram": "histogram"}
_METRICS_ABOUT: Final = """# Metrics

Every process serves its metrics at `/metrics`, in Prometheus' text format. Names that end in `_seconds` are in seconds. Labels take
their values from closed sets or are account ids, never request ids or guest data. With `--processes` one answer covers all
processes on the port. Python's and the process's own metrics (`process_…`, `python_…`) come from the Prometheus client.

"""


def metrics_page() -> str:
    return HEAD + _METRICS_ABOUT + table(["metric", "type", "labels", "meaning"], sorted(_metrics()))


def _metrics() -> Iterator[list[str]]:
    for _, tree in modules():
        for statement, text in documented(tree.body):
            call = getattr(statement, "value", None)
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _TYPES):
                continue
            literals = [ast.literal_eval(argument) for argument in call.args]
            if not (literals and str(literals[0]).startswith("forwarder_")):
                continue
            name, meaning, *labels = literals
            shown = ", ".join(f"`{label}`" for label in (labels[0] if labels else []))
            yield [f"`{name}`", _TYPES[call.func.id], shown, f"{meaning} {text}".strip()]


# --- docs/reference/log-events.md -------------------------------------------------------------------------------------------

_LEVELS: Final = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}
_EVENTS_ABOUT: Final = """# Log events

Every process writes one event a line to standard error, as JSON unless it runs on a terminal (`FORWARDER_LOG_FORMAT`). Each
event has `event`, `level` and `time`, and the fields below; what an HTTP request leads to has its `Request-Id` as
`http_request_id`. Guest and card data are never logged. `{name}` is the name of the loop or
batch that logs it, such as `intake`. Events without a dot in their name come from the log's drivers.

"""

MEANINGS: Final[Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_name("log_events.toml").read_text(encoding="utf-8")
)
"""Each event of the code and no other: what it means, and what to do where there is something to do."""


@dataclass
class _Event:
    levels: set[str] = field(default_factory=set)
    rooms: set[str] = field(default_factory=set)
    fields: dict[str, None] = field(default_factory=dict)


def log_events_page() -> str:
    """The page. Raises `ValueError` where `MEANINGS` and the code differ."""
    events = _events()
    unknown, gone = sorted(events.keys() - MEANINGS), sorted(MEANINGS.keys() - events.keys())
    if unknown or gone:
        raise ValueError(f"tools/reference/log_events.toml lacks {unknown}, and has {gone}, which nothing logs")
    for name, event in events.items():
        foreign = set(re.findall(r"`([a-z_]+)`", MEANINGS[name])) - set(event.fields)
        if foreign:
            raise ValueError(f"tools/reference/log_events.toml names {sorted(foreign)}, no fields of {name}")
    rows = [
        [
            f"`{name}`",
            ", ".join(sorted(events[name].levels)),
            MEANINGS[name],
            ", ".join(sorted(events[name].rooms)),
            ", ".join(f"`{each}`" for each in events[name].fields),
        ]
        for name in sorted(events)
    ]
    return HEAD + _EVENTS_ABOUT + table(["event", "level", "meaning", "logged in", "fields"], rows)


def _events() -> Mapping[str, _Event]:
    """What every call such as `_log.info("noun.verbed", …)` logs."""
    found: dict[str, _Event] = defaultdict(_Event)
    for path, tree in modules():
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=logger, attr=level), args=[ast.Constant() | ast.JoinedStr() as said, *_]
                ):
                    if level in _LEVELS and ast.unparse(logger).endswith("log"):
                        event = found[ast.unparse(said).removeprefix("f").strip("'\"")]
                        event.levels.add(_LEVELS[level])
                        event.rooms.add(path.parts[0].removesuffix(".py"))
                        event.fields.update(dict.fromkeys(_fields(node)))
    return found


def _fields(call: ast.Call) -> Iterator[str]:
    for keyword in call.keywords:
        if keyword.arg == "extra" and isinstance(keyword.value, ast.Dict):
            yield from (str(ast.literal_eval(key)) for key in keyword.value.keys if key is not None)
        elif keyword.arg is not None:
            yield "exception" if keyword.arg == "exc_info" else keyword.arg


# --- deploy/monitoring/prometheus-rules.yml and docs/operations/alerts.md ---------------------------------------------------

PAGE: Final = "docs/operations/alerts.md"
RULES: Final = "deploy/monitoring/prometheus-rules.yml"
NO_PROSE: Final = "(not written yet)"
_RULES_HEAD: Final = """# Made from forwarder/operate/deployment/conditions.toml by `python -m tools.reference write`; do not edit.
# docs/operations/alerts.md says what each alert means and what to do. The thresholds are starting points.
groups:
"""
_ALONE: Final = "## Shown by status alone"
_ALONE_ABOUT: Final = """`forwarder status` and the console show these, and Prometheus has no alert for them.

"""
_OPTIONAL: Final = re.compile(r"(?<=[\w}])\{\w+\}")
_VALUE: Final = re.compile(r"\{(\w+)[^}]*\}")
_UNITS: Final = {"s": "second", "m": "minute", "h": "hour"}


def rules() -> str:
    text = _RULES_HEAD
    for group, members in groupby(conditions(), key=lambda each: each.group):
        text += f"  - name: forwarder-{group}\n    rules:\n" + "".join(_rule(each) for each in members if each.expr)
    return text


def _rule(condition: DeploymentCondition) -> str:
    lines = condition.expr.strip().splitlines()
    expression = lines[0] if len(lines) == 1 else "\n".join(["|", *(f"          {line}" for line in lines)])
    after = f"        for: {condition.after}\n" if condition.after else ""
    return (
        f"      - alert: Forwarder{condition.name}\n        expr: {expression}\n{after}"
        f"        labels: {{severity: {condition.severity}}}\n        annotations:\n"
        f"          summary: {json.dumps(condition.summary)}\n          runbook: {condition.runbook}\n"
    )


def alerts_page() -> str:
    """Its prose is written by hand: of each section, and of its head, only the first paragraph is made here. A section that has no
    prose yet, or whose condition is gone, fails `check`."""
    head, *sections = re.split(
        r"^## (?=Forwarder|Shown by)", (FOLDER / PAGE).read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    prose = {}
    for section in sections:
        title, _, text = section.partition("\n")
        prose[title] = text.strip().partition("\n\n")[2].strip()
    pages = [_written(each, prose.get(f"Forwarder{each.name}", NO_PROSE)) for each in conditions() if each.expr]
    rows = [
        [each.name, each.severity.value, f"`{_shown(each.says)}`", f"`{_shown(each.do)}`", each.alert_lacks]
        for each in conditions()
        if not each.expr
    ]
    alone = table(["condition", "severity", "status", "what to do", "why there is no alert"], rows)
    return head + "".join(pages) + f"{_ALONE}\n\n{_ALONE_ABOUT}{alone}"


def _written(condition: DeploymentCondition, prose: str) -> str:
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
