"""Reads a mapping from the text of a YAML document, strictly, and reports every mistake with its line.

It does not guess as YAML 1.1 does: `no`, `on` and dates are texts. Duplicate names, anchors and aliases are mistakes.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from forwarder.pms.faults import Loc, faults_of
from forwarder.pms.mapping.values import nearest

M = TypeVar("M", bound=BaseModel)

_DEEPEST: Final = 32
_LONGEST: Final = 200_000
_SIMPLE: Final[Mapping[str, Any]] = {"true": True, "false": False, "null": None, "~": None, "": None}
_INTEGER = re.compile(r"-?(0|[1-9]\d*)")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)\.\d+")


class DocumentFault(ValueError):
    """What is wrong with a document; the message has a line for each fault."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


def read_document(text: str) -> tuple[Any, Mapping[Loc, int]]:
    """The content, as JSON types, and the line on which each part begins, counted from 1. Raises `DocumentFault`."""
    if len(text) > _LONGEST:
        raise DocumentFault([f"the document is longer than {_LONGEST} characters"])
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise DocumentFault([f"{where}is not YAML: {error.problem}"]) from error
    except RecursionError:
        raise DocumentFault(["nested too deeply"]) from None
    except yaml.YAMLError as error:
        raise DocumentFault([f"is not YAML: {error}"]) from error
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
        details, said = error.errors(include_input=False, include_url=False), []
        for loc, fault in faults_of(details, value, lambda at: _names_at(model, at), nearest):
            place = ".".join(map(str, loc))
            # Of the part, or of the closest part around it.
            line = next(lines[loc[:end]] for end in range(len(loc), -1, -1) if loc[:end] in lines)
            said.append(f"line {line}: {place + ': ' if place else ''}{fault}")
        raise DocumentFault([*dict.fromkeys(said)]) from None


def _value(node: yaml.Node, loc: Loc, lines: dict[Loc, int], seen: set[int]) -> Any:
    lines[loc] = node.start_mark.line + 1
    if id(node) in seen:
        raise DocumentFault([f"line {lines[loc]}: & and * are not taken: write it out"])
    if len(loc) > _DEEPEST:
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
        case yaml.ScalarNode(style=None, value=text) if _INTEGER.fullmatch(text):
            return int(text)
        case yaml.ScalarNode(style=None, value=text) if _NUMBER.fullmatch(text):
            return float(text)
        case _:  # quoted, or a block of text, too
            return node.value


def _names_at(model: type[BaseModel], loc: Loc) -> list[str]:
    """The names that are allowed in the table there, as far as they are known."""
    current: type[BaseModel] | None = model
    for part in loc:
        if current is None:
            return []
        if isinstance(part, int):
            continue
        field = next((field for name, field in current.model_fields.items() if (field.alias or name) == part), None)
        if field is not None:
            current = _model_in(field.annotation)
    return [] if current is None else [field.alias or name for name, field in current.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The first model in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        if (found := _model_in(part)) is not None:
            return found
    return None
