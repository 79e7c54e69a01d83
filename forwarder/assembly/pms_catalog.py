"""The kinds of PMS and what each can do, for `forwarder adapters list`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from forwarder.pms.adapter import AdapterKind
from forwarder.pms.fields import becomes
from forwarder.pms.port import AccountConnection
from forwarder.pms.registry import registered
from forwarder.pms.rehearsal import table_of
from forwarder.process.clock import SystemClock

BUILT_IN = "built in"

_WORDS = {"string": "text", "array": "list", "object": "table", "integer": "whole number", "boolean": "true or false"}


def pms_kinds() -> Sequence[str]:
    """The kinds of PMS that an account may be of."""
    return sorted(registered().kinds)


def adapters() -> Sequence[Mapping[str, Any]]:
    """Every kind: its capabilities, request limits, account options, and the distribution that it comes from. Then those that could
    not be loaded, each with its `error`."""
    registry = registered()
    there = [
        {"kind": kind, "from": registry.origins.get(kind, BUILT_IN), **_described(registry.kinds[kind])}
        for kind in sorted(registry.kinds)
    ]
    lost = [{"kind": one.kind, "from": one.distribution, "error": one.error} for one in registry.not_loaded]
    return [*there, *lost]


def fields(kind: str, options: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What an account of that kind, set so, makes of each field of a request. Raises `UnknownKind` and `BadOptions`."""
    table = table_of(AccountConnection("", kind, "", "", options=options), SystemClock())
    return [{"field": name, "becomes": becomes(fate, table.notes)} for name, fate in table.fates.items()]


def _described(adapter: AdapterKind) -> Mapping[str, Any]:
    can, limits = adapter.capabilities, adapter.limits
    return {
        "capabilities": {
            "idempotentCreate": can.idempotent_create,
            "findByReference": can.find_by_reference,
            "cancel": can.cancel,
            "mostPerCreate": can.max_per_create,
        },
        "limits": [{"requests": limit.requests, "seconds": limit.seconds} for limit in limits.each],
        "requestsPerPush": limits.requests_per_push,
        "options": list(_options(adapter.options)),
    }


def _options(model: type[BaseModel]) -> Iterator[Mapping[str, Any]]:
    schema = model.model_json_schema(by_alias=True)
    parts, required = schema.get("$defs", {}), schema.get("required", ())
    for name, option in schema.get("properties", {}).items():
        forms = list(_forms(option, parts))
        yield {
            "name": name,
            "type": " or ".join(
                dict.fromkeys(_WORDS.get(form["type"], form["type"]) for form in forms if "type" in form)
            ),
            "choices": [value for form in forms for value in form.get("enum", ())],
            "required": name in required,
            "default": option.get("default"),
            "description": option.get("description", ""),
        }


def _forms(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every form that a value may have, except null: leaving the option out means the same."""
    if "$ref" in schema:
        yield from _forms(parts[schema["$ref"].rpartition("/")[2]], parts)
    elif choices := schema.get("anyOf") or schema.get("oneOf"):
        for choice in choices:
            yield from _forms(choice, parts)
    elif schema.get("type") != "null":
        yield schema
