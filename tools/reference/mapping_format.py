"""docs/reference/mapping-format.md: every table and key of a mapping, as its model declares them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from forwarder.pms.mapping.model import PmsMapping
from forwarder.pms.mapping.operations import Operation
from forwarder.pms.mapping.values import DERIVED, FIELDS
from tools.reference.source import HEAD, table

_ABOUT: Final = """# The format of a mapping

A mapping is a YAML document that describes the requests that a PMS takes, and how to read its responses. This page lists every
table and key; [Map a PMS](../guides/map-a-pms.md) explains them by examples. Anything else is refused when the mapping is loaded,
with the line and the nearest correct word.

YAML is read literally: `no`, `on` and dates are texts. Duplicate names, `&` and `*` are mistakes.

"""
_WORDS: Final = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
_MOST_NAMED: Final = 16


def mapping_format_page() -> str:
    """The page."""
    schema = PmsMapping.model_json_schema(by_alias=True)
    parts: Mapping[str, Any] = schema["$defs"]
    sections = ["\n".join(_section("Mapping", schema))]
    sections += ["\n".join(_section(name, parts[name])) for name in _in_order(schema, parts)]
    return HEAD + _ABOUT + "\n".join(sections) + "\n" + _fields()


def _in_order(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> list[str]:
    """The tables, each after the first that refers to it."""
    found: list[str] = []
    waiting = [*_refs(schema.get("properties", {}))]
    while waiting:
        name = waiting.pop(0)
        if name not in found and "properties" in parts[name]:
            found.append(name)
            waiting[:0] = _refs(parts[name]["properties"])
    return found


def _refs(value: Any) -> Iterator[str]:
    match value:
        case {"$ref": str() as ref}:
            yield ref.rpartition("/")[2]
        case dict():
            for part in value.values():
                yield from _refs(part)
        case list():
            for part in value:
                yield from _refs(part)


def _section(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{schema.get('description', '').strip()}\n"
    required = schema.get("required", ())
    rows = [
        [f"`{key}`", _type(value) + (", required" if key in required else _preset(value)), _said(key, value)]
        for key, value in schema["properties"].items()
    ]
    yield table(["key", "is", "meaning"], rows)


_OF_OPERATIONS: Final = {field.alias or name: field.description for name, field in Operation.model_fields.items()}


def _said(key: str, value: Mapping[str, Any]) -> str:
    """An operation that has a default of its own for a key says no more of it than all operations do."""
    return " ".join(str(value.get("description") or _OF_OPERATIONS.get(key, "")).split())


def _preset(value: Mapping[str, Any]) -> str:
    default = value.get("default")
    if default in (None, "", [], {}) or isinstance(default, dict | list):
        return ""
    return f"; else `{str(default).lower() if isinstance(default, bool) else default}`"


def _type(value: Mapping[str, Any]) -> str:
    match value:
        case {"$ref": str() as ref}:
            name = ref.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"anyOf": [*forms]}:
            return " or ".join(dict.fromkeys(_type(form) for form in forms if form.get("type") != "null"))
        case {"const": constant}:
            return f"`{constant}`"
        case {"enum": [*choices]}:
            return ", ".join(f"`{choice}`" for choice in choices)
        case {"type": "array", "items": items}:
            return f"list of {_type(items)}"
        case {"type": "object", "additionalProperties": dict() as inner}:
            return f"names, each with {_type(inner)}"
        case {"type": kind}:
            return _WORDS.get(str(kind), str(kind))
        case _:
            return "any value"


def _fields() -> str:
    derived = [[f"`{name}`", ", ".join(f"`{one}`" for one in dict.fromkeys(of))] for name, of in DERIVED.items()]
    plain = ", ".join(f"`{name}`" for name in sorted(FIELDS - DERIVED.keys()))
    return "\n".join(
        [
            "## Fields\n",
            f"The names of our fields in `field`, `query` and `body`: {plain}.\n",
            "Derived fields:\n",
            table(["field", "derived from"], derived),
        ]
    )
