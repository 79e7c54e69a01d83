"""Reads a mapping from the text of a YAML document, strictly, and reports every mistake with its line.

It does not guess as YAML 1.1 does: `no`, `on` and dates are texts. Duplicate names, anchors and aliases are mistakes.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from forwarder.pms.mapping.values import nearest, path_of

M = TypeVar("M", bound=BaseModel)
Loc = tuple[int | str, ...]
_MAX_LENGTH: Final = 200_000
_SIMPLE: Final[Mapping[str, Any]] = {"true": True, "false": False, "null": None, "~": None, "": None}
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,99})(\.\d+)?")  # no more digits than Python reads


class DocumentFault(ValueError):
    """What is wrong with a document; the message has a line for each fault."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


def read_document(text: str) -> tuple[Any, Mapping[Loc, int]]:
    """The content, as JSON types, and the line on which each part begins, counted from 1. Raises `DocumentFault`."""
    if len(text) > _MAX_LENGTH:
        raise DocumentFault([f"the document is longer than {_MAX_LENGTH} characters"])
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f"line {mark.line + 1}: "
        raise DocumentFault([f"{where}is not YAML: {getattr(error, 'problem', error)}"]) from error
    except RecursionError:
        raise DocumentFault(["nested too deeply"]) from None
    if root is None:
        raise DocumentFault(["the document is empty"])
    lines: dict[Loc, int] = {}
    return _value(root, (), lines, set()), lines


def load_document(text: str, model: type[M]) -> M:
    """The model that the document describes. Raises `DocumentFault` with line, place, and the nearest correct word."""
    value, lines = read_document(text)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        said: dict[str, None] = {}
        for loc, fault in faults_of(error, value, model):
            # Of the part, or of the closest part around it.
            line = next(lines[loc[:end]] for end in range(len(loc), -1, -1) if loc[:end] in lines)
            said[": ".join(filter(None, (f"line {line}", ".".join(map(str, loc)), fault)))] = None
        raise DocumentFault([*said]) from None


def _value(node: yaml.Node, loc: Loc, lines: dict[Loc, int], seen: set[int]) -> Any:
    lines[loc] = node.start_mark.line + 1
    if id(node) in seen:
        raise DocumentFault([f"line {lines[loc]}: & and * are not taken: write it out"])
    if len(loc) > 32:  # noqa: PLR2004
        raise DocumentFault([f"line {lines[loc]}: nested too deeply"])
    seen.add(id(node))
    match node:
        case yaml.MappingNode():
            table: dict[str, Any] = {}
            for key, part in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
                    raise DocumentFault([f"line {line}: a name is a text"])
                if key.value in table:
                    raise DocumentFault([f"line {line}: {key.value} is there twice"])
                table[key.value] = _value(part, (*loc, key.value), lines, seen)
                lines[*loc, key.value] = line
            return table
        case yaml.SequenceNode():
            return [_value(part, (*loc, position), lines, seen) for position, part in enumerate(node.value)]
        case yaml.ScalarNode(style=None, value=text) if text in _SIMPLE:
            return _SIMPLE[text]
        case yaml.ScalarNode(style=None, value=text) if _NUMBER.fullmatch(text):
            return float(text) if "." in text else int(text)
        case _:  # quoted, or a block of text, too
            return node.value


def _names_at(model: type[BaseModel] | None, loc: Loc) -> list[str]:
    """The names that are allowed in the table there, as far as they are known."""
    fields = {} if model is None else {field.alias or name: field for name, field in model.model_fields.items()}
    for number, part in enumerate(loc, 1):
        if part in fields:
            return _names_at(_model_in(fields[str(part)].annotation), loc[number:])
    return [*fields]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, getattr(annotation, "__args__", ()))), None)


# --- errors of a mapping, or of an account's options, in the words of their documentation rather than pydantic's ---

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


def faults_of(error: ValidationError, value: Any, model: type[BaseModel] | None = None) -> list[tuple[Loc, str]]:
    """The place of each fault in `value`, as it was written, and what would be right there, with the nearest word that `model`
    knows; never the value itself, which may be a secret in the wrong place. The forms that one value may have are one fault."""
    found: dict[Loc, list[str]] = {}
    for detail in error.errors(include_input=False, include_url=False):
        loc, inside = _as_written(value, tuple(part for part in detail["loc"] if part != "[key]"), str(detail["type"]))
        words = _words(detail, loc, given_at(value, loc), model)
        if words not in found.setdefault(loc, []):
            found[loc].append(words)
        if not inside and len(found[loc]) > 1:  # one of several forms that the value may have
            found[loc] = [f"must be {' or '.join(each.removeprefix('must be ') for each in found[loc])}"]
    return [(loc, words) for loc, each in found.items() for words in each]


def _words(detail: Mapping[str, Any], loc: Loc, given: Any, model: type[BaseModel] | None) -> str:
    kind, context = str(detail["type"]), detail.get("ctx", {})
    if kind == "extra_forbidden":
        return f"there is no {loc[-1]} here{nearest(str(loc[-1]), _names_at(model, loc[:-1]))}"
    if kind in ("literal_error", "enum"):
        choices = [one.strip("'") for one in str(context["expected"]).replace(" or ", ", ").split(", ")]
        hint = nearest(given, choices) if isinstance(given, str) and model is not None else ""
        return f"must be one of {', '.join(choices)}{hint if 'did you mean' in hint else ''}"
    if kind in _BOUNDS:
        return _BOUNDS[kind].format_map(context)
    if kind not in _FORMS:
        return str(detail["msg"])
    words = f"must be {_FORMS[kind]}"
    if _FORMS[kind] == _A_TABLE and isinstance(given, str) and given.startswith("$"):
        first = next(iter(_names_at(model, loc)), "name")
        words += f", such as {{{first}: {path_of(given)}}}; a path is written without $"
    return words


def _as_written(value: Any, loc: Loc, kind: str) -> tuple[Loc, bool]:
    """The place without the positions and names of forms that pydantic adds to it. Also whether it added no name of a form."""
    written: list[int | str] = []
    for number, part in enumerate(loc, 1):
        if isinstance(part, int) and not isinstance(value, list):
            continue
        is_form = isinstance(value, Mapping) and part not in value and not (kind == "missing" and number == len(loc))
        if is_form or not isinstance(value, Mapping | list):
            return tuple(written), False
        written.append(part)
        value = given_at(value, (part,))
    return tuple(written), True


def given_at(value: Any, loc: Loc) -> Any:
    for part in loc:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value
