"""Answers that are JSON, and of other types than agreed: objects for ids, lists for objects, numbers for texts, nulls. Pure."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic_core import from_json, to_json

_DEPTH = 50

UNBOOKED: Final = to_json(
    {
        "id": 1,
        "reference": "R1",
        "status": "CONFIRMED",
        "data": [{"id": 1, "reference": "R1"}],
        "bookings": [{"id": 1, "status": "Booked", "external_reference": "R1"}],
        "clients": [{"id": 1}],
    }
)
"""What is spoilt where nothing was booked, with something for every kind of PMS in it."""

Way = Callable[[Any], Any]


def mistyped(answer: bytes, turn: int) -> bytes:
    """The JSON text `answer` with wrong types: in one way after another, as `turn` counts on."""
    return to_json(WAYS[turn % len(WAYS)](from_json(answer)))


def _objects_for_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: {"value": part} if _names_an_id(name) else _objects_for_ids(part) for name, part in value.items()}
    return [_objects_for_ids(part) for part in value] if isinstance(value, list) else value


def _names_an_id(name: str) -> bool:
    return name == "id" or name.endswith(("Id", "ID", "_id"))


def _lists_for_objects(value: Any) -> Any:
    if isinstance(value, dict):
        return [[name, _lists_for_objects(part)] for name, part in value.items()]
    return [_lists_for_objects(part) for part in value] if isinstance(value, list) else value


def _numbers_for_texts(value: Any) -> Any:
    return _with_leaves(value, lambda leaf: len(leaf) if isinstance(leaf, str) else leaf)


def _nulls(value: Any) -> Any:
    return _with_leaves(value, lambda _: None)


def _nested_nulls(value: Any) -> Any:
    nested: Any = None
    for level in range(_DEPTH):
        nested = {"value": nested} if level % 2 else [nested]
    return _with_leaves(value, lambda _: nested)


def _with_leaves(value: Any, replaced: Way) -> Any:
    if isinstance(value, dict):
        return {name: _with_leaves(part, replaced) for name, part in value.items()}
    return [_with_leaves(part, replaced) for part in value] if isinstance(value, list) else replaced(value)


WAYS: Final[Sequence[Way]] = (_objects_for_ids, _lists_for_objects, _numbers_for_texts, _nulls, _nested_nulls)
"""How types go wrong."""
