"""The format of a mapping, the page that describes a PMS's API, and the evidence for what it says.

Loading finds every mistake that can be found without the PMS: pydantic's `ValidationError` says what and where.
docs/guides/map-a-pms.md explains the format by examples.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.alias_generators import to_camel

from forwarder.pms import sdk
from forwarder.pms.mapping import parts
from forwarder.pms.mapping.access import Auth
from forwarder.pms.mapping.document import DocumentFault, load_document
from forwarder.pms.mapping.operations import Cancel, Confirm, Create, Find, MappedOperation, Show
from forwarder.pms.mapping.values import JsonPath, nearest, nonsense
from forwarder.reservation.booking import AS_IT_IS
from forwarder.reservation.evidence import KEY_SECONDS

# --- evidence ---

By = Literal["sandbox", "vendor", "client", "unknown"]

SOURCES: Final[Mapping[By, str]] = {
    "sandbox": "seen at a sandbox of the vendor",
    "vendor": "the vendor's documents",
    "client": "public client code",
    "unknown": "not known",
}
"""What each source is, the most certain first."""


class Statement(parts.MappingTable):
    """The source of some statements of a mapping."""

    of: Annotated[tuple[str, ...], BeforeValidator(parts.as_list), Field(min_length=1)]
    """Paths into the mapping: create.body.listingId, or create.body for all of its values. The longest match counts."""
    by: By
    """The source."""
    where: str | None = None
    """Where it is found."""
    says: str | None = None
    """What the source says, or what is not known and how the mapping copes with that."""


def source_of(evidence: Sequence[Statement], path: str) -> By | None:
    """The source of that statement. If two matches are equally close, the less certain one counts."""
    known = [(of, statement.by) for statement in evidence for of in statement.of]
    fits = [(len(of), [*SOURCES].index(by), by) for of, by in known if f"{path}.".startswith(f"{of}.")]
    return max(fits)[2] if fits else None


def counted(evidence: Sequence[Statement], statements: Iterable[str]) -> dict[By, int]:
    """How many statements each source supports."""
    found = [source_of(evidence, path) for path in statements]
    return {by: found.count(by) for by in SOURCES if by in found}


def _base_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", text):
        raise nonsense("must be an address without a query, such as https://api.example/v1")
    return text


OptionName = Annotated[str, Field(pattern=r"^[a-z][A-Za-z0-9]*$")]
OptionText = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f]+$")]
HeaderText = Annotated[str, Field(pattern=r"^[\x20-\x7e]*$")]


class Option(parts.MappingTable):
    """A setting of an account."""

    description: parts.Text
    """What it is, and where to find it."""
    default: parts.Scalar | None = None
    """The value of accounts that do not set it."""
    required: bool = False
    """Whether each account must set it."""
    one_of: tuple[parts.Scalar, ...] = ()
    """The permitted values."""
    pattern: Annotated[str, AfterValidator(parts.regular_expression)] | None = None
    """A regular expression for the whole text."""
    table: bool = False
    """Whether it is a table of texts in which values are looked up."""

    def type_of_value(self) -> Any:
        if self.table:
            return Mapping[OptionText, OptionText]
        if self.one_of:
            return Literal[self.one_of]
        if self.pattern is not None:
            return Annotated[str, Field(pattern=f"^(?:{self.pattern})$")]
        return bool if isinstance(self.default, bool) else OptionText | bool | int | float


class Allowed(parts.MappingTable):
    """A published limit."""

    requests: Annotated[int, Field(ge=1)]
    """The most requests …"""
    seconds: Annotated[float, Field(gt=0)]
    """… within that many seconds."""
    per: Literal["account", "address"] = "account"
    """Whose requests are counted: one account's, or those of all accounts, since they come from one address."""


class FromOption(parts.MappingTable):
    """A header whose value is an option of the account."""

    option: OptionName
    """The name of the option."""


