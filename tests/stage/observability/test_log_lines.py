"""Log lines: JSON with all that a line is to have."""

import asyncio
import io
import json
import logging
from contextvars import copy_context
from datetime import datetime, timedelta
from typing import Any

import pytest
import structlog

from forwarder.observability.logging import (
    LineLogger,
    LogFormat,
    RepeatFilter,
    bind_log_context,
    completed,
    configure_logging,
    json_line,
    log_context,
    tells_usual,
)
from tests.support.cards import MASKED, NUMBER


def _written(level: str, said: dict[str, Any]) -> str:
    (event,), _ = completed(None, level, {**said})
    return json_line(event)


def _line(**said: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(_written("info", said))
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
    with log_context(stage="query", worker="w-1"):
        line = _line(event="thing.done", stage="ingress")
    assert (line["stage"], line["worker"]) == ("ingress", "w-1")


def test_a_request_that_another_s_task_begins_has_none_of_its_names() -> None:
    """As the next one on a connection is begun when the response to the one before it is sent."""

    def begun_by_another() -> dict[str, Any]:
        bind_log_context(http_request_id="req_1", trace_id="4bf9")
        bind_log_context(http_request_id="req_2")
        return _line(event="thing.done")

    line = copy_context().run(begun_by_another)
    assert (line["http_request_id"], line.get("trace_id")) == ("req_2", None)


def test_a_failure_is_told_with_its_traceback() -> None:
    line = _line(event="thing.failed", exc_info=LookupError("not there"))
    assert "LookupError: not there" in line["exception"]
    assert "exc_info" not in line


def test_a_card_in_the_words_of_an_error_is_masked() -> None:
    line = _line(event="thing.failed", exc_info=ValueError("invalid literal: '4111 1111 1111 1111'"))
    assert "ValueError: invalid literal: '411111******1111'" in line["exception"]
    said = json.loads(_written("warning", {"event": "thing.failed", "error": f"cvv 987 of {NUMBER}", "count": 4}))
    assert (said["error"], said["count"]) == (f"cvv *** of {MASKED}", 4)


@pytest.mark.parametrize("style", ["json", "pretty"])
def test_what_a_terminal_would_obey_is_escaped(capsys: pytest.CaptureFixture[str], style: LogFormat) -> None:
    configure_logging("info", style)
    said = "a\u202eb\x9b2J\x7f\x1b]0;x\x07\u2028"
    structlog.get_logger().info("thing.done", path=said)
    logging.getLogger("library").warning("failed with %s", said)
    written = capsys.readouterr().err
    assert not set(said) & set(written) - set("ab2J]0;x\x1b")  # pretty lines have colours of their own
    if style == "json":
        assert json.loads(written.splitlines()[0])["path"] == said


def test_what_a_library_says_again_and_again_is_one_line_every_ten_seconds_with_a_count() -> None:
    now, told = 0.0, io.StringIO()
    logger, handler = logging.getLogger("a.library"), logging.StreamHandler(told)
    handler.addFilter(RepeatFilter(lambda: now))
    logger.addHandler(handler)
    try:
        for second in range(25):
            now = float(second)
            for node in range(100):
                logger.error("no answer from node %s", node)
            if second == 12:
                logger.error("something else")
    finally:
        logger.removeHandler(handler)
    assert told.getvalue().splitlines() == [
        "no answer from node 0",
        "no answer from node 0 (and 999 more like it since the last line)",
        "something else",
        "no answer from node 0 (and 999 more like it since the last line)",
    ]


def test_libraries_are_held_to_that(capsys: pytest.CaptureFixture[str]) -> None:
    """60 s without a broker were 222,000 lines."""
    configure_logging("info", "json")
    for node in range(1000):
        logging.getLogger("aiokafka").error("Unable connect to node with id %s", node)
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("style", ["json", "pretty"])
def test_so_it_is_in_the_lines_of_libraries(capsys: pytest.CaptureFixture[str], style: LogFormat) -> None:
    configure_logging("info", style)
    logging.getLogger("library").warning("failed with %s", NUMBER)
    structlog.get_logger().error("thing.failed", error=NUMBER)
    written = capsys.readouterr().err
    assert NUMBER not in written
    assert written.count(MASKED) == 2


def _told(capsys: pytest.CaptureFixture[str], level: str = "info", **bound: str) -> list[dict[str, Any]]:
    """The lines of one event on `info`, without and with an argument, as configured for a process."""
    configure_logging(level, "json")
    log = structlog.get_logger().bind(**bound)
    log.info("thing.done", count=3, when=None)
    log.info("thing.%s", "again", count=4)
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_configured_logger_writes_such_lines(capsys: pytest.CaptureFixture[str]) -> None:

    first, again = _told(capsys)
    assert list(first) == ["count", "when", "event", "level", "time"]
    assert list(again) == ["count", "event", "level", "time"]
    assert (first["event"], first["count"], first["when"], first["level"]) == ("thing.done", 3, None, "info")
    assert (again["event"], again["count"], again["level"]) == ("thing.again", 4, "info")
    bound, _ = _told(capsys, stage="query")
    assert bound.pop("stage") == "query"
    assert list(bound) == list(first)
    assert {**bound, "time": 0} == {**first, "time": 0}


def test_what_is_below_the_level_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert _told(capsys, "warning") == []


def test_who_listens_to_events_hears_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    log = structlog.get_logger().bind()
    with structlog.testing.capture_logs() as events:
        log.info("thing.done", count=3)
    assert events == [{"event": "thing.done", "count": 3, "log_level": "info"}]
    assert capsys.readouterr().err == ""


class _File(io.StringIO):
    """Notes each write of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return super().write(text)


async def test_the_lines_of_one_turn_leave_in_one_piece_when_it_ends() -> None:
    file = _File()
    lines = LineLogger(file)
    lines.info("one")
    lines.debug("two")
    assert file.writes == []
    await asyncio.sleep(0)
    assert file.writes == ["one\ntwo\n"]
    lines.info("three")
    await asyncio.sleep(0)
    assert file.writes == ["one\ntwo\n", "three\n"]


async def test_a_warning_leaves_at_once_after_what_came_before_it() -> None:
    file = _File()
    lines = LineLogger(file)
    lines.info("one")
    lines.error("wrong")
    assert file.writes == ["one\nwrong\n"]
    await asyncio.sleep(0)
    assert file.writes == ["one\nwrong\n"]


async def test_a_thread_writes_at_once() -> None:
    file = _File()
    await asyncio.to_thread(LineLogger(file).info, "from afar")
    assert file.writes == ["from afar\n"]


def test_what_a_loop_left_behind_leaves_with_the_next_line() -> None:
    file = _File()
    lines = LineLogger(file)

    def last(loop: asyncio.AbstractEventLoop) -> None:
        loop.stop()
        lines.info("last")

    for _ in range(2):  # each is another loop
        loop = asyncio.new_event_loop()
        loop.call_soon(last, loop)
        loop.run_forever()
        loop.close()
    assert file.writes == []
    lines.info("after the loops")
    assert file.writes == ["last\nlast\nafter the loops\n"]


def test_of_what_goes_as_usual_a_share_is_told_and_of_each_submission_all_or_nothing() -> None:
    names = [f"rsv_{number:032}" for number in range(10_000)]
    shares = {}
    for share in (1.0, 0.1, 0.01, 0.0):
        configure_logging("info", "json", share)
        shares[share] = {name for name in names if tells_usual(name)}
    configure_logging("info", "json")
    assert [len(shares[share]) for share in (1.0, 0.0)] == [10_000, 0]
    assert 850 < len(shares[0.1]) < 1150
    assert 70 < len(shares[0.01]) < 130
    assert shares[0.01] < shares[0.1]
