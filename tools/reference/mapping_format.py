"""docs/reference/mapping-format.md: every table and key of a mapping, as its model declares them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from forwarder.pms.mapping.model import PmsMapping
from forwarder.pms.mapping.values import DERIVED, FIELDS
from tools.reference.source import HEAD, table

_ABOUT: Final = """# The format of a mapping

A mapping is a YAML document that says how a PMS is asked, and how its answers are read. This page has every table and key;
[Map a PMS](../guides/map-a-pms.md) explains it by examples. What is not of this form is refused as it is loaded, with the line
and the nearest right word.

YAML is taken literally here: `no`, `on` and dates are texts, a name stands once in a table, and there are no `&` and `*`.

"""
_WORDS: Final = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
_MOST_NAMED: Final = 16


def mapping_format_page() -> str:
    """The page."""
    schema = PmsMapping.model_json_schema(by_alias=True)
    parts: Mapping[str, Any] = schema["$defs"]
    sections = ["\n".join(_section("The whole", schema))]
    sections += ["\n".join(_section(name, parts[name])) for name in _in_order(schema, parts)]
    return HEAD + _ABOUT + "\n".join(sections) + "\n" + _fields()


def _in_order(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> list[str]:
    """The tables as they come up, from the whole downwards."""
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
        [f"`{key}`", _type(value) + (", required" if key in required else _preset(value)), _said(value)]
        for key, value in schema["properties"].items()
    ]
    yield table(["key", "is", "meaning"], rows)


def _said(value: Mapping[str, Any]) -> str:
    return " ".join(str(value.get("description", "")).split())


def _preset(value: Mapping[str, Any]) -> str:
    default = value.get("default")
    if default in (None, "", [], {}) or isinstance(default, dict | list):
        return ""
    shown = {True: "true", False: "false", "\n": "a line feed"}.get(default, default)
    return f"; else {shown}" if default == "\n" else f"; else `{shown}`"


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
            f"The fields of ours, as `field` and the texts in `query` and `body` name them: {plain}.\n",
            "And those that are worked out of others:\n",
            table(["field", "out of"], derived),
        ]
    )
