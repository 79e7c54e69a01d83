"""Dotted paths into JSON, such as `bookings.0.id`: what stands there, and how what is to be sent is put together. Pure."""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Annotated, Any, Final

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

_STEP = re.compile(r"[^.\x00-\x20]{1,128}")


class Missing(Enum):
    """What a path leads to where nothing stands there, not even null."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


def is_path(text: str) -> bool:
    """Whether `text` is a path that leads further than to the whole."""
    return all(_STEP.fullmatch(step) for step in text.split("."))


def _checked(path: str) -> str:
    if path and not is_path(path):
        raise PydanticCustomError(
            "json_path", "a path is names and positions with dots between, such as bookings.0.id; empty for the whole"
        )
    return path


JsonPath = Annotated[str, AfterValidator(_checked)]
"""A path that is well formed; the empty one leads to the whole document."""


def value_at(document: Any, path: str) -> Any | Missing:
    """What stands at `path`, or `MISSING`."""
    for step in path.split(".") if path else ():
        match document:
            case dict() if step in document:
                document = document[step]
            case list() if step.isdecimal() and int(step) < len(document):
                document = document[int(step)]
            case _:
                return MISSING
    return document


def texts_at(document: Any, path: str) -> list[str]:
    """The texts at `path`, in which a step * stands for every position of a list."""
    head, star, tail = path.partition("*")
    if not star:
        value = value_at(document, path)
        return [value] if isinstance(value, str) else []
    items = value_at(document, head.rstrip("."))
    return [text for item in items for text in texts_at(item, tail.lstrip("."))] if isinstance(items, list) else []


def same(value: Any, expected: Any) -> bool:
    """Whether two scalars are one in JSON, where true is not 1."""
    return isinstance(value, bool) == isinstance(expected, bool) and bool(value == expected)


def assembled(values: Mapping[str, Any]) -> Any:
    """The document that has each value at its path. Where the paths leave out a position of a list, those after it move up."""
    root: dict[str, Any] = {}
    for path, value in values.items():
        *steps, last = path.split(".")
        parent = root
        for step in steps:
            parent = parent.setdefault(step, {})
        parent[last] = _Leaf(value)
    return _shaped(root)


def clashes(paths: Iterable[str]) -> str:
    """What is wrong with `paths` as those of one document; empty where nothing is."""
    children: dict[str, set[str]] = {}
    known = set(paths)
    for path in sorted(known):
        if not is_path(path):
            return f"{path!r} is no path: names and positions with dots between, such as guests.0.name"
        steps = path.split(".")
        for depth in range(len(steps)):
            parent = ".".join(steps[:depth])
            if depth and parent in known:
                return f"{parent} cannot be a value and have {path} below it"
            children.setdefault(parent, set()).add(steps[depth])
    return next((_gap(parent, steps) for parent, steps in sorted(children.items()) if _gap(parent, steps)), "")


def _gap(parent: str, steps: set[str]) -> str:
    positions = sorted(int(step) for step in steps if step.isdecimal())
    if positions and (len(positions) != len(steps) or positions != list(range(len(positions)))):
        return f"{parent or 'the body'} is a list, whose positions are 0, 1, 2 … without a gap, and no names"
    return ""


class _Leaf:
    def __init__(self, value: Any) -> None:
        self.value = value


def _shaped(node: Any) -> Any:
    if isinstance(node, _Leaf):
        return node.value
    if node and all(step.isdecimal() for step in node):
        return [_shaped(node[step]) for step in sorted(node, key=int)]
    return {step: _shaped(part) for step, part in node.items()}
