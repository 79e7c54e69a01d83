"""The contract of the messages: schemas/asyncapi.yaml, completed by the code's models and examples. Pure; published at
/asyncapi.yaml, and for each type of event as JSON Schema in schemas/events."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from tools.contracts import openapi
from tools.contracts.messages import all_messages
from tools.contracts.models import REF, Mismatch, model_schemas
from tools.contracts.written import Json, closure, expanded, referring, require_references, written

NAME: Final = "asyncapi.yaml"
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def asyncapi() -> Json:
    """The document. Raises `Mismatch` where what is written and the code differ."""
    said = written(NAME)
    document: Json = expanded({name: part for name, part in said.items() if not name.startswith("x-")})
    values = {kind: _value(kind) for kind in _examples()}
    messages = document["components"]["messages"]
    for kind, example in _examples().items():
        shown = example.shown()
        headers = messages[kind]["headers"]
        messages[kind] |= {
            "name": kind,
            "title": kind,
            "headers": {**headers, "properties": {**headers["properties"], "ce_type": {"const": kind}}},
            "payload": {"$ref": REF + kind},
            "examples": [{"headers": shown["headers"], "payload": shown["value"]}],
        }
    document["components"]["schemas"] = values | closure(list(values.values()), _pool())
    require_references(document, NAME)
    return document


def event_schemas() -> Mapping[str, Json]:
    """The schema of each message's value, by its type, with all that it refers to."""
    made = {}
    for kind in _examples():
        value = _value(kind)
        whole = {"$schema": _DIALECT, "$id": f"{kind}.schema.json", **value, "$defs": closure(value, _pool())}
        made[kind] = referring(whole, "#/$defs/")
    return made


def _value(kind: str) -> Json:
    """The schema of the value of messages of that type: the payload's schema, as the message narrows it."""
    message = written(NAME)["components"]["messages"][kind]
    payload = expanded(message["payload"])
    schema = _pool()[payload["$ref"].removeprefix(REF)]
    return {
        "title": kind,
        **schema,
        "description": message["summary"],
        "properties": {**schema["properties"], **payload.get("properties", {})},
        "required": [*schema["required"], *payload.get("required", ())],
    }


@cache
def _examples() -> Mapping[str, Any]:
    """A message of each type. Raises `Mismatch` where what is written has others."""
    examples = {one.kind: one for one in all_messages()}
    if others := examples.keys() ^ (written(NAME)["components"]["messages"].keys() - {"deadLetter"}):
        raise Mismatch(f"schemas/{NAME}: the code and the contract do not both have {', '.join(sorted(others))}.")
    return examples


@cache
def _pool() -> Mapping[str, Any]:
    """Every schema that a message may refer to. Requests are as they are published: by their models' serialization."""
    http = written(openapi.NAME)
    models = model_schemas(http["components"]["schemas"], http["x-fields"], "serialization")
    own: Json = expanded(written(NAME)["components"]["schemas"])
    return openapi.contract_schemas() | models | own
