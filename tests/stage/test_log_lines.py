"""Log lines: JSON with all that a line is to have."""

import json
from datetime import datetime, timedelta
from typing import Any

import structlog

from forwarder.runtime.logging import json_line


def _line(**said: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(json_line(None, "info", {**said}))
    return told


def test_a_line_has_what_was_said_its_level_and_the_time_in_utc() -> None:
    line = _line(event="thing.done", count=3, when=None)
    assert list(line) == ["event", "count", "when", "level", "time"]
    assert (line["event"], line["count"], line["when"], line["level"]) == ("thing.done", 3, None, "info")
    assert line["time"].endswith("Z")
    assert datetime.fromisoformat(line["time"]).utcoffset() == timedelta(0)


def test_what_json_has_no_form_for_is_written_as_text() -> None:
    class Odd:
        def __str__(self) -> str:
            return "quite odd"

    assert _line(event="thing.done", odd=Odd())["odd"] == "quite odd"


def test_what_was_bound_to_the_context_is_in_the_line_unless_it_says_otherwise() -> None:
    with structlog.contextvars.bound_contextvars(stage="query", worker="w-1"):
        line = _line(event="thing.done", stage="ingress")
    assert (line["stage"], line["worker"]) == ("ingress", "w-1")


def test_a_failure_is_told_with_its_traceback() -> None:
    line = _line(event="thing.failed", exc_info=LookupError("not there"))
    assert "LookupError: not there" in line["exception"]
    assert "exc_info" not in line
