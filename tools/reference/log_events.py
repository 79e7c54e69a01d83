"""docs/reference/log-events.md: every event that the package logs, with what an operator should make of it."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.reference.source import HEAD, modules, table

_LEVELS: Final = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}
_ABOUT: Final = """# Log events

Every process writes one event a line to standard error, as JSON unless it runs on a terminal (`FORWARDER_LOG_FORMAT`). Each
event has `event`, `level` and `time`, and the fields below; what an HTTP request leads to has its `Request-Id` as
`http_request_id`. Guest and card data are never logged. `{name}` is the name of the loop or
batch that logs it, such as `intake`. Events without a dot in their name come from the log's drivers.

"""

MEANINGS: Final[Mapping[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
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
    return HEAD + _ABOUT + table(["event", "level", "meaning", "logged in", "fields"], rows)


def _events() -> Mapping[str, _Event]:
    found: dict[str, _Event] = defaultdict(_Event)
    for path, tree in modules():
        for name, level, call in _logged(tree):
            event = found[name]
            event.levels.add(level)
            event.rooms.add(path.parts[0].removesuffix(".py"))
            event.fields.update(dict.fromkeys(_fields(call)))
    return found


def _logged(tree: ast.Module) -> Iterator[tuple[str, str, ast.Call]]:
    """Event, level and call, of every call such as `_log.info("noun.verbed", …)`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=logger, attr=level), args=[said, *_]) if level in _LEVELS:
                if ast.unparse(logger).endswith("log") and isinstance(said, ast.Constant | ast.JoinedStr):
                    yield ast.unparse(said).removeprefix("f").strip("'\""), _LEVELS[level], node


def _fields(call: ast.Call) -> Iterator[str]:
    for keyword in call.keywords:
        if keyword.arg == "extra" and isinstance(keyword.value, ast.Dict):
            yield from (str(ast.literal_eval(key)) for key in keyword.value.keys if key is not None)
        elif keyword.arg is not None:
            yield "exception" if keyword.arg == "exc_info" else keyword.arg
