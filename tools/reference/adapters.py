"""The pages on kinds of PMS, as their code declares them: what becomes of each field of a request, the kinds side by side, and the
format of a mapping."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from forwarder.pms.accounts import page_text
from forwarder.pms.fields import SPECIFIED, SentAs, becomes
from forwarder.pms.mapping.adapter import MappedKind
from forwarder.pms.mapping.model import SOURCES, PmsMapping, counted, source_of
from forwarder.pms.mapping.operations import MappedOperation
from forwarder.pms.mapping.values import DERIVED, FIELDS
from forwarder.pms.port import Limit
from forwarder.pms.registry import KINDS
from forwarder.pms.sdk import AdapterKind
from tools.reference.source import HEAD, PACKAGE, table

# --- docs/reference/adapter-fields.md ---------------------------------------------------------------------------------------

_FIELDS_ABOUT: Final = """# What becomes of each field

No field of a request is dropped silently. If the PMS has no field for a value, it goes into the notes or comments in plain words,
such as `Infants: 1`. For a field that is not sent at all the table gives the reason, and the answer to a caller who sends it has
an entry in `warnings`.

The tables are those of accounts without options. They are declared with the code of each kind, and a test puts a value into each
field in turn and looks for it in the requests that go out. `forwarder adapters fields KIND --options-file …` shows the table of an
account with options, and what a [mapping](../guides/map-a-pms.md) makes of each field.

"""
_MAX_NAMED: Final = 12


def adapter_fields_page() -> str:
    return HEAD + _FIELDS_ABOUT + "\n".join(part for kind in sorted(KINDS) for part in _fields_of(kind))


def _fields_of(kind: str) -> Iterator[str]:
    declared = KINDS[kind].fields
    yield f"## {kind}\n"
    if declared.notes:
        yield f"Notes and comments in plain words go into `{declared.notes}`.\n"
    same = [name for name in SPECIFIED if declared.fates[name] == SentAs((name,))]
    if len(same) > _MAX_NAMED:
        yield f"{'Every field' if len(same) == len(SPECIFIED) else 'Every other field'} is sent under its own name.\n"
    elif same:
        yield f"Sent under their own names: {', '.join(f'`{name}`' for name in same)}.\n"
    rows = [[f"`{name}`", becomes(declared.fates[name], declared.notes)] for name in SPECIFIED if name not in same]
    if rows:
        yield table(["field", "becomes"], rows)


# --- docs/reference/mapped-kinds.md: the kinds, and how each statement of a mapping is known -------------------------------

_KINDS_ABOUT: Final = """# Kinds that are mappings

Most kinds are a page of YAML in `forwarder/pms/kinds`, which [Map a PMS](../guides/map-a-pms.md) explains; some name a class that
adds what a page cannot say. None of them was tried with its vendor. A kind is *experimental* if something about making or finding
reservations is not known. Unknown cases are never guessed, but refused, tried again or left in doubt, as described below.

With a sandbox you can change that: `forwarder adapters check KIND --base-url … --property …` prints what it shows as an
`evidence` block to send back; `--account ID` does so as an account that is set up.

