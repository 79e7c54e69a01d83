"""Logging: structlog, one event per line on standard error, JSON or for the eye. Guest and card data are never logged.

Events are named `noun.verbed`. Each message's way through a stage ends in one wide event with everything that was learnt.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

import structlog
from pydantic_core import to_json

from forwarder.observability.log_lines import LineLogger

LogFormat = Literal["auto", "json", "pretty"]


def configure_logging(level: str, style: LogFormat) -> None:
    """Set up structlog and the libraries' loggers. `auto`: pretty on a terminal, JSON elsewhere."""
    pretty = style == "pretty" or (style == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if pretty
        else structlog.processors.JSONRenderer(serializer=_json)
    )
    lines = LineLogger(sys.stderr)
    structlog.configure(
        processors=[*shared, renderer] if pretty else [json_line],
        wrapper_class=_logger(level),
        logger_factory=lambda *_names: lines,
        cache_logger_on_first_use=True,
    )
    _route_libraries(level, shared, renderer)


def _logger(level: str) -> type[structlog.typing.FilteringBoundLogger]:
    """structlog's, with a short way for `info`: stages write a line for each reservation, and where `json_line` makes it of what
    is said alone, the rest of structlog's way costs more than the line."""
    filtering = structlog.make_filtering_bound_logger(level)
    if logging.getLevelNamesMapping()[level.upper()] > logging.INFO:
        return filtering

    def info(self: Any, event: str, *arguments: object, **said: object) -> None:
        if arguments or self._context or self._processors[0] is not json_line:
            filtering.info(self, event, *arguments, **said)
            return
        said["event"] = event
        self._logger.info(json_line(self._logger, "info", said))

    return type(filtering.__name__, (filtering,), {"info": info})


def json_line(logger: object, level: str, event: structlog.typing.EventDict) -> str:
    """The event as a line: what was bound to the context and what it says itself, its level, the time, and its traceback.

    In one step: stages write a line for each reservation, and a chain of processors costs as much again.
    """
    context = structlog.contextvars.get_contextvars()
    if context:
        event = {**context, **event}
    event["level"] = level
    event["time"] = datetime.now(UTC)
    if "exc_info" in event:
        event = structlog.processors.format_exc_info(logger, level, event)
    return to_json(event, fallback=str).decode()


def _json(event: object, **_options: object) -> str:
    return to_json(event, fallback=str).decode()


def _route_libraries(
    level: str, shared: list[structlog.typing.Processor], renderer: structlog.typing.Processor
) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(
        handlers=[handler], level=max(logging.getLevelNamesMapping()[level.upper()], logging.WARNING), force=True
    )
