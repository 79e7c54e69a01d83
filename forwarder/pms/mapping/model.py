"""A mapping: how a PMS that has no adapter of its own is spoken to, as an account of kind `generic` declares it.

Every mistake that can be seen without the PMS is found when it is loaded: pydantic's `ValidationError` says what and where.
docs/guides/map-a-pms.md explains it by examples.
"""

import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from forwarder.pms.mapping.fields import CARD_FIELDS, FIELDS, PMS_ID, FieldName
from forwarder.pms.mapping.json_path import JsonPath, clashes
from forwarder.pms.mapping.parts import (
    Auth,
    Condition,
    HeaderName,
    HeaderValue,
    PathTemplate,
    Rule,
    Shown,
    Sources,
    Table,
    Text,
    names_in,
    nonsense,
    placeholders,
)
from forwarder.pms.port import Capabilities
from forwarder.pms.refusals import REFUSALS

DEFERRED: Final = "deferred"
IN_DOUBT: Final = "in_doubt"
ABSENT: Final = "absent"
CANCELLED: Final = "cancelled"
CANCELLATION_REFUSED: Final = "cancellation_refused"
_REFERENCE: Final = "reference"
_A_NO: Final = frozenset({409, 422})
"""The only statuses that by themselves are a PMS's no: the others may come from any server on the way."""

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Operation(Table):
    """One request, and what its answers mean."""

    fields: ClassVar[frozenset[str]]
    outcomes: ClassVar[frozenset[str]]
    unfit: ClassVar[frozenset[str]] = frozenset()

    method: Method
    """The method of HTTP."""
    path: PathTemplate
    """Where below the base URL; with fields in braces."""
    query: Sources = Field(default_factory=dict)
    """The parameters in the address."""
    body: Sources = Field(default_factory=dict)
    """The PMS's name or path of each value, and where it comes from."""
    encoding: Literal["json", "form"] = "json"
    """How the body is written."""
    success: Condition
    """What an answer must be for the operation to have succeeded."""
    errors: tuple[Rule, ...] = ()
    """What other answers mean: the first rule that applies counts."""

    @property
    def sent(self) -> frozenset[str]:
        """The fields of ours that are sent."""
        return self.in_the_address | names_in(self.body)

    @property
    def in_the_address(self) -> frozenset[str]:
        return names_in(self.query) | {name for _, name in placeholders(self.path) if name is not None}

    @model_validator(mode="after")
    def _can_be_sent(self) -> Self:
        if self.method in self.unfit:
            raise nonsense(f"method: not {self.method} for this operation")
        if unknown := self.in_the_address - FIELDS:
            raise nonsense(f"path: there is no field {', '.join(sorted(unknown))}")
        if exposed := self.in_the_address & CARD_FIELDS:
            raise nonsense(f"{', '.join(sorted(exposed))}: a card may be in a body alone, never in an address")
        if misplaced := self.sent - self.fields:
            raise nonsense(f"{', '.join(sorted(misplaced))} cannot be sent in this operation")
        if self.body and self.method == "GET":
            raise nonsense("a GET has no body; put the values into `query`")
        if self.encoding == "json" and (clash := clashes(self.body)):
            raise nonsense(f"body: {clash}")
        return self

    @model_validator(mode="after")
    def _can_be_told_apart(self) -> Self:
        if not self.success.status or max(self.success.status) >= 300:  # noqa: PLR2004 - HTTP's successes
            raise nonsense("success.status: one or more of 200 to 299")
        for number, rule in enumerate(self.errors, 1):
            if rule.becomes not in self.outcomes:
                raise nonsense(f"errors, rule {number}: becomes is one of {', '.join(sorted(self.outcomes))}")
            if not rule.reads_the_body and not rule.status <= self._told_by_status(rule.becomes):
                raise nonsense(
                    f"errors, rule {number}: such a status may come from any server on the way; say by `when` or `matches` "
                    f"what the PMS's own answer holds"
                )
        return self

    def _told_by_status(self, becomes: str) -> frozenset[int]:
        """The statuses that tell so much without a look at the body."""
        if becomes == IN_DOUBT:
            return frozenset(range(200, 600))
        if becomes == DEFERRED:
            return frozenset(range(400, 500))
        return frozenset() if becomes in (ABSENT, CANCELLED) else _A_NO