"""
_STANDING: Final = """
Every kind passes every check of the conformance kit that applies to it, against its simulation
([which do not, and why](adapters.md#the-conformance-kit)). Simulations were written from the facts, not from the mappings; what a
vendor really does, they cannot show.
"""
_KINDS: Final = PACKAGE / "pms" / "kinds"
_CODE: Final = {"website-builder": "generic"}
_MATCH: Final = {
    "reference": "by reference",
    "text": "by reference in a text",
    "stay": "by stay and guest: never confirms",
}


def mapped_kinds_page() -> str:
    kinds = {name: KINDS[name] for name in sorted(KINDS)}
    rows = [_row(name, kind.mapping) for name, kind in kinds.items() if isinstance(kind, MappedKind)]
    columns = ["kind", "create", "look-up", "cancel", "echo", "paging", "auth", "limits", "known by", "lines of YAML"]
    coded = [_coded(name, kind) for name, kind in kinds.items() if not isinstance(kind, MappedKind)]
    parts = [HEAD + _KINDS_ABOUT, table(columns, rows), "\nKinds that have code of their own, with its lines:\n\n"]
    parts.append(table(["kind", "after a doubt", "cancel", "echo", "limits", "lines of Python"], coded))
    parts.append(_STANDING)
    for name, kind in kinds.items():
        if isinstance(kind, MappedKind):
            parts.append("\n" + "\n".join(_kind(name, kind.mapping)))
    return "".join(parts)


def _coded(name: str, kind: AdapterKind) -> list[str]:
    can = kind.capabilities
    after = "sends the key again" if can.idempotent_create else "looks it up" if can.find_by_reference else "asks you"
    echo = "always" if can.names_reference else "sometimes"
    module = _CODE.get(name, name.replace("-", "_"))
    paths = [*_KINDS.glob(f"{module}.py"), *(_KINDS / module).rglob("*.py")]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
    return [f"`{name}`", after, "yes" if can.cancel else "no", echo, _limits(kind.limits.each), str(lines)]


def _limits(each: Sequence[Limit]) -> str:
    return ", ".join(f"{one.requests} in {one.seconds:g} s" for one in each) or "none published"


def _row(name: str, mapping: PmsMapping) -> list[str]:
    create = f"{mapping.create.method} `{mapping.create.path}`"
    if mapping.confirm is not None:
        create += f", then {mapping.confirm.method} `{mapping.confirm.path}`"
    cancel = "no" if mapping.cancel is None else f"{mapping.cancel.method} `{mapping.cancel.path}`"
    if mapping.cancel is not None and mapping.cancel.read_back is not None:
        cancel += ", read afterwards"
    limits = _limits(mapping.published_limits.each)
    by = ", ".join(f"{by} {count}" for by, count in counted(mapping.evidence, mapping.statements).items())
    known = f"{'experimental: ' if mapping.experimental else ''}{by}"
    lines = str(len(page_text(name).splitlines()))
    if mapping.code is not None:
        lines += f", and {len((_KINDS / f'{name}.py').read_text().splitlines())} of Python"
    look_up, paging = "no", ""
    if mapping.find is not None:
        look_up = f"`{mapping.find.path}`, {_MATCH[mapping.find.match]}"
        paging = "by a filter" if mapping.find.pages is None else mapping.find.pages.by
    return [f"`{name}`", create, look_up, cancel, mapping.echo, paging, mapping.auth[-1].form, limits, known, lines]


def _kind(name: str, mapping: PmsMapping) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{mapping.title}: {mapping.documentation}. Base URL: `{mapping.base_url}`. Credential: {mapping.credential}.\n"
    if mapping.options:
        options = [
            [f"`{option}`", one.description + (" Required." if one.required else "")]
            for option, one in mapping.options.items()
        ]
        yield table(["option", "is"], options)
    rows = [
        [
            ", ".join(f"`{path}`" for path in each.of),
            SOURCES[each.by],
            ". ".join(part for part in (each.where, each.says) if part),
        ]
        for each in mapping.evidence
    ]
    yield table(["statements", "known by", "where, and what"], rows)
    unknown = [path for path in mapping.statements if source_of(mapping.evidence, path) == "unknown"]
    yield "Still to be shown in a sandbox: " + ", ".join(f"`{path}`" for path in unknown) + ".\n"


# --- docs/reference/mapping-format.md ---------------------------------------------------------------------------------------

_FORMAT_ABOUT: Final = """# The format of a mapping

A mapping is a YAML document that describes the requests that a PMS takes, and how to read its responses. This page lists every
table and key; [Map a PMS](../guides/map-a-pms.md) explains them by examples. Anything else is refused when the mapping is loaded,
with the line and the nearest correct word.

YAML is read literally: `no`, `on` and dates are texts. Duplicate names, `&` and `*` are mistakes.

"""
_OF_OPERATIONS: Final = {field.alias or name: field.description for name, field in MappedOperation.model_fields.items()}
"""An operation that has a default of its own for a key says no more of it than all operations do."""
_WORDS: Final = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}


def mapping_format_page() -> str:
    schema = PmsMapping.model_json_schema(by_alias=True)
    parts: Mapping[str, Any] = schema["$defs"]
    tables = {"Mapping": schema} | {name: parts[name] for name in _in_order(schema, parts)}
    sections = ["\n".join(_format_table(name, each)) for name, each in tables.items()]
    return HEAD + _FORMAT_ABOUT + "\n".join(sections) + "\n" + _fields()


def _in_order(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> list[str]:
    """The tables, each after the first that refers to it."""
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


def _format_table(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{schema.get('description', '').strip()}\n"
    required = schema.get("required", ())
    rows = []
    for key, value in schema["properties"].items():
        form, default = _type(value), value.get("default")
        if key in required:
            form += ", required"
        elif default not in (None, "") and not isinstance(default, dict | list):
            form += f"; else `{str(default).lower() if isinstance(default, bool) else default}`"
        meaning = " ".join(str(value.get("description") or _OF_OPERATIONS.get(key, "")).split())
        rows.append([f"`{key}`", form, meaning])
    yield table(["key", "is", "meaning"], rows)


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
            f"The names of our fields in `field`, `query` and `body`: {plain}.\n",
            "Derived fields:\n",
            table(["field", "derived from"], derived),
        ]
    )
