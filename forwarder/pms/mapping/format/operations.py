"""The operations of a mapping: the requests that make, confirm, find, show and cancel a reservation, and what their answers mean.
Checked as they are loaded: pydantic's `ValidationError` says what is wrong, and where."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from forwarder.pms.mapping.format.fields import CARD_FIELDS, FIELDS, PMS_GUEST_ID, PMS_ID, FieldName
from forwarder.pms.mapping.format.json_path import JsonPath, clashes
from forwarder.pms.mapping.format.parts import (
    Condition,
    HeaderName,
    PathTemplate,
    Rule,
    Sources,
    Table,
    Text,
    names_in,
    nonsense,
    options_in,
    placeholders,
    regular_expression,
)
from forwarder.pms.responses.refusals import REFUSALS

DEFERRED: Final = "deferred"
IN_DOUBT: Final = "in_doubt"
ABSENT: Final = "absent"
CANCELLED: Final = "cancelled"
CANCELLATION_REFUSED: Final = "cancellation_refused"
CONFIRMED: Final = "confirmed"
UNAUTHORIZED: Final = "unauthorized"
THROTTLED: Final = "throttled"
FAILED: Final = "failed"
_PUT_OFF: Final = frozenset({DEFERRED, UNAUTHORIZED, THROTTLED})
NOT_REFUSALS: Final = frozenset({*_PUT_OFF, IN_DOUBT, FAILED})
"""What a rule may make of a response that says neither yes nor no: `deferred`, `unauthorized` and `throttled` surely did nothing;
`in_doubt` and `failed` may have."""
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
        sent: frozenset[str] = self.in_the_address | names_in(self.body)
        return sent

    @property
    def options(self) -> frozenset[str]:
        """The options of the account that are sent."""
        sent: frozenset[str] = options_in(self.query) | options_in(self.body)
        return sent

    @property
    def in_the_address(self) -> frozenset[str]:
        sent: frozenset[str] = names_in(self.query) | {name for _, name in placeholders(self.path) if name is not None}
        return sent

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
        if becomes in (IN_DOUBT, FAILED):
            return frozenset(range(200, 600))
        if becomes in _PUT_OFF:
            return frozenset(range(400, 500))
        return frozenset() if becomes in (ABSENT, CANCELLED, CONFIRMED) else _A_NO


class MakeGuest(Operation):
    """Makes the guest, before the reservation that names it by `pmsGuestId`. It may be made in vain, and books nothing."""

    fields = FIELDS - {PMS_ID, PMS_GUEST_ID} - CARD_FIELDS
    outcomes = frozenset({*REFUSALS, *NOT_REFUSALS}) - {CANCELLATION_REFUSED}
    unfit = frozenset({"GET", "DELETE"})

    method: Method = "POST"
    success: Condition = Condition(status=frozenset({200, 201}))
    id: JsonPath = "id"
    """Where in the answer the guest's id is."""


class Create(Operation):
    """Makes a reservation."""

    fields = FIELDS - {PMS_ID}
    outcomes = frozenset({*REFUSALS, *NOT_REFUSALS}) - {CANCELLATION_REFUSED}
    unfit = frozenset({"GET", "DELETE"})

    method: Method = "POST"
    success: Condition = Condition(status=frozenset({200, 201}))
    key_header: HeaderName | None = None
    """The header that takes an idempotency key, by which the PMS makes one reservation, for ever."""
    guest: MakeGuest | None = None
    """The request that makes the guest first, where the PMS wants one."""
    reservation: JsonPath = ""
    """Where in the answer the reservation is shown."""
    id: JsonPath | None = None
    """Where in the answer its id is, if the answer shows no more than that."""
    most_at_once: Annotated[int, Field(ge=1, le=100)] = 1
    """How many reservations one request may ask for; more than one needs `code`."""
    as_list: bool = False
    """Whether the body is a list of one such."""
    left_out: frozenset[FieldName] = frozenset()
    """The fields that are not written into the notes either."""
    requests: Annotated[int, Field(ge=1, le=10)] = 1
    """How many requests a create takes, with those that `code` makes."""
    reference_in_notes: bool = False
    """Whether the first line of the notes says our reference."""

    @property
    def carries_reference(self) -> bool:
        return self.reference_in_notes or _REFERENCE in self.sent

    @model_validator(mode="after")
    def _refers_to_its_own(self) -> Self:
        if (PMS_GUEST_ID in self.sent) != (self.guest is not None):
            raise nonsense("guest: is for a PMS that makes the guest first, and is sent as pmsGuestId")
        if both := self.left_out & self.sent:
            raise nonsense(f"leftOut: {', '.join(sorted(both))} is sent; it cannot be left out, too")
        for theirs, source in self.body.items():
            for other in (source.needs, source.without):
                if other is not None and (other not in self.body or other == theirs):
                    raise nonsense(f"body: {theirs} refers to {other}, which is no other value of `body`")
        if self.reference_in_notes and notes_field(self) is None:
            raise nonsense("referenceInNotes: `body` names no field that takes `notes` or `comments`")
        return self


_NOTES: Final = ("notes", "comments")


def notes_field(create: Create) -> str | None:
    """The PMS's name of what takes notes: the field of the body that takes the caller's notes, or else the comments, as a text."""
    for name in _NOTES:
        for theirs, source in create.body.items():
            if source.field[:1] == (name,) and source.written in (None, "text"):
                return theirs
    return None