class Create(Operation):
    """Makes a reservation."""

    fields = FIELDS - {PMS_ID}
    outcomes = frozenset({*REFUSALS, DEFERRED, IN_DOUBT}) - {CANCELLATION_REFUSED}
    unfit = frozenset({"GET", "DELETE"})

    method: Method = "POST"
    success: Condition = Condition(status=frozenset({200, 201}))
    key_header: HeaderName | None = None
    """The header that takes an idempotency key, by which the PMS makes one reservation, for ever."""
    reservation: JsonPath = ""
    """Where in the answer the reservation is shown."""
    id: JsonPath | None = None
    """Where in the answer its id is, if the answer shows no more than that."""
    left_out: frozenset[FieldName] = frozenset()
    """The fields that are kept out of the notes, too, though the PMS has no field for them."""

    @model_validator(mode="after")
    def _leaves_out_what_is_not_sent(self) -> Self:
        if both := self.left_out & self.sent:
            raise nonsense(f"leftOut: {', '.join(sorted(both))} is sent; it cannot be left out, too")
        return self


class Pages(Table):
    """How a list without a filter is gone through: until a page is empty."""

    query: Text
    """The parameter that counts the pages."""
    first: Literal[0, 1] = 1
    """The number of the first."""
    most: Annotated[int, Field(ge=1, le=100)] = 20
    """After how many a look-up gives up."""


class Find(Operation):
    """Looks a reservation up."""

    fields = FIELDS - {PMS_ID} - CARD_FIELDS
    outcomes = frozenset({ABSENT, DEFERRED, IN_DOUBT})
    unfit = frozenset({"PUT", "PATCH", "DELETE"})

    method: Method = "GET"
    success: Condition = Condition(status=frozenset({200}))
    items: JsonPath
    """Where in the answer the list of reservations is."""
    pages: Pages | None = None
    """How to go through a list that is not asked for by our reference."""

    @model_validator(mode="after")
    def _shows_everything(self) -> Self:
        if (_REFERENCE in self.sent) == (self.pages is not None):
            raise nonsense(
                "a look-up either asks for our `reference`, or goes through the `pages` of a list: one of them, and not both"
            )
        if self.pages is not None and self.pages.query in self.query:
            raise nonsense(f"pages.query: {self.pages.query} is in `query` already")
        return self


class Cancel(Operation):
    """Cancels a reservation."""

    fields = FIELDS - CARD_FIELDS
    outcomes = frozenset({CANCELLED, DEFERRED, IN_DOUBT, CANCELLATION_REFUSED})

    success: Condition = Condition(status=frozenset({204}))

    @model_validator(mode="after")
    def _names_what_is_cancelled(self) -> Self:
        if PMS_ID not in self.sent:
            raise nonsense(f"a cancellation says which reservation: send {PMS_ID}")
        if self.success.status != {204} and not self.success.when:
            raise nonsense("success: of other statuses than 204, `when` says what the PMS's own answer holds")
        return self


class PmsMapping(Table):
    """The whole."""

    auth: Auth = Auth()
    """How the credential is shown."""
    headers: Mapping[HeaderName, HeaderValue] = Field(default_factory=dict)
    """What is sent with every request."""
    message: JsonPath | None = None
    """Where a refusal says why."""
    reservation: Shown = Shown()
    """How the PMS shows a reservation."""
    create: Create
    """How one is made."""
    find: Find | None = None
    """How one is found again, where it can be."""
    cancel: Cancel | None = None
    """How one is cancelled, where it can be."""

    @model_validator(mode="after")
    def _can_find_what_it_makes(self) -> Self:
        if self.find is None:
            return self
        if self.reservation.reference is None or self.reservation.status is None:
            raise nonsense(
                "find: needs reservation.reference and reservation.status, to know ours and what became of it"
            )
        if _REFERENCE not in self.create.sent:
            raise nonsense("find: what is created must carry our `reference`, or it can never be found")
        return self

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            idempotent_create=self.create.key_header is not None,
            find_by_reference=self.find is not None,
            cancel=self.cancel is not None,
        )


def _from_toml(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return tomllib.loads(given)
    except tomllib.TOMLDecodeError as error:
        raise nonsense(f"is not TOML: {error}") from error


MappingOption = Annotated[PmsMapping, BeforeValidator(_from_toml)]
"""A mapping as a table, or as the text of a TOML document."""
