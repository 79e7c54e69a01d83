"""The headers of the topics' messages: CloudEvents' attributes, and what a dead letter adds. Pure."""

from typing import Any, Final

from forwarder.operations.repair.dead_letter_messages import FAILURE_CLASSES
from forwarder.store.submissions.port import FAILURE_CLASS
from forwarder.topics.codec import TEST_MODE
from forwarder.topics.port import Message
from forwarder.topics.signing import EVENT_ID, REPLAY_OF, SIGNATURE

_TEST: Final = TEST_MODE[0]
_TEXT: Final = {"type": "string"}
_SIGNATURE: Final = {"type": "string", "pattern": "^v1,[0-9a-f]{32}$"}
_COUNT: Final = {"type": "string", "pattern": "^[0-9]+$"}


def request_headers(kind: str) -> dict[str, Any]:
    """Of a message of the requests topic of that type."""
    own = {
        "ce_type": {"const": kind},
        REPLAY_OF: {**_TEXT, "description": "The event of the failure that this replays."},
        SIGNATURE: {**_SIGNATURE, "description": "Of this deployment's own processes. Workers do nothing without it."},
    }
    return _object(_CLOUD_EVENT | own, optional=("traceparent", "tracestate", REPLAY_OF))


def result_headers(kind: str) -> dict[str, Any]:
    """Of an event of that type."""
    own = {
        "ce_type": {"const": kind},
        _TEST: {"const": TEST_MODE[1].decode(), "description": "Of a result in test mode; left out in all others."},
    }
    return _object(_CLOUD_EVENT | own, optional=("traceparent", "tracestate", _TEST))


def dead_letter_headers() -> dict[str, Any]:
    """Of a dead letter: those that the message came with, and why it was set aside."""
    return _object(_CLOUD_EVENT | _DEAD_LETTER, optional=(*_CLOUD_EVENT, EVENT_ID, SIGNATURE))


def shown_headers(message: Message) -> dict[str, str]:
    """The headers of `message` as text."""
    return {name: value.decode() for name, value in message.headers}


def _object(properties: dict[str, Any], *, optional: tuple[str, ...]) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties}


_CLOUD_EVENT: Final[dict[str, Any]] = {
    "ce_specversion": {"const": "1.0"},
    "ce_id": {**_TEXT, "description": "The same each time that the event is published."},
    "ce_source": {"const": "/forwarder"},
    "ce_type": _TEXT,
    "ce_time": {**_TEXT, "format": "date-time"},
    "ce_subject": {**_TEXT, "description": "The `requestId`."},
    "content-type": {"const": "application/json"},
    "traceparent": {**_TEXT, "description": "W3C Trace Context of who submitted, or cancelled, where there was one."},
    "tracestate": {**_TEXT, "description": "The rest of it, where there was any."},
}
_DEAD_LETTER: Final[dict[str, Any]] = {
    "dlt-original-topic": _TEXT,
    "dlt-original-partition": _COUNT,
    "dlt-original-offset": _COUNT,
    "dlt-original-timestamp": {**_COUNT, "description": "Milliseconds since 1970, UTC."},
    "dlt-original-consumer-group": _TEXT,
    "dlt-exception-class": {**_TEXT, "description": "What went wrong last, for programs."},
    "dlt-exception-message": {**_TEXT, "description": "The same for people."},
    "dlt-attempts": _COUNT,
    FAILURE_CLASS: {**_TEXT, "enum": list(FAILURE_CLASSES)},
    EVENT_ID: {**_TEXT, "description": "The result event of the failure."},
    SIGNATURE: {
        **_SIGNATURE,
        "description": "Of the worker that gave it up. Only a letter that has it can be put back.",
    },
}
