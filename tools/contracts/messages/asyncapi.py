"""The topics as AsyncAPI 3.0: what downstream services build against. Pure; published as schemas/asyncapi.yaml."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic_core import from_json

from forwarder.topics.port import Topics
from tools.contracts.messages.event_schemas import value_schema
from tools.contracts.messages.headers import dead_letter_headers, request_headers, result_headers, shown_headers
from tools.contracts.messages.messages import Described, other_messages, request_messages, result_messages
from tools.contracts.openapi.document import VERSION

_SCHEMAS: Final = "#/components/schemas/"
_ABOUT: Final = """\
Messages are CloudEvents 1.0 in Kafka's binary mode: attributes in headers, JSON values. The key,
`<integrationAccountId>:<propertyId>`, keeps what concerns one property of one account in order.

An event is published at least once, with the same `ce_id` each time, and the events of a submission in their order: their
ids are `<requestId>.<revision>`, so that a consumer can pass over what it has seen. What a test key submitted was made in a
simulated PMS: its results have the header `ce_test` and `"test": true`, and their `integrationAccountId` begins with
`test~`; whoever acts on what is live passes over them. Fields and types are only ever added:
pass over those that you do not know."""
_KEY: Final = {
    "type": "string",
    "description": "`<integrationAccountId>:<propertyId>`",
    "examples": ["seaside-generic:1001"],
}
_RESULTS: Final = "How submissions ended. Public: consume it with a group of your own."
_REQUESTS: Final = "What was accepted, on its way from the ingress to the workers. The service's own."
_DEAD_LETTERS: Final = (
    "Messages of the requests topic that were given up, as they came, with headers that say where they stood and why. "
    "`forwarder dead-letters` reads them and puts them back."
)


def asyncapi() -> dict[str, Any]:
    """The document."""
    requests, results = request_messages(), (*result_messages(), *other_messages())
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Reservation forwarder",
            "version": VERSION,
            "description": _ABOUT,
            "license": {"name": "MIT"},
            "tags": [{"name": "reservations"}],
        },
        "defaultContentType": "application/json",
        "servers": {
            "kafka": {
                "host": "{bootstrapServers}",
                "protocol": "kafka",
                "description": "The Kafka of the deployment. The embedded default keeps the same messages in a file.",
                "variables": {"bootstrapServers": {"default": "localhost:9092"}},
            }
        },
        "channels": _channels(requests, results),
        "operations": {
            "announceResult": _operation("send", "results", "A submission changed its status."),
            "acceptRequest": _operation("send", "requests", "The ingress accepted something."),
            "takeRequest": _operation("receive", "requests", "A worker takes it in."),
            "giveUpRequest": _operation("send", "deadLetters", "A worker gave it up."),
        },
        "components": {
            "messages": {
                **{one.kind: _message(one, request_headers(one.kind)) for one in requests},
                **{one.kind: _message(one, result_headers(one.kind)) for one in results},
                "deadLetter": _dead_letter(requests[0]),
            },
            "schemas": _schemas((*requests, *results)),
        },
    }


def _channels(requests: Sequence[Described], results: Sequence[Described]) -> dict[str, Any]:
    topics = Topics("{prefix}")
    return {
        "results": _channel(topics.results, _RESULTS, [one.kind for one in results]),
        "requests": _channel(topics.requests, _REQUESTS, [one.kind for one in requests]),
        "deadLetters": _channel(topics.dead_letters, _DEAD_LETTERS, ["deadLetter"]),
    }


def _channel(address: str, about: str, messages: Sequence[str]) -> dict[str, Any]:
    return {
        "address": address,
        "description": about,
        "parameters": {"prefix": {"description": "`FORWARDER_TOPIC_PREFIX` of the deployment.", "default": ""}},
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
    }


def _operation(action: str, channel: str, summary: str) -> dict[str, Any]:
    return {"action": action, "summary": summary, "channel": {"$ref": f"#/channels/{channel}"}}


def _message(one: Described, headers: dict[str, Any]) -> dict[str, Any]:
    return {
        **_common(one.kind, one.about),
        "headers": headers,
        "payload": {"$ref": f"{_SCHEMAS}{one.kind}"},
        "examples": [{"headers": shown_headers(one.example), "payload": from_json(one.example.value)}],
    }


def _dead_letter(submitted: Described) -> dict[str, Any]:
    about = (
        "A submission without its card, of which it only says that there was one; or whatever could not be read as one."
    )
    return {
        **_common("deadLetter", about),
        "headers": dead_letter_headers(),
        "payload": {"anyOf": [{"$ref": f"{_SCHEMAS}{submitted.kind}"}, {}]},
    }


def _common(name: str, about: str) -> dict[str, Any]:
    return {
        "name": name,
        "title": name,
        "summary": about,
        "contentType": "application/json",
        "correlationId": {"description": "The submission.", "location": "$message.header#/ce_subject"},
        "bindings": {"kafka": {"key": _KEY, "bindingVersion": "0.5.0"}},
    }


def _schemas(described: Sequence[Described]) -> Mapping[str, Any]:
    """That of each value, and their parts, which they share."""
    parts: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for one in described:
        schema = value_schema(one, _SCHEMAS)
        parts |= schema.pop("$defs")
        values[one.kind] = schema
    return values | dict(sorted(parts.items()))
