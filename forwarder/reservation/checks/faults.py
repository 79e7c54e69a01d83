"""The faults of single values in a document, in our own words, each with its JSON Pointer; unknown names, and the known one that a
misspelt one probably means. No fault ever quotes the value at fault: it may be a card number. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from forwarder.reservation.problems import FieldFault, pointer_to
from forwarder.reservation.request import CONFIRMED, CURRENCY_IN_ANY_CASE, EMAIL, NO_NUL, NOT_BLANK, PRINTABLE

MAX_FAULTS: Final = 100
"""More than any request has fields. A body may have thousands of unknown names or elements, each at fault."""


class MalformedJson(ValueError):
    """The body is not a JSON document. The message says where the error is."""


def field_faults(error: ValidationError, skipped_steps: int = 0) -> Mapping[str, FieldFault]:
    """The first `MAX_FAULTS`, by JSON Pointer, without the first `skipped_steps` steps of their paths. Raises `MalformedJson`."""
    details = error.errors(include_url=False, include_input=False)
    if details[0]["type"] == "json_invalid":
        raise MalformedJson(details[0]["ctx"]["error"])
    by_pointer: dict[str, list[ErrorDetails]] = {}
    for detail in details[:MAX_FAULTS]:
        # A string-or-number field reports each branch of its union as one more, last step: not a step of the document.
        branch = r"(?:constrained-)?(?:str|int|float)\Z|function-after\["
        steps = [each for each in detail["loc"][skipped_steps:] if not re.match(branch, str(each))]
        by_pointer.setdefault(pointer_to(*steps), []).append(detail)
    return {pointer: _fault(pointer, branches) for pointer, branches in by_pointer.items()}


_WRONG_TYPES = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "an array",
}


def _fault(pointer: str, branches: list[ErrorDetails]) -> FieldFault:
    """The one fault of a value, in our own words: the limit that it exceeds, or else the types that it may have."""
    for detail in branches:
        if detail["type"] not in _WRONG_TYPES:
            return FieldFault(pointer, *_in_our_words(detail))
    types = {detail["type"] for detail in branches}
    types -= {"int_type"} if "float_type" in types else set()
    expected = " or ".join(words for name, words in _WRONG_TYPES.items() if name in types)
    return FieldFault(pointer, "wrong_type", f"must be {expected}")


_REQUIRED_SHAPES = {
    EMAIL: "must be an e-mail address, such as guest@example.com",
    CURRENCY_IN_ANY_CASE: "must be an ISO 4217 currency code, such as EUR",
    CONFIRMED: "must be CONFIRMED, in any case, or be left out",
    NOT_BLANK: "must not be empty, nor contain the character U+0000",
    NO_NUL: "must not contain the character U+0000",
    PRINTABLE: "must have printable ASCII characters alone",
}


_IN_OUR_WORDS = {
    "missing": ("required", "is required"),
    "extra_forbidden": ("unknown_field", "is not a field of this operation"),
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), ("wrong_type", "must be a JSON object")),
    "inexact_number": ("inexact_number", "must be written in digits alone, or as a string: else it may not be exact"),
    "number_as_string": ("wrong_type", "must be a JSON number, not a string: 480.50, without quotes"),
    **dict.fromkeys(
        ("decimal_type", "decimal_parsing", "finite_number"), ("wrong_type", "must be a finite JSON number")
    ),
    **dict.fromkeys(
        ("date_type", "date_parsing", "date_from_datetime_parsing"),
        ("invalid_date", "must be a date that exists, written YYYY-MM-DD"),
    ),
    **dict.fromkeys(("string_too_short", "too_short"), ("invalid_value", "must not be empty")),
}


def _in_our_words(detail: ErrorDetails) -> tuple[str, str]:
    context: Mapping[str, Any] = detail.get("ctx", {})
    match detail["type"]:
        case "literal_error" if detail["loc"][-1] == "country":
            codes = "the ISO 3166-1 alpha-2 codes that this service accepts, such as ES: see /docs#Address"
            return "invalid_value", f"must be one of {codes}"
        case "literal_error":
            return "invalid_value", f"must be {context['expected']}"
        case "string_pattern_mismatch":
            return "invalid_value", _REQUIRED_SHAPES[context["pattern"]]
        case "string_too_long":
            return "too_long", f"must have at most {context['max_length']} characters"
        case "greater_than_equal" | "greater_than":
            return "too_small", f"must be at least {int(context.get('ge', context.get('gt')))}"
        case "less_than_equal" | "less_than":
            return "too_large", f"must be at most {int(context.get('le', context.get('lt')))}"
        case kind:
            return _IN_OUR_WORDS.get(kind, (kind, detail["msg"]))


# --- unknown and misspelt names ---


class UnknownField(NamedTuple):
    """An unknown name in a request, which is dropped. `place`: JSON Pointer of its object; `known`: that object's fields."""

    place: str
    name: str
    known: Collection[str]


