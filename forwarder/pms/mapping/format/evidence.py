"""By what the statements of a mapping are known: the vendor's documents, public client code, a sandbox, or not at all. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from forwarder.pms.mapping.format.parts import Table, nearest

By = Literal["sandbox", "vendor", "client", "unknown"]

SOURCES: Final[Mapping[By, str]] = {
    "sandbox": "seen at a sandbox of the vendor",
    "vendor": "the vendor's documents",
    "client": "public client code",
    "unknown": "not known",
}
"""What each word means, the surest first."""

_MATTERS: Final = ("create", "confirm", "find", "reservation")


class Statement(Table):
    """Some statements of a mapping, and by what they are known."""

    of: Annotated[
        tuple[str, ...],
        BeforeValidator(lambda given: (given,) if isinstance(given, str) else given),
        Field(min_length=1),
    ]
    """Paths into the mapping: create.body.listingId, or create.body for all of them. The longest that fits counts."""
    by: By
    """The source."""
    where: str | None = None
    """Where it is found."""
    says: str | None = None
    """What it says, or what is not known, and what is done because of that."""

    @property
    def is_unknown(self) -> bool:
        return self.by == "unknown"

    @property
    def matters(self) -> bool:
        """Whether it is about how reservations are made or found."""
        return any(path.split(".")[0] in _MATTERS for path in self.of)


def unfounded(evidence: Sequence[Statement], statements: Iterable[str]) -> str:
    """What is wrong with the evidence for these statements; empty where nothing is, or where none is given at all."""
    known = list(statements)
    if not evidence:
        return ""
    sections = {path[:end] for path in known for end in (*_dots(path), len(path))}
    for statement in evidence:
        for path in statement.of:
            if path not in sections and not any(path.startswith(f"{leaf}.") for leaf in known):
                return f"{path} is nothing that the mapping says{nearest(path, sections)}"
    missing = [path for path in known if source_of(evidence, path) is None]
    return f"nothing says by what {', '.join(missing)} is known" if missing else ""


def source_of(evidence: Sequence[Statement], path: str) -> By | None:
    """By what that statement is known. Of two that fit as well, the one that is surer of nothing counts."""
    fits = [
        (len(of), list(SOURCES).index(statement.by), statement.by)
        for statement in evidence
        for of in statement.of
        if path == of or path.startswith(of + ".")
    ]
    return max(fits)[2] if fits else None


def counted(evidence: Sequence[Statement], statements: Iterable[str]) -> dict[By, int]:
    """How many statements each source vouches for."""
    found = [source_of(evidence, path) for path in statements]
    return {by: found.count(by) for by in SOURCES if by in found}


def _dots(path: str) -> list[int]:
    return [position for position, character in enumerate(path) if character == "."]
