"""A mapping: how a PMS that has no adapter of its own is spoken to, as an account of kind `generic` declares it.

Every mistake that can be seen without the PMS is found when it is loaded: pydantic's `ValidationError` says what and where.
docs/guides/map-a-pms.md explains it by examples.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic.alias_generators import to_camel

from forwarder.pms.mapping.format.access import Auth
from forwarder.pms.mapping.format.document import DocumentFault, load_document
from forwarder.pms.mapping.format.evidence import Statement, unfounded
from forwarder.pms.mapping.format.json_path import JsonPath
from forwarder.pms.mapping.format.operations import Cancel, Confirm, Create, Find, Operation
from forwarder.pms.mapping.format.parts import (
    Condition,
    HeaderName,
    HeaderValue,
    Rule,
    Scalar,
    Shown,
    Table,
    Text,
    nonsense,
    regular_expression,
)
from forwarder.pms.port import Capabilities, Limit, Limits
from forwarder.reservation.evidence import KEY_SECONDS
from forwarder.reservation.reference import AS_IT_IS, ReferenceForm

BaseUrl = Annotated[str, Field(pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$")]


OptionText = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f]+$")]


class Option(Table):
    """A setting that each account has of its own."""

    description: Text
    """What it is, and where it is found."""
    default: Scalar | None = None
    """What it is where the account has none."""
    required: bool = False
    """Whether each account must have it."""
    one_of: tuple[Scalar, ...] = ()
    """The values that it may have."""
    pattern: Annotated[str, AfterValidator(regular_expression)] | None = None
    """What its whole text must match."""
    table: bool = False
    """Whether it is a table of texts, from which a value is looked up."""

    def type_of_value(self) -> Any:
        """The type by which an account's value is checked."""
        if self.table:
            return Mapping[OptionText, OptionText]
        if self.one_of:
            return Literal[self.one_of]
        if self.pattern is not None:
            return Annotated[str, Field(pattern=f"^(?:{self.pattern})$")]
        return bool if isinstance(self.default, bool) else OptionText | bool | int | float


OptionName = Annotated[str, Field(pattern=r"^[a-z][A-Za-z0-9]*$")]


def _as_list(given: Any) -> Any:
    return (given,) if isinstance(given, str | dict | Auth) else given


class Allowed(Table):
    """A published limit."""

    requests: Annotated[int, Field(ge=1)]
    """At most so many requests …"""
    seconds: Annotated[float, Field(gt=0)]
    """… within any so many seconds."""


class FromOption(Table):
    """A header's value that each account sets."""

    option: OptionName
    """The name of the option."""


