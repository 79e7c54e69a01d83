"""What makes a JSON Schema break those who rely on it. Pure.

A schema is relied on from one of two sides. What a client sends must go on being taken: nothing may be narrowed. What a client
receives must go on being what it was: nothing may go away or be of another type; fields and enumerated values may be added, since
`v1` says so. A keyword that is not understood here counts as a break where it changed: better one look too many.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from jsonschema import Draft202012Validator

Side = Literal["sent", "received"]
Schema = Mapping[str, Any]
_Choices = list[Schema]
_Seen = frozenset[tuple[str, str]]

_SAYS_NOTHING: Final = {
    *("$comment", "$defs", "$id", "$schema", "deprecated", "description", "example", "examples", "title"),
    *("readOnly", "writeOnly", "discriminator", "externalDocs"),
}
_COMPARED: Final = {"$ref", "type", "enum", "const", "properties", "required", "items", "additionalProperties"}
_KINDS: Final = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    dict: "object",
    list: "array",
}
_REF: Final = "x-ref"
"""Where a schema that was looked up keeps the reference, so that one which holds itself is compared once."""
_CHOICES: Final = ("anyOf", "oneOf")
_AT_LEAST: Final = (("minimum", "exclusiveMinimum"), ("minLength",), ("minItems",), ("minProperties",))
_AT_MOST: Final = (("maximum", "exclusiveMaximum"), ("maxLength",), ("maxItems",), ("maxProperties",))
_BOUNDS: Final = {name for names in (*_AT_LEAST, *_AT_MOST) for name in names}
_AS_IT_IS: Final = ("pattern", "format", "multipleOf", "uniqueItems")
_MEANING: Final = ("default",)
EXACT: Final = 2**53
"""Beyond it JSON numbers are whole, so an exclusive bound is the inclusive one beside it."""
OR_EMPTY: Final = "^$|"
"""What a pattern begins with that takes the empty text as well."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of two documents, which hold what their schemas refer to."""

    old: Schema
    new: Schema
    kept: set[tuple[str, str, Side]] = field(default_factory=set)
    """What was compared already, by its references, and is not broken."""

    def breaks(self, old: Schema, new: Schema, side: Side, where: str) -> list[str]:
        """Each break between two schemas, told as `where` and what; empty where there is none."""
        return list(self._breaks(old, new, side, where, frozenset()))

    def _breaks(self, old: Schema, new: Schema, side: Side, where: str, seen: _Seen) -> Iterator[str]:
        before, after = list(_alternatives(self.old, old)), list(_alternatives(self.new, new))
        if len(before) > 1 or len(after) > 1:
            yield from self._choices(before, after, side, where, seen)
            return
        both = (before[0].get(_REF, ""), after[0].get(_REF, ""))
        if not all(both):
            yield from self._plain(before[0], after[0], side, where, seen)
        elif both not in seen and (*both, side) not in self.kept:
            found = list(self._plain(before[0], after[0], side, where, seen | {both}))
            yield from found
            if not found:
                self.kept.add((*both, side))

    def _choices(self, old: _Choices, new: _Choices, side: Side, where: str, seen: _Seen) -> Iterator[str]:
        """Whatever was taken must still be taken by one of them; whatever may be received must be what one of them was."""
        kept, others = (old, new) if side == "sent" else (new, old)
        for one in kept:
            if side == "sent" and isinstance(one.get("const"), str) and _takes(others, one["const"]):
                continue
            alike = [other for other in others if _kind(other) == _kind(one)]
            if len(alike) == 1:
                yield from self._pair(one, alike[0], side, where, seen)
            elif not any(not list(self._pair(one, other, side, where, seen)) for other in others):
                yield f"{where}: {'no longer takes' if side == 'sent' else 'may now be'} {_told(one)}"

    def _pair(self, kept: Schema, other: Schema, side: Side, where: str, seen: _Seen) -> Iterator[str]:
        old, new = (kept, other) if side == "sent" else (other, kept)
        return self._breaks(old, new, side, where, seen)

    def _plain(self, old: Schema, new: Schema, side: Side, where: str, seen: _Seen) -> Iterator[str]:
        """Of two schemas without alternatives."""
        if not _type_kept(old, new, side):
            yield f"{where}: was {_told(old)}, is {_told(new)}"
            return
        yield from _values(old, new, side, where)
        yield from _limits(old, new, side, where)
        yield from self._properties(old, new, side, where, seen)
        for name in ("items", "additionalProperties"):
            yield from self._inner(name, old, new, side, where, seen)
        known = _SAYS_NOTHING | _COMPARED | {*_CHOICES, *_BOUNDS, *_AS_IT_IS, *_MEANING}
        for name in sorted((old.keys() | new.keys()) - known):
            if not name.startswith("x-") and old.get(name) != new.get(name):
                yield f"{where}: `{name}` changed"

    def _properties(self, old: Schema, new: Schema, side: Side, where: str, seen: _Seen) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        demanded, given = set(old.get("required", ())), set(new.get("required", ()))
        for name in before:
            if name not in after:
                yield f"{where}/{name}: is gone"
            else:
                yield from self._breaks(before[name], after[name], side, f"{where}/{name}", seen)
        for name in sorted(given - demanded if side == "sent" else (demanded - given) & after.keys()):
            yield f"{where}/{name}: {'is required now' if side == 'sent' else 'may be missing now'}"

    def _inner(self, name: str, old: Schema, new: Schema, side: Side, where: str, seen: _Seen) -> Iterator[str]:
        before, after = old.get(name, True), new.get(name, True)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from self._breaks(before, after, side, f"{where}/*", seen)
            return
        narrow, wide = (after, before) if side == "sent" else (before, after)
        if (
            narrow != wide
            and narrow is not True
            and not (side == "received" and name == "additionalProperties" and narrow is False)
        ):
            yield f"{where}: `{name}` changed"


