"""JSON values as YAML 1.2, block style: for people to read. Texts are written as JSON writes them, which YAML takes. Pure."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

_PLAIN: Final = re.compile(r"[$A-Za-z_][$A-Za-z0-9_.-]*")
_NOT_TEXT: Final = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def to_yaml(value: Any) -> str:
    """A document."""
    return "\n".join(_lines(value, "")) + "\n"


def _lines(value: Any, indent: str) -> Iterator[str]:
    match value:
        case dict() if value:
            for name, part in value.items():
                yield from _entry(f"{indent}{_name(name)}:", part, f"{indent}  ")
        case list() | tuple() if value:
            for part in value:
                yield from _item(part, indent)
        case _:
            yield indent + json.dumps(value, ensure_ascii=False)


def _entry(head: str, part: Any, indent: str) -> Iterator[str]:
    if isinstance(part, dict | list | tuple) and part:
        yield head
        yield from _lines(part, indent)
    elif isinstance(part, str) and _is_prose(part):
        yield f"{head} |-"
        yield from (f"{indent}{line}" if line else "" for line in part.split("\n"))
    else:
        yield f"{head} {json.dumps(part, ensure_ascii=False)}"


def _is_prose(text: str) -> bool:
    """Whether its lines can stand as they are."""
    return "\n" in text and text == text.strip() and text.replace("\n", "").isprintable()


def _item(part: Any, indent: str) -> Iterator[str]:
    """The dash stands where the first line's indent would end."""
    first, *rest = _lines(part, f"{indent}  ")
    yield f"{indent}- {first[len(indent) + 2 :]}"
    yield from rest


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) and name.lower() not in _NOT_TEXT else json.dumps(name, ensure_ascii=False)