class PmsMapping(Table):
    """The whole."""

    title: Text | None = None
    """The PMS's full name."""
    documentation: Text | None = None
    """Where its API is described."""
    base_url: BaseUrl | None = None
    """Where the PMS is."""
    credential: Text | None = None
    """What the credential is, for those who set an account up."""
    code: Annotated[str, Field(pattern=r"^forwarder(\.\w+)+:\w+$")] | None = None
    """Code of this distribution that adds what a mapping cannot say: a class that extends `MappedAdapter`."""
    rooms: bool = True
    """Whether rooms of a property are told apart; else the property is the room."""
    cards: Literal["all", "none"] | None = None
    """Whether cards are sent; by whether `create` sends a field of the card, if left out."""
    website: bool = False
    """Whether `paymentProviderId` names the website that is booked."""
    options: Mapping[OptionName, Option] = Field(default_factory=dict)
    """What each account sets for itself."""
    limits: tuple[Allowed, ...] = ()
    """What the PMS publishes that one account may ask of it."""
    echo: Literal["always", "sometimes", "never"] = "sometimes"
    """Whether the answer to a create shows our reference: where it always does, one without it is in doubt."""
    settles: Annotated[float, Field(ge=0, le=3600)] | None = None
    """Seconds until a reservation is surely shown after the create that made it, a late commit included; 0 where the PMS shows at
    once what it made. Default: the deployment's."""
    key_seconds: Annotated[float, Field(gt=0)] = KEY_SECONDS
    """How long the PMS keeps idempotency keys."""
    reference_length: Annotated[int, Field(ge=24)] | None = None
    """How many characters of our reference the PMS keeps, where fewer than the 36 that it has."""
    evidence: tuple[Statement, ...] = ()
    """By what each statement of this is known."""
    auth: Annotated[tuple[Auth, ...], BeforeValidator(_as_list)] = (Auth(),)
    """How the credential is shown; of several forms, the first whose `onlyIf` is true of the account."""
    headers: Mapping[HeaderName, HeaderValue | FromOption] = Field(default_factory=dict)
    """What is sent with every request."""
    message: Annotated[tuple[JsonPath, ...], BeforeValidator(_as_list)] = ()
    """Where a refusal says why: a path, or a list of them, of which the first that leads to a text counts."""
    failure: Condition = Condition()
    """What a response must be for a rule of `errors` to apply."""
    errors: tuple[Rule, ...] = ()
    """What responses to any operation mean, where no rule of its own applies: the first rule counts. A refusal of a search puts it
    off; a refusal of a cancellation is `cancellation_refused`."""
    reservation: Shown = Shown()
    """How the PMS shows a reservation."""
    create: Create
    """How one is made."""
    confirm: Confirm | None = None
    """The second request of a create, where one is not enough."""
    find: Find | None = None
    """How one is found again, where it can be."""
    cancel: Cancel | None = None
    """How one is cancelled, where it can be."""

    @model_validator(mode="after")
    def _can_find_what_it_makes(self) -> Self:
        find, shown = self.find, self.reservation
        if find is None:
            return self
        if find.match == "stay":
            if find.pages is None or None in (shown.arrival, shown.departure, shown.email, shown.status):
                raise nonsense(
                    "find: a match by stay goes through `pages`, and needs the arrival, departure, email and status of reservation"
                )
            return self
        if shown.reference is None or shown.status is None:
            raise nonsense(
                "find: needs reservation.reference and reservation.status, to know ours and what became of it"
            )
        if not self.create.carries_reference:
            raise nonsense("find: what is created must carry our `reference`, or it can never be found")
        if self.create.reference_in_notes and find.match != "text":
            raise nonsense("find: a reference that is in the notes is found by `match: text`")
        return self

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        create = self.create.outcomes
        for number, rule in enumerate(self.errors, 1):
            if rule.becomes not in create:
                raise nonsense(f"errors, rule {number}: becomes is one of {', '.join(sorted(create))}")
        if self.errors and not self.failure.reads_the_body:
            raise nonsense("failure: says by `when` or `has` what the PMS's own failures hold, for `errors`")
        conditions = {name for one in self.auth for name in one.only_if}
        if not self.auth or any(bool(one.only_if) != (one is not self.auth[-1]) for one in self.auth):
            raise nonsense("auth: of several forms each but the last has `onlyIf`")
        if self.echo == "always" and self.reservation.reference is None:
            raise nonsense("echo: always needs reservation.reference, to see it by")
        tentative = self.reservation.status is not None and bool(self.reservation.status.tentative)
        if self.confirm is None and tentative:
            raise nonsense("reservation.status.tentative: is for a PMS that `confirm` is asked of")
        read_backs = [one.read_back for one in (self.confirm, self.cancel) if one is not None]
        if any(read_backs) and self.reservation.status is None:
            raise nonsense("readBack: needs reservation.status, to see what it is")
        used = self._sent_options | conditions | ({self.find.only_with} if self.find and self.find.only_with else set())
        if unknown := used - self.options.keys():
            raise nonsense(f"options: there is no {', '.join(sorted(unknown))}; declare what is sent")
        if self.code is None and (idle := self.options.keys() - used):
            raise nonsense(f"options: {', '.join(sorted(idle))} is sent nowhere")
        if faults := unfounded(self.evidence, self.statements):
            raise nonsense(f"evidence: {faults}")
        return self

    @property
    def operations(self) -> Mapping[str, Operation]:
        """Those that there are, by the names of their tables."""
        named = {"create": self.create, "confirm": self.confirm, "find": self.find, "cancel": self.cancel}
        return {name: operation for name, operation in named.items() if operation is not None}

    @property
    def _sent_options(self) -> frozenset[str]:
        shown = [one.read_back for one in (self.confirm, self.cancel) if one is not None and one.read_back is not None]
        first = () if self.create.guest is None else (self.create.guest,)
        sent = {option for operation in (*first, *self.operations.values(), *shown) for option in operation.options}
        return frozenset(sent | {value.option for value in self.headers.values() if isinstance(value, FromOption)})

    @property
    def statements(self) -> tuple[str, ...]:
        """The path of everything that is said here about the PMS."""
        return (*_statements(self),)

    @cached_property
    def experimental(self) -> bool:
        """Whether something of how reservations are made or found is not known."""
        return any(statement.is_unknown and statement.matters for statement in self.evidence)

    def auth_for(self, settings: Mapping[str, Any]) -> Auth:
        """The form for an account with these options."""
        return next(one for one in self.auth if all(settings.get(name) == value for name, value in one.only_if.items()))

    def with_defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """An account's options, with the defaults of those that it does not set."""
        values = {name: option.default for name, option in self.options.items()} | dict(given)
        return {name: value for name, value in values.items() if value is not None}

    def capabilities(self, settings: Mapping[str, Any]) -> Capabilities:
        """What an account with these options, defaults included, can be relied on for."""
        by_stay = self.find is not None and self.find.match == "stay"
        return Capabilities(
            idempotent_create=self.create.key_header is not None,
            find_by_reference=self.find is not None and self.find.is_possible(settings),
            cancel=self.cancel is not None,
            max_per_create=self.create.most_at_once,
            names_reference=self.echo == "always",
            finds_by_stay=by_stay,
            settles=self.settles,
            key_seconds=self.key_seconds,
            reference_form=ReferenceForm(self.reference_length) if self.reference_length else AS_IT_IS,
            proves_absence=self.find is None or self.find.empty_proves,
        )

    @property
    def published_limits(self) -> Limits:
        each = tuple(Limit(one.requests, one.seconds) for one in self.limits)
        more = 0 if self.confirm is None else 1 + (self.confirm.read_back is not None)
        return Limits(each, requests_per_push=self.create.requests + (self.create.guest is not None) + more)


