"""docs/reference/mapped-kinds.md: the kinds side by side, and by what each statement of those that are mappings is known."""

from collections.abc import Iterator, Sequence
from typing import Final

from forwarder.pms.adapter import AdapterKind
from forwarder.pms.built_in import page_text
from forwarder.pms.mapping.kind import MappedKind
from forwarder.pms.mapping.model import SOURCES, PmsMapping, counted, source_of
from forwarder.pms.mapping.operations import Find
from forwarder.pms.port import Limit
from forwarder.pms.registry import KINDS
from tools.reference.source import HEAD, PACKAGE, table

_ABOUT: Final = """# Kinds that are mappings

Most kinds are a page of YAML in `forwarder/pms/kinds`, which [Map a PMS](../guides/map-a-pms.md) explains; some name a class that
adds what a page cannot say. None of them was tried at its vendor. A kind is *experimental* where something of how reservations
are made or found is not known: what is not known is never guessed, but refused, tried again or left in doubt, as is said below.

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
    """The page."""
    kinds = {name: KINDS[name] for name in sorted(KINDS)}
    rows = [_row(name, kind.mapping) for name, kind in kinds.items() if isinstance(kind, MappedKind)]
    columns = ["kind", "create", "look-up", "cancel", "echo", "paging", "auth", "limits", "known by", "lines of YAML"]
    coded = [_coded(name, kind) for name, kind in kinds.items() if not isinstance(kind, MappedKind)]
    parts = [HEAD + _ABOUT, table(columns, rows), "\nKinds that have code of their own, with its lines:\n\n"]
    parts.append(table(["kind", "after a doubt", "cancel", "echo", "limits", "lines of Python"], coded))
    parts.append(_STANDING)
    for name, kind in kinds.items():
        if isinstance(kind, MappedKind):
            parts.append("\n" + "\n".join(_section(name, kind.mapping)))
    return "".join(parts)


def _coded(name: str, kind: AdapterKind) -> list[str]:
    can = kind.capabilities
    after = "sends the key again" if can.idempotent_create else "looks it up" if can.find_by_reference else "asks you"
    echo = "always" if can.names_reference else "sometimes"
    lines = str(_lines_of_code(_CODE.get(name, name.replace("-", "_"))))
    return [f"`{name}`", after, "yes" if can.cancel else "no", echo, _limits(kind.limits.each), lines]


def _limits(each: Sequence[Limit]) -> str:
    return ", ".join(f"{one.requests} in {one.seconds:g} s" for one in each) or "none published"


def _row(name: str, mapping: PmsMapping) -> list[str]:
    create = f"{mapping.create.method} `{mapping.create.path}`"
    if mapping.confirm is not None:
        create += f", then {mapping.confirm.method} `{mapping.confirm.path}`"
    cancel = "no" if mapping.cancel is None else f"{mapping.cancel.method} `{mapping.cancel.path}`"
    if mapping.cancel is not None and mapping.cancel.read_back is not None:
        cancel += ", looked at afterwards"
    limits = _limits(mapping.published_limits.each)
    by = ", ".join(f"{by} {count}" for by, count in counted(mapping.evidence, mapping.statements).items())
    known = f"{'experimental: ' if mapping.experimental else ''}{by}"
    lines = str(len(page_text(name).splitlines()))
    if mapping.code is not None:
        lines += f", and {len((_KINDS / f'{name}.py').read_text().splitlines())} of Python"
    look_up, paging = _look_up(mapping.find)
    return [f"`{name}`", create, look_up, cancel, mapping.echo, paging, mapping.auth[-1].form, limits, known, lines]


def _look_up(find: Find | None) -> tuple[str, str]:
    if find is None:
        return "no", ""
    return f"`{find.path}`, {_MATCH[find.match]}", "by a filter" if find.pages is None else find.pages.by


def _lines_of_code(module: str) -> int:
    """Of a module, or of all modules of a package."""
    paths = [*_KINDS.glob(f"{module}.py"), *(_KINDS / module).rglob("*.py")]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def _section(name: str, mapping: PmsMapping) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{mapping.title}: {mapping.documentation}. Base URL: `{mapping.base_url}`. Credential: {mapping.credential}.\n"
    if mapping.options:
        options = [
            [f"`{option}`", one.description + (" Required." if one.required else "")]
            for option, one in mapping.options.items()
        ]
        yield table(["option", "is"], options)
    rows = [
        [", ".join(f"`{path}`" for path in statement.of), SOURCES[statement.by], _said(statement.where, statement.says)]
        for statement in mapping.evidence
    ]
    yield table(["statements", "known by", "where, and what"], rows)
    unknown = [path for path in mapping.statements if source_of(mapping.evidence, path) == "unknown"]
    yield "A sandbox would still have to show: " + ", ".join(f"`{path}`" for path in unknown) + ".\n"


def _said(where: str | None, says: str | None) -> str:
    return ". ".join(part for part in (where, says) if part)