class Show(Operation):
    """Looks at one reservation, by the PMS's id. A rule that becomes `absent` counts once a look-up does not find it either."""

    fields = FIELDS - CARD_FIELDS - {PMS_GUEST_ID}
    outcomes = frozenset({CANCELLED, ABSENT, *NOT_REFUSALS})
    unfit = frozenset({"PUT", "PATCH", "DELETE"})

    method: Method = "GET"
    success: Condition = Condition(status=frozenset({200}))
    reservation: JsonPath = ""
    """Where in the answer the reservation is. If that is the first of a list, an empty list says that it is absent."""
    after: Literal["always", "refusal"] = "always"
    """When it is looked at: `refusal`: only where the PMS said no."""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        _names_the_reservation(self)
        return self


class Confirm(Operation):
    """The second request of a create: it confirms what the first has made."""

    fields = FIELDS - CARD_FIELDS - {PMS_GUEST_ID}
    outcomes = frozenset({*REFUSALS, CONFIRMED, *NOT_REFUSALS}) - {CANCELLATION_REFUSED}
    unfit = frozenset({"GET", "DELETE"})

    success: Condition = Condition(status=frozenset({204}))
    read_back: Show | None = None
    """Look at it afterwards: what it then is counts, whatever the answer said."""

    @model_validator(mode="after")
    def _names_what_is_confirmed(self) -> Self:
        _names_the_reservation(self)
        _says_what_was_done(self)
        return self


class Pages(Table):
    """How a list without a filter is gone through: until a page is empty, or it is known that it was the last."""

    by: Literal["page", "offset", "cursor", "lastId"] = "page"
    """What the next request is told: the number of the page, how many were listed before it, what the last answer gave to go
    on from, or the id of the last reservation that was listed."""
    query: Text
    """The parameter that says so."""
    first: Literal[0, 1] = 1
    """The number of the first page."""
    first_unsaid: bool = False
    """Whether the first page is asked for without its number."""
    count: JsonPath | None = None
    """Where in the answer it stands how many pages there are; by offset and last id, how many reservations."""
    more: JsonPath | None = None
    """Where in the answer it stands, as true or false, whether there is another page."""
    next: JsonPath | None = None
    """Where in the answer the cursor is; nothing there after the last page."""
    most: Annotated[int, Field(ge=1, le=100)] = 20
    """After how many a look-up gives up."""

    @model_validator(mode="after")
    def _can_go_on(self) -> Self:
        if (self.next is None) == (self.by == "cursor"):
            raise nonsense("`next` is for cursor, which needs it")
        if (self.count is not None or self.more is not None) and self.by == "cursor":
            raise nonsense("`count` and `more` are for page, offset and lastId")
        return self


class Find(Operation):
    """Looks a reservation up."""

    fields = FIELDS - {PMS_ID, PMS_GUEST_ID} - CARD_FIELDS
    outcomes = frozenset({ABSENT, *NOT_REFUSALS})
    unfit = frozenset({"PUT", "PATCH", "DELETE"})

    method: Method = "GET"
    success: Condition = Condition(status=frozenset({200}))
    items: JsonPath
    """Where in the answer the list of reservations is."""
    empty_proves: bool = True
    """Whether an empty list proves that there is none; false as long as nobody has seen the search find one for sure."""
    counts: tuple[JsonPath, ...] = ()
    """Where in the answer it stands how many were found: with an empty list and another number than 0 nothing is concluded."""
    pages: Pages | None = None
    """How to go through a list that is not asked for by our reference."""
    match: Literal["reference", "text", "stay"] = "reference"
    """By what ours is known: `reservation.reference` is our reference; or is a text that holds it; or property, days and
    guest are the
    same. The last never confirms: it tells only what is not there, and leaves the rest to you."""
    only_with: Text | None = None
    """An option without which an account's reservations cannot be found."""
    only_with_matching: Annotated[str, AfterValidator(regular_expression)] = ""
    """What the value of that option must begin with."""

    def is_possible(self, settings: Mapping[str, Any]) -> bool:
        """Whether an account with these options can look its reservations up."""
        if self.only_with is None:
            return True
        value = settings.get(self.only_with)
        return value is not None and re.match(self.only_with_matching, str(value)) is not None

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

    fields = FIELDS - CARD_FIELDS - {PMS_GUEST_ID}
    outcomes = frozenset({CANCELLED, CANCELLATION_REFUSED, *NOT_REFUSALS})

    success: Condition = Condition(status=frozenset({204}))
    reservation: JsonPath | None = None
    """Where in the answer the reservation is, which must be shown as cancelled if it is shown."""
    read_back: Show | None = None
    """Look at it afterwards: what it then is counts, whatever the answer said."""

    @model_validator(mode="after")
    def _names_what_is_cancelled(self) -> Self:
        _names_the_reservation(self)
        _says_what_was_done(self)
        return self


def _names_the_reservation(operation: Operation) -> None:
    if PMS_ID not in operation.sent:
        what = {Confirm: "a confirmation", Cancel: "a cancellation"}.get(type(operation), "readBack")
        raise nonsense(f"{what} says which reservation: send {PMS_ID}")


def _says_what_was_done(operation: Confirm | Cancel) -> None:
    silent = operation.read_back is None or operation.read_back.after == "refusal"
    if operation.success.status != {204} and not operation.success.reads_the_body and silent:
        raise nonsense(
            "success: of other statuses than 204, `when` says what the PMS's own answer holds; or `readBack` looks at it afterwards"
        )
