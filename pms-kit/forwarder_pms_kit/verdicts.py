"""What a run of the conformance kit at a vendor's sandbox says of a mapping's statements: an evidence block to send back. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from forwarder.pms.mapping.model import SOURCES, PmsMapping, source_of

_TAKEN: Final = "room_unavailable"

SHOWN_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "makes-reservations": (
        "auth",
        "create.path",
        "create.body",
        "create.id",
        "create.reservation",
        "create.success",
        "confirm",
    ),
    "finds-by-reference": ("find", "reservation"),
    "cancels": ("cancel",),
    "refuses-taken-nights": ("create.errors",),
}
"""Check of the kit → the statements that it shows, where it is run against the vendor's own server."""


def after_checks(mapping: PmsMapping, verdicts: Mapping[str, str], where: str) -> Sequence[str]:
    """The lines of the block: confirmed statements as `by: sandbox`, contradicted ones with what they were known by, and
    what is still
    unknown. `verdicts`: of each check, by its name."""
    return [*_lines(mapping, verdicts, where)]


def _lines(mapping: PmsMapping, verdicts: Mapping[str, str], where: str) -> Iterator[str]:
    shown = {path: verdicts.get(check, "") for check, paths in SHOWN_BY.items() for path in _below(mapping, paths)}
    confirmed = [path for path, verdict in shown.items() if verdict == "passed"]
    contradicted = [path for path, verdict in shown.items() if verdict == "failed"]
    yield "evidence:"
    if confirmed:
        yield f"  - of: [{', '.join(confirmed)}]"
        yield "    by: sandbox"
        yield f"    where: {where}"
    for path in contradicted:
        known = source_of(mapping.evidence, path) or "unknown"
        yield f"  # contradicted, or not reached: {path} (so far by {SOURCES[known]})"
    for path in mapping.statements:
        if (
            path not in confirmed
            and path not in contradicted
            and source_of(mapping.evidence, path) in ("unknown", None)
        ):
            yield f"  # still unknown: {path}"


def _below(mapping: PmsMapping, paths: Sequence[str]) -> Iterator[str]:
    """The statements that a check shows. Of rules for errors, only that for taken nights, if there is one alone: which of several
    applied, and whether the others would, no check can tell."""
    taken = [number for number, rule in enumerate(mapping.create.errors) if rule.becomes == _TAKEN]
    for statement in mapping.statements:
        if not any(statement == path or statement.startswith(f"{path}.") for path in paths):
            continue
        if ".errors." not in statement or (len(taken) == 1 and statement == f"create.errors.{taken[0]}"):
            yield statement
