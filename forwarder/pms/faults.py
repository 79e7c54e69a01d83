"""Errors of a mapping or of an account's options, in the words of their documentation rather than pydantic's. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

Loc = tuple[int | str, ...]

_A_TABLE: Final = "a table of names and values"
_FORMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type", "mapping_type"), _A_TABLE),
    **dict.fromkeys(("tuple_type", "list_type", "frozen_set_type", "set_type"), "a list, such as [a, b]"),
    "string_type": "a text",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
}
_BOUNDS: Final[Mapping[str, str]] = {
    "greater_than_equal": "must be {ge:g} or more",
    "greater_than": "must be more than {gt:g}",
    "less_than_equal": "must be {le:g} or less",
    "less_than": "must be less than {lt:g}",
    "string_too_short": "must have {min_length} or more characters",
    "string_too_long": "must have {max_length} characters or fewer",
    "too_short": "must have {min_length} or more items",
    "too_long": "must have {max_length} items or fewer",
    "string_pattern_mismatch": "must match the regular expression {pattern}",
    "missing": "is required",
}
_UNKNOWN: Final = "extra_forbidden"

Names = Callable[[Loc], Sequence[str]]
"""The names that are allowed in the table at a place."""
Near = Callable[[str, Iterable[str]], str]
"""A hint to the nearest of some names."""


def faults_of(details: Iterable[Mapping[str, Any]], value: Any, names: Names, near: Near) -> list[tuple[Loc, str]]:
    """The place of each fault in `value`, as it was written, and what would be right there. The forms that one value may
    have are one fault."""
    found: dict[Loc, list[str]] = {}
    for detail in details:
        loc, inside = _as_written(value, tuple(part for part in detail["loc"] if part != "[key]"), str(detail["type"]))
        words = _words(detail, loc, given_at(value, loc), names, near)
        if words not in found.setdefault(loc, []):
            found[loc].append(words)
        if not inside and len(found[loc]) > 1:  # one of several forms that the value may have
            found[loc] = [" or ".join(each.removeprefix("must be ") for each in found[loc])]
            found[loc] = [f"must be {found[loc][0]}"]
    return [(loc, words) for loc, each in found.items() for words in each]


def _words(detail: Mapping[str, Any], loc: Loc, given: Any, names: Names, near: Near) -> str:
    kind, context = str(detail["type"]), detail.get("ctx", {})
    if kind == _UNKNOWN:
        return f"there is no {loc[-1]} here{near(str(loc[-1]), names(loc[:-1]))}"
    if kind in ("literal_error", "enum"):
        choices = [one.strip("'") for one in str(context["expected"]).replace(" or ", ", ").split(", ")]
        hint = near(given, choices) if isinstance(given, str) else ""
        return f"must be one of {', '.join(choices)}{hint if 'did you mean' in hint else ''}"
    if kind in _BOUNDS:
        return _BOUNDS[kind].format_map(context)
    if kind not in _FORMS:
        return str(detail["msg"])
    words = f"must be {_FORMS[kind]}"
    if _FORMS[kind] == _A_TABLE and isinstance(given, str) and given.startswith("$"):
        first = next(iter(names(loc)), "name")
        words += f", such as {{{first}: {path_of(given)}}}; a path is written without $"
    return words


def path_of(jsonpath: str) -> str:
    """A JSONPath (`$.data[0].id`) as a path of ours (`data.0.id`)."""
    return jsonpath.removeprefix("$").replace("['", ".").replace("']", "").replace("[", ".").replace("]", "").strip(".")


def _as_written(value: Any, loc: Loc, kind: str) -> tuple[Loc, bool]:
    """The place without what pydantic adds to it: the position of a single value that was written without a list, and the names of
    the forms that a value may have. Also whether it added no such form."""
    written: list[int | str] = []
    for number, part in enumerate(loc, 1):
        if isinstance(part, int) and not isinstance(value, list):
            continue
        if isinstance(value, Mapping) and part not in value and not (kind == "missing" and number == len(loc)):
            return tuple(written), False
        if not isinstance(value, Mapping | list):
            return tuple(written), False
        written.append(part)
        value = given_at(value, (part,))
    return tuple(written), True


def given_at(value: Any, loc: Loc) -> Any:
    """The value at that place; None if there is none."""
    for part in loc:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value