def _statements(mapping: PmsMapping) -> Iterator[str]:
    yield "auth"
    if mapping.limits:
        yield "limits"
    if mapping.errors:
        yield "errors"
    for name in sorted(mapping.reservation.model_fields_set):
        yield f"reservation.{to_camel(name)}"
    for name, operation in mapping.operations.items():
        for part in sorted(operation.model_fields_set | {"path"}):
            value = getattr(operation, part)
            below = f"{name}.{to_camel(part)}"
            if part in ("query", "body"):
                yield from (f"{below}.{theirs}" for theirs in value)
            elif part == "guest":
                yield from (f"{below}.{one}" for one in ("path", "body"))
            elif part == "errors":
                yield from (f"{below}.{position}" for position in range(len(value)))
            elif part not in ("left_out", "reference_in_notes"):
                yield below


def _from_text(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return _loaded(given)
    except DocumentFault as fault:
        raise nonsense("; ".join(fault.faults)) from fault


@lru_cache(maxsize=64)
def _loaded(text: str) -> PmsMapping:
    """Read once: accounts are connected to again and again, and a mapping is frozen."""
    return load_document(text, PmsMapping)


MappingOption = Annotated[PmsMapping, BeforeValidator(_from_text)]
"""A mapping as a table, or as the text of a YAML document."""
