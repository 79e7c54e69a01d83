"""The published contracts as files: where each lies below its folder, and its text. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic_core import from_json, to_json

from forwarder.pms.kinds.generic.open_contract import open_pms_contract
from forwarder.published.asyncapi import asyncapi
from forwarder.published.event_schemas import event_schemas
from forwarder.published.message_headers import shown_headers
from forwarder.published.messages import request_messages, result_messages
from forwarder.published.openapi import openapi
from forwarder.published.problem_pages import problems_markdown
from forwarder.published.yaml import to_yaml
from forwarder.reservation.problems.chapters import CATALOGUE

_YAML_HEAD: Final = "# Written by `forwarder schemas write`.\n"
_REQUESTS: Final = {
    "submitBookingEngineReservation": "booking-engine",
    "submitReservation": "general",
    "submitReservations": "bulk",
    "cancelReservation": "cancellation",
}
"""The names that requests go by, where that is not the operation's."""


def contract_files() -> Mapping[str, str]:
    """What lies in schemas/."""
    document = openapi()
    return {
        "openapi.json": _json(document),
        "asyncapi.yaml": _YAML_HEAD + to_yaml(asyncapi()),
        "pms-openapi.json": _json(open_pms_contract()),
        **{f"events/{kind}.schema.json": _json(schema) for kind, schema in event_schemas().items()},
        **{f"examples/{name}.json": _json(example) for name, example in _examples(document).items()},
    }


def page_files() -> Mapping[str, str]:
    """What of docs/ is written by the code."""
    return {"reference/problems.md": problems_markdown()}


def _examples(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of every request, answer, problem, delivery and message, one at least."""
    shown = {name: example["value"] for name, example in document["components"]["examples"].items()}
    messages = {
        one.kind: {
            "key": one.example.key.decode(),
            "headers": shown_headers(one.example),
            "value": from_json(one.example.value),
        }
        for one in (*request_messages(), *result_messages())
    }
    return {
        **{f"requests/{_REQUESTS.get(name, name)}": body for name, body in _bodies(document["paths"])},
        **{f"answers/{name}": body for name, body in shown.items() if name not in CATALOGUE},
        **{f"problems/{code}": body for code, body in shown.items() if code in CATALOGUE},
        **{f"webhooks/{name}": body for name, body in _bodies(document.get("webhooks", {}))},
        **{f"messages/{kind}": message for kind, message in messages.items()},
    }


def _bodies(paths: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The name of each operation that takes a body, and an example of that."""
    for operations in paths.values():
        for operation in operations.values():
            for medium in operation.get("requestBody", {"content": {}})["content"].values():
                for example in medium["examples"].values():
                    yield operation["operationId"], example["value"]


def _json(value: Any) -> str:
    return to_json(value, indent=2).decode() + "\n"