def unknown_fields(model: type[BaseModel], document: Any, place: str = "") -> Sequence[UnknownField]:
    """The unknown fields in a `document`, which is at `place` and may be wrong in any way; at most 20 of them."""
    return tuple(islice(_unknown(model, document, place), 20))


def _unknown(model: type[BaseModel], document: Any, place: str) -> Iterator[UnknownField]:
    fields = _fields(model)
    for name, value in document.items() if isinstance(document, dict) else ():
        if name not in fields:
            yield UnknownField(place, name, fields.keys())
        elif (part := fields[name]) is not None:
            yield from _unknown(part, value, f"{place}/{name}")


@cache
def _fields(model: type[BaseModel]) -> Mapping[str, type[BaseModel] | None]:
    """The fields of an object by the names that callers know, each with the model of the object that it holds, if it holds one."""
    found: dict[str, type[BaseModel] | None] = {}
    for name, field in model.model_fields.items():
        parts = (field.annotation, *get_args(field.annotation))
        models = (part for part in parts if isinstance(part, type) and issubclass(part, BaseModel))
        found[field.alias or name] = next(models, None)
    return found


def hinted(faults: Mapping[str, FieldFault], unknown: Sequence[UnknownField]) -> list[FieldFault]:
    """`faults`, with the field that was probably meant where a required one is missing or an unknown one is refused."""
    found = []
    for fault in faults.values():
        detail, (place, _, name) = fault.detail, fault.pointer.rpartition("/")
        there = [each for each in unknown if each.place == place]
        if fault.code == "required" and (sent := [each.name for each in there if nearest(each.name, (name,))]):
            detail = f"is required; you sent {sent[0]}: did you mean {name}?"
        elif fault.code == "unknown_field":
            meant = [field for each in there if each.name == name and (field := nearest(name, each.known))]
            detail = f"{detail}; did you mean {meant[0]}?" if meant else detail
        found.append(replace(fault, detail=detail))
    return found


_MIN_LETTERS: Final = 4
_MAX_NAME: Final = 32  # no name of ours is longer


def nearest(name: str, known: Collection[str]) -> str | None:
    """The one of `known` that differs from `name` by one letter or two swapped ones; ignores case, hyphens and underscores."""
    spelt = _spelt(frozenset(known))
    return next((spelt[each] for each in _spellings(name) if each in spelt), None)


@lru_cache(maxsize=64)
def _spelt(known: frozenset[str]) -> Mapping[str, str]:
    """Each of `known` by all its spellings. For the thousands of names of a bulk `difflib` would cost more than all else."""
    return {spelling: name for name in sorted(known) for spelling in _spellings(name)}


def _spellings(name: str) -> Sequence[str]:
    """Its letters; then its letters without one of them, where they are some: names that differ by a letter share one."""
    if len(name) > _MAX_NAME:
        return ()
    letters = "".join([each for each in name if each.isalnum()]).lower()
    shorter = range(len(letters)) if len(letters) >= _MIN_LETTERS else ()
    return [letters, *[letters[:at] + letters[at + 1 :] for at in shorter]]
