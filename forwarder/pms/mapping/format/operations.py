"""The operations of a mapping: the requests that make, confirm, find, show and cancel a reservation, and what their answers mean.
Checked as they are loaded: pydantic's `ValidationError` says what is wrong, and where."""

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from forwarder.pms.mapping.format.fields import CARD_FIELDS, FIELDS, PMS_ID, FieldName
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
)
from forwarder.pms.responses.refusals import REFUSALS

DEFERRED: Final = "deferred"
IN_DOUBT: Final = "in_doubt"
ABSENT: Final = "absent"
CANCELLED: Final = "cancelled"
CANCELLATION_REFUSED: Final = "cancellation_refused"
CONFIRMED: Final = "confirmed"
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
        if becomes == IN_DOUBT:
            return frozenset(range(200, 600))
        if becomes == DEFERRED:
            return frozenset(range(400, 500))
        return frozenset() if becomes in (ABSENT, CANCELLED, CONFIRMED) else _A_NO


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
    refused: frozenset[FieldName] = frozenset()
    """The fields with which a booking is refused: without them it would be another one."""
    reference_in_notes: bool = False
    """Whether the first line of the notes says our reference."""

    @property
    def carries_reference(self) -> bool:
        return self.reference_in_notes or _REFERENCE in self.sent

    @model_validator(mode="after")
    def _leaves_out_what_is_not_sent(self) -> Self:
        for name, those in (("leftOut", self.left_out), ("refused", self.refused)):
            if both := those & self.sent:
                raise nonsense(f"{name}: {', '.join(sorted(both))} is sent; it cannot be {_WORDS[name]}, too")
        if both := self.refused & self.left_out:
            raise nonsense(f"refused: {', '.join(sorted(both))} is in leftOut already")
        if self.reference_in_notes and notes_field(self) is None:
            raise nonsense("referenceInNotes: `body` names no field that takes `notes` or `comments`")
        return self


_WORDS: Final = {"leftOut": "left out", "refused": "refused"}
_NOTES: Final = ("notes", "comments")


def notes_field(create: Create) -> str | None:
    """The PMS's name of what takes notes: the field of the body that takes the caller's notes, or else the comments, as a text."""
    for name in _NOTES:
        for theirs, source in create.body.items():
            if source.field[:1] == (name,) and source.written in (None, "text"):
                return theirs
    return None


class Show(Operation):
    """Looks at one reservation, by the PMS's id."""

    fields = FIELDS - CARD_FIELDS
    outcomes = frozenset({CANCELLED, DEFERRED, IN_DOUBT})
    unfit = frozenset({"PUT", "PATCH", "DELETE"})

    method: Method = "GET"
    success: Condition = Condition(status=frozenset({200}))
    reservation: JsonPath = ""
    """Where in the answer the reservation is."""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        _names_the_reservation(self)
        return self


class Confirm(Operation):
    """The second request of a create: it confirms what the first has made."""

    fields = FIELDS - CARD_FIELDS
    outcomes = frozenset({*REFUSALS, CONFIRMED, DEFERRED, IN_DOUBT}) - {CANCELLATION_REFUSED}
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

    by: Literal["page", "offset", "cursor", "link"] = "page"
    """What the next request is told: the number of the page, how many were listed before it, what the last answer gave to go
    on from,
    or the address that it gave."""
    query: Text | None = None
    """The parameter that says so; none for a link."""
    first: Literal[0, 1] = 1
    """The number of the first page."""
    count: JsonPath | None = None
    """Where in the answer it stands how many pages there are; by offset, how many reservations."""
    next: JsonPath | None = None
    """Where in the answer the cursor or the link is; nothing there after the last page."""
    most: Annotated[int, Field(ge=1, le=100)] = 20
    """After how many a look-up gives up."""

    @model_validator(mode="after")
    def _can_go_on(self) -> Self:
        if (self.query is None) != (self.by == "link"):
            raise nonsense("`query` is the parameter of page, offset and cursor; a link has none")
        if (self.next is None) == (self.by in ("cursor", "link")):
            raise nonsense("`next` is for cursor and link, which need it")
        if self.count is not None and self.by not in ("page", "offset"):
            raise nonsense("`count` is for page and offset")
        return self


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
    match: Literal["reference", "text", "stay"] = "reference"
    """By what ours is known: `reservation.reference` is our reference; or is a text that holds it; or property, days and
    guest are the
    same. The last never confirms: it tells only what is not there, and leaves the rest to you."""

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
    if operation.success.status != {204} and not operation.success.when and operation.read_back is None:
        raise nonsense(
            "success: of other statuses than 204, `when` says what the PMS's own answer holds; or `readBack` looks at it afterwards"
        )