class PmsMapping(parts.MappingTable):
    """A mapping."""

    title: parts.Text | None = None
    """The PMS's full name."""
    documentation: parts.Text | None = None
    """Where its API is described."""
    base_url: Annotated[str, AfterValidator(_base_url)] | None = None
    """Where the PMS is."""
    credential: parts.Text | None = None
    """What the credential is, for those who set an account up."""
    code: Annotated[str, Field(pattern=r"^forwarder(\.\w+)+:\w+$")] | None = None
    """A class in this distribution that extends `MappedAdapter` with what the format cannot express."""
    rooms: bool = True
    """Whether properties have rooms; otherwise the property is the room."""
    cards: Literal["all", "none"] | None = None
    """Whether cards are sent; by whether `create` sends a field of the card, if left out."""
    options: Mapping[OptionName, Option] = Field(default_factory=dict)
    """The settings of each account."""
    limits: tuple[Allowed, ...] = ()
    """The rate limits that the PMS publishes for one account."""
    echo: Literal["always", "sometimes", "never"] = "sometimes"
    """Whether the answer to a create shows our reference. With `always`, an answer without it is in doubt."""
    settles: Annotated[float, Field(ge=0, le=3600)] | None = None
    """Seconds after a create until the PMS certainly shows what it made, a late commit included; 0 if it shows it at once. Default:
    the deployment's."""
    key_seconds: Annotated[float, Field(gt=0)] = KEY_SECONDS
    """How long the PMS keeps idempotency keys."""
    reference_length: Annotated[int, Field(ge=24)] | None = None
    """How many characters of our reference the PMS keeps, if fewer than its 36."""
    evidence: tuple[Statement, ...] = ()
    """The sources of what this mapping says."""
    auth: Annotated[tuple[Auth, ...], BeforeValidator(parts.as_list)] = (Auth(),)
    """How requests are authenticated; of several forms, the first whose `onlyIf` is true of the account."""
    headers: Mapping[parts.HeaderName, HeaderText | FromOption] = Field(default_factory=dict)
    """Headers of every request."""
    message: Annotated[tuple[JsonPath, ...], BeforeValidator(parts.as_list)] = ()
    """Where a refusal gives its reason: a path, or a list of paths of which the first that leads to a text counts."""
    failure: parts.Condition = parts.Condition()
    """What a response must look like for `errors` to be considered."""
    errors: tuple[parts.Rule, ...] = ()
    """What responses to any operation mean if none of its own rules matches; the first match counts. A refused search is tried
    again; a refused cancellation is `cancellation_refused`."""
    reservation: parts.Shown = parts.Shown()
    """How the PMS shows a reservation."""
    create: Create
    """How a reservation is made."""
    confirm: Confirm | None = None
    """The second request of a create, if the PMS needs one."""
    find: Find | None = None
    """How a reservation is found again, if the PMS has a way."""
    cancel: Cancel | None = None
    """How a reservation is cancelled, if the PMS has a way."""

    def mistakes(self) -> Iterator[str]:
        outcomes, shown = self.create.outcomes, self.reservation
        yield from () if self.find is None else self._mistakes_in_find(self.find)
        for number, rule in enumerate(self.errors, 1):
            if rule.becomes not in outcomes:
                yield f"errors, rule {number}: becomes is one of {', '.join(sorted(outcomes))}"
        if self.errors and not self.failure.reads_the_body:
            yield "failure: says by `when` or `has` what the PMS's own failures hold, for `errors`"
        if not self.auth or any(bool(one.only_if) != (one is not self.auth[-1]) for one in self.auth):
            yield "auth: of several forms each but the last has `onlyIf`"
        if self.echo == "always" and shown.reference is None:
            yield "echo: always needs reservation.reference, to see it by"
        if self.confirm is None and shown.status is not None and shown.status.tentative:
            yield "reservation.status.tentative: is for a PMS that `confirm` is asked of"
        if self.read_backs and shown.status is None:
            yield "readBack: needs reservation.status, to see what it is"
        yield from self._mistakes_in_options()
        yield from self._mistakes_in_evidence()

    def _mistakes_in_find(self, find: Find) -> Iterator[str]:
        create, shown = self.create, self.reservation
        if find.match == "stay":
            if find.pages is None or None in (shown.arrival, shown.departure, shown.email, shown.status):
                needs = "the arrival, departure, email and status of reservation"
                yield f"find: a match by stay goes through `pages`, and needs {needs}"
            return
        if shown.reference is None or shown.status is None:
            yield "find: needs reservation.reference and reservation.status, to know ours and what became of it"
        if not create.reference_in_notes and "reference" not in create.sent:
            yield "find: what is created must carry our `reference`, or it can never be found"
        if create.reference_in_notes and find.match != "text":
            yield "find: a reference that is in the notes is found by `match: text`"

    def _mistakes_in_options(self) -> Iterator[str]:
        asked = (self.create.guest, *self.operations.values(), *self.read_backs)
        used = {name for one in self.auth for name in one.only_if}
        used = used.union(*(operation.options for operation in asked if operation is not None))
        used |= {value.option for value in self.headers.values() if isinstance(value, FromOption)}
        used |= {self.find.only_with} if self.find is not None and self.find.only_with else set()
        if unknown := used - self.options.keys():
            yield f"options: there is no {', '.join(sorted(unknown))}; declare what is sent"
        if self.code is None and (idle := self.options.keys() - used):
            yield f"options: {', '.join(sorted(idle))} is sent nowhere"

    def _mistakes_in_evidence(self) -> Iterator[str]:
        known = self.statements if self.evidence else ()
        sections = {".".join(path.split(".")[:end]) for path in known for end in range(1, path.count(".") + 2)}
        for path in (path for statement in self.evidence for path in statement.of):
            if path not in sections and not any(path.startswith(f"{leaf}.") for leaf in known):
                yield f"evidence: {path} is nothing that the mapping says{nearest(path, sections)}"
        if missing := [path for path in known if source_of(self.evidence, path) is None]:
            yield f"evidence: nothing says by what {', '.join(missing)} is known"

    @property
    def operations(self) -> Mapping[str, MappedOperation]:
        named = {"create": self.create, "confirm": self.confirm, "find": self.find, "cancel": self.cancel}
        return {name: operation for name, operation in named.items() if operation is not None}

    @property
    def read_backs(self) -> list[Show]:
        """How one reservation is read by its id: after `confirm`, and after `cancel`."""
        return [one.read_back for one in (self.confirm, self.cancel) if one is not None and one.read_back is not None]

    @property
    def statements(self) -> tuple[str, ...]:
        paths = ["auth", *(name for name in ("limits", "errors") if getattr(self, name))]
        paths += [f"reservation.{to_camel(name)}" for name in sorted(self.reservation.model_fields_set)]
        for name, operation in self.operations.items():
            for part in sorted(operation.model_fields_set | {"path"}):
                value, below = getattr(operation, part), f"{name}.{to_camel(part)}"
                if part in ("query", "body"):
                    paths += [f"{below}.{theirs}" for theirs in value]
                elif part == "guest":
                    paths += [f"{below}.path", f"{below}.body"]
                elif part == "errors":
                    paths += [f"{below}.{position}" for position in range(len(value))]
                elif part not in ("left_out", "reference_in_notes"):
                    paths.append(below)
        return tuple(paths)

    @property
    def finds_by_stay(self) -> bool:
        return self.find is not None and self.find.match == "stay"

    @property
    def experimental(self) -> bool:
        """Whether the source of something about creating or finding reservations is unknown."""
        unknown = [path for statement in self.evidence if statement.by == "unknown" for path in statement.of]
        return any(path.split(".")[0] in ("create", "confirm", "find", "reservation") for path in unknown)

    def with_defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """An account's options, with defaults for those that it does not set."""
        values = {name: option.default for name, option in self.options.items()} | dict(given)
        return {name: value for name, value in values.items() if value is not None}

    def capabilities(self, settings: Mapping[str, Any]) -> sdk.Capabilities:
        """What the PMS guarantees to an account with these options (defaults included)."""
        return sdk.Capabilities(
            idempotent_create=self.create.key_header is not None,
            find_by_reference=self.find is not None and self.find.is_possible(settings),
            cancel=self.cancel is not None,
            max_per_create=self.create.most_at_once,
            names_reference=self.echo == "always",
            finds_by_stay=self.finds_by_stay,
            settles=self.settles,
            key_seconds=self.key_seconds,
            reference_form=sdk.ReferenceForm(self.reference_length) if self.reference_length else AS_IT_IS,
            proves_absence=self.find is None or self.find.empty_proves,
        )

    @property
    def published_limits(self) -> sdk.Limits:
        each = tuple(sdk.Limit(one.requests, one.seconds, one.per) for one in self.limits)
        more = 0 if self.confirm is None else 1 + (self.confirm.read_back is not None)
        return sdk.Limits(each, requests_per_push=self.create.requests + (self.create.guest is not None) + more)


@lru_cache(maxsize=64)
def _loaded(text: str) -> PmsMapping:
    """Cached, because accounts connect again and again; a mapping is immutable."""
    try:
        return load_document(text, PmsMapping)
    except DocumentFault as fault:
        raise nonsense("; ".join(fault.faults)) from fault


MappingOption = Annotated[PmsMapping, BeforeValidator(lambda it: _loaded(it) if isinstance(it, str) else it)]
"""A mapping as a table, or as the text of a YAML document."""
