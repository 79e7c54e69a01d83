"""Reads the contracts that people write (schemas/*.yaml), and replaces their abbreviations by what OpenAPI has for them.

The head of schemas/openapi.yaml lists the abbreviations. Lists and schemas that come from the code are looked up in
`tools.contracts.models`.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tools.contracts.models import Mismatch, lists

Json = dict[str, Any]

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SCHEMAS: Final = Path(__file__).parents[2] / "schemas"
_COMPONENTS: Final = "#/components/"
_LITERAL: Final = ("example", "value", "const", "default")


@cache
def written(name: str) -> Mapping[str, Any]:
    """The file `name` as it is written. Do not change what is returned."""
    document: Mapping[str, Any] = yaml.load((SCHEMAS / name).read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a safe one
    return document


def reference(section: str, name: str) -> Json:
    """The reference to a component."""
    return {"$ref": f"{_COMPONENTS}{section}/{name}"}


def references(section: str, names: Iterator[str] | list[str] | tuple[str, ...]) -> Json:
    """References to several, by name."""
    return {name: reference(section, name) for name in names}


def expanded(part: Any) -> Any:
    """A copy of `part` without abbreviations. Raises `Mismatch` for a list that the code does not have."""
    if isinstance(part, list):
        return [expanded(one) for one in part]
    if not isinstance(part, dict):
        return part
    if "x-from" in part:
        known = lists() | {"faults": written("openapi.yaml")["x-faults"]}
        if part["x-from"] not in known:
            raise Mismatch(f"x-from: {part['x-from']}: no such list; there are {', '.join(known)}.")
        return list(known[part["x-from"]])
    return {key: _expanded(key, value, part) for key, value in part.items()}


def _expanded(key: str, value: Any, part: Mapping[str, Any]) -> Any:
    match key, value:
        case "parameters", list():
            return [reference("parameters", one) if isinstance(one, str) else expanded(one) for one in value]
        case "headers", list():
            return references("headers", value)
        case "examples", list() if "schema" in part:
            return references("examples", value)
        case "schema", str():
            return reference("schemas", value)
        case "$ref", str() if "/" not in value:
            return reference("schemas", value)["$ref"]
        case _ if key in _LITERAL:
            return value
    return expanded(value)


def require_references(document: Mapping[str, Any], name: str) -> None:
    """Raises `Mismatch` if a reference within `document` leads nowhere."""
    for target in set(_targets(document)):
        place: Any = document
        for step in target.removeprefix("#/").split("/"):
            if step not in place:
                raise Mismatch(f"schemas/{name}: {target} is referred to, but not there.")
            place = place[step]


def closure(schema: Any, pool: Mapping[str, Any]) -> Json:
    """The schemas of `pool` that `schema` needs, directly or through others, by name and in order."""
    found: Json = {}
    left = list(_targets(schema))
    while left:
        name = left.pop().rpartition("/")[2]
        if name not in found:
            found[name] = pool[name]
            left += _targets(pool[name])
    return dict(sorted(found.items()))


def referring(schema: Any, prefix: str) -> Any:
    """A copy of `schema` whose references to schemas begin with `prefix`."""
    if isinstance(schema, list):
        return [referring(one, prefix) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: prefix + value.rpartition("/")[2] if key == "$ref" else referring(value, prefix)
        for key, value in schema.items()
    }


def _targets(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for one in part:
            yield from _targets(one)
    elif isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for key, value in part.items():
            if key not in _LITERAL:
                yield from _targets(value)
