"""The schema of each message's value, as JSON Schema 2020-12: published as schemas/events/<type>.schema.json. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from tools.contracts.json_schema import schema_of
from tools.contracts.messages import event_data
from tools.contracts.messages.messages import Described, other_messages, request_messages, result_messages
from tools.contracts.openapi.request_bodies import request_schemas

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_MASKED: Final = {
    "type": "object",
    "description": "Of a card, the number's first six and last four digits.",
    "properties": {"cardNumber": {"type": "string", "pattern": "^[0-9]*\\**[0-9]*$"}},
    "additionalProperties": False,
}


def event_schemas() -> Mapping[str, Mapping[str, Any]]:
    """By type."""
    described = (*request_messages(), *result_messages(), *other_messages())
    return {
        one.kind: {"$schema": _DIALECT, "$id": f"{one.kind}.schema.json", **value_schema(one, "#/$defs/")}
        for one in described
    }


def value_schema(one: Described, ref: str) -> dict[str, Any]:
    """The schema of its value. The parts are in `$defs`, and referred to by `ref`."""
    parts: dict[str, Any] = {}
    schema = schema_of(one.model, parts, ref=ref)
    for field, value in one.fixed.items():
        schema["properties"][field] = {"const": value}
    schema["required"] = sorted({*schema["required"], *one.always}, key=list(schema["properties"]).index)
    if one.model is event_data.SubmittedData:
        schema["properties"]["reservation"] = _request(ref)
        parts |= _request_parts(ref)
    return {"title": one.kind, **schema, "description": one.about, "$defs": dict(sorted(parts.items()))}


def _request(ref: str) -> dict[str, Any]:
    return {
        "description": "The request as it came, but for the card.",
        "anyOf": [{"$ref": f"{ref}{name}"} for name in ("BookingEngineRequest", "GeneralRequest")],
    }


def _request_parts(ref: str) -> dict[str, Any]:
    parts = {name: part for name, part in request_schemas(ref, "serialization").items() if name != "CancellationBody"}
    return parts | {"CardDetails": _MASKED}