def resolved(document: Schema, schema: Schema) -> Schema:
    """What `schema` refers to in `document`, if it is a reference; words beside the reference are kept."""
    while "$ref" in schema:
        target: Any = document
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        words = {name: value for name, value in schema.items() if name != "$ref"}
        # What says more beside it than words is no longer what the reference stands for.
        schema = {**target, _REF: schema["$ref"] if words.keys() <= _SAYS_NOTHING else "", **words}
    return schema


def _alternatives(document: Schema, schema: Schema) -> Iterator[Schema]:
    """The schema, whole, as one or several of a single type each."""
    schema = resolved(document, schema)
    for name in _CHOICES:
        if name in schema:
            rest = {key: value for key, value in schema.items() if key not in (name, "default", _REF)}
            for choice in schema[name]:
                yield from _alternatives(document, {**rest, **choice})
            return
    kinds = schema.get("type")
    if isinstance(kinds, list):
        yield from ({**schema, "type": kind, _REF: ""} for kind in kinds)
    else:
        yield schema


def _takes(choices: _Choices, text: str) -> bool:
    return any(_kind(one) == "string" and Draft202012Validator(one).is_valid(text) for one in choices)


def _type_kept(old: Schema, new: Schema, side: Side) -> bool:
    narrow, wide = (_kind(old), _kind(new)) if side == "sent" else (_kind(new), _kind(old))
    return narrow == wide or wide is None or (narrow, wide) == ("integer", "number")


def _kind(schema: Schema) -> str | None:
    """The type, that of its values where it does not say; None is any."""
    kinds = {_KINDS.get(type(value)) for value in _enumerated(schema) or ()}
    return schema.get("type") or (kinds.pop() if len(kinds) == 1 else None)


def _values(old: Schema, new: Schema, side: Side, where: str) -> Iterator[str]:
    """Enumerated values: on neither side may one go; a client that sends must not be held to some where it was to none."""
    before, after = _enumerated(old), _enumerated(new)
    if before is None:
        if after is not None and side == "sent":
            yield f"{where}: takes only {_listed(after)} now"
    elif after is not None:
        yield from (f"{where}: the value {value!r} is gone" for value in before if value not in after)


def _enumerated(schema: Schema) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _limits(old: Schema, new: Schema, side: Side, where: str) -> Iterator[str]:
    """Bounds may be loosened for what is sent, and tightened for what is received."""
    loose, tight = (new, old) if side == "sent" else (old, new)
    for names, sign in [*((names, 1) for names in _AT_LEAST), *((names, -1) for names in _AT_MOST)]:
        if _bound(loose, names, sign) > _bound(tight, names, sign):
            yield f"{where}: {_limit(names, old)}, is now {_limit(names, new)}"
    for name in _AS_IT_IS:
        if name in loose and loose[name] not in (tight.get(name), f"{OR_EMPTY}{tight.get(name)}"):
            yield f"{where}: `{name}` was {old.get(name)}, is {new.get(name)}"
    for name in _MEANING:
        if name in old and old[name] != new.get(name):
            yield f"{where}: `{name}` was {old[name]!r}, is {new.get(name)!r}"


def _bound(schema: Schema, names: tuple[str, ...], sign: int) -> tuple[float, int]:
    """How tight it is: the greater, the tighter. The second of two names excludes the bound itself."""
    given = [(sign * schema[name], place) for place, name in enumerate(names) if name in schema]
    whole = [(bound + 1, 0) if place and abs(bound) > EXACT else (bound, place) for bound, place in given]
    return max(whole, default=(float("-inf"), 0))


def _limit(names: tuple[str, ...], schema: Schema) -> str:
    return " and ".join(f"`{name}` {schema[name]}" for name in names if name in schema) or f"no `{names[0]}`"


def _told(schema: Schema) -> str:
    values = _enumerated(schema)
    return _listed(values) if values is not None else _kind(schema) or "anything"


def _listed(values: list[Any]) -> str:
    return ", ".join(map(repr, values))
