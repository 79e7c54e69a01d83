"""The published contracts as files: where each lies below its folder, and its text. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import from_json, to_json

from forwarder.pms.open_contract import open_pms_contract
from forwarder.published import examples
from forwarder.published.asyncapi import asyncapi
from forwarder.published.event_schemas import event_schemas
from forwarder.published.message_headers import shown_headers
from forwarder.published.messages import request_messages, result_messages
from forwarder.published.openapi import openapi
from forwarder.published.problem_pages import problems_markdown
from forwarder.published.shown import answer_examples
from forwarder.published.yaml import to_yaml

_YAML_HEAD: Final = "# Written by `forwarder schemas write`.\n"


def contract_files() -> Mapping[str, str]:
    """What lies in schemas/."""
    return {
        "openapi.json": _json(openapi()),
        "asyncapi.yaml": _YAML_HEAD + to_yaml(asyncapi()),
        "pms-openapi.json": _json(open_pms_contract()),
        **{f"events/{kind}.schema.json": _json(schema) for kind, schema in event_schemas().items()},
        **{f"examples/{name}.json": _json(example) for name, example in _examples().items()},
    }


def page_files() -> Mapping[str, str]:
    """What of docs/ is written by the code."""
    return {"problems.md": problems_markdown()}


def _examples() -> Mapping[str, Any]:
    requests = {
        "booking-engine": examples.BOOKING_ENGINE,
        "general": examples.GENERAL,
        "cancellation": examples.CANCELLATION,
    }
    messages = {
        one.kind: {
            "key": one.example.key.decode(),
            "headers": shown_headers(one.example),
            "value": from_json(one.example.value),
        }
        for one in (*request_messages(), *result_messages())
    }
    return {
        **{f"requests/{name}": body for name, body in requests.items()},
        **{f"answers/{name}": body for name, body in answer_examples().items()},
        **{f"messages/{kind}": message for kind, message in messages.items()},
    }


def _json(value: Any) -> str:
    return to_json(value, indent=2).decode() + "\n"
