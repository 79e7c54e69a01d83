"""The operations of a mapping: the requests that create, confirm, find, read and cancel, and what their responses mean."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from forwarder.pms import sdk
from forwarder.pms.mapping import parts
from forwarder.pms.mapping.values import CARD_FIELDS, FIELDS, PMS_GUEST_ID, PMS_ID, FieldName, JsonPath, clashes

_PUT_OFF: Final = frozenset({"deferred", "unauthorized", "throttled"})
NOT_REFUSALS: Final = _PUT_OFF | {"in_doubt", "failed"}
"""Outcomes of a rule that are neither success nor refusal. After `deferred`, `unauthorized` and `throttled` nothing was done for
certain; after `in_doubt` and `failed` it may have been."""

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class MappedOperation(parts.MappingTable):
    """A request, and what its responses mean."""

    fields: ClassVar[frozenset[str]]
    outcomes: ClassVar[frozenset[str]]
    unfit: ClassVar[frozenset[str]] = frozenset()
    about_one: ClassVar[str] = ""
    """What an operation about one reservation, which must say which, is called."""

    method: Method
    """The HTTP method."""
    path: Annotated[str, AfterValidator(parts.path_template)]
    """The path below the base URL, with fields in braces."""
    query: parts.Sources = Field(default_factory=dict)
    """The query parameters."""
    body: parts.Sources = Field(default_factory=dict)
    """The PMS's name or path of each value, and its source."""
    encoding: Literal["json", "form"] = "json"
    """The form of the body."""
    success: parts.Condition
    """The responses after which the operation has succeeded."""
    errors: tuple[parts.Rule, ...] = ()
    """What other responses mean; the first match counts."""

    @property
    def sent(self) -> frozenset[str]:
        return self._in_the_address | parts.names_in(self.body)

    @property
    def options(self) -> frozenset[str]:
        sources = (one for values in (self.query, self.body) for source in values.values() for one in source.inner)
        return frozenset(one.option for one in sources if one.option is not None)

    @property
    def _in_the_address(self) -> frozenset[str]:
        return parts.names_in(self.query) | {name for _, name in parts.placeholders(self.path) if name is not None}

    def mistakes(self) -> Iterator[str]:
        if self.method in self.unfit:
            yield f"method: not {self.method} for this operation"
        if unknown := self._in_the_address - FIELDS:
            yield f"path: there is no field {', '.join(sorted(unknown))}"
        if exposed := self._in_the_address & CARD_FIELDS:
            yield f"{', '.join(sorted(exposed))}: a card may be in a body alone, never in an address"
        if misplaced := self.sent - self.fields:
            yield f"{', '.join(sorted(misplaced))} cannot be sent in this operation"
        if self.body and self.method == "GET":
            yield "a GET has no body; put the values into `query`"
        if self.encoding == "json" and (clash := clashes(self.body)):
            yield f"body: {clash}"
        if self.about_one and PMS_ID not in self.sent:
            yield f"{self.about_one} says which reservation: send {PMS_ID}"
        if not self.success.status or max(self.success.status) >= 300:  # noqa: PLR2004 - HTTP's successes
            yield "success.status: one or more of 200 to 299"
        # The statuses that mean it without a look at the body. For a refusal only two: others may come from any server on the way.
        by_status = dict.fromkeys(("absent", "cancelled", "confirmed"), range(0))
        by_status |= dict.fromkeys(NOT_REFUSALS, range(200, 600)) | dict.fromkeys(_PUT_OFF, range(400, 500))
        for number, rule in enumerate(self.errors, 1):
            if rule.becomes not in self.outcomes:
                yield f"errors, rule {number}: becomes is one of {', '.join(sorted(self.outcomes))}"
            if not rule.reads_the_body and not rule.status <= {*by_status.get(rule.becomes, (409, 422))}:
                better = "say by `when` or `matches` what the PMS's own answer holds"
                yield f"errors, rule {number}: such a status may come from any server on the way; {better}"


class _Make(MappedOperation):
    outcomes = frozenset({*sdk.REFUSALS, *NOT_REFUSALS}) - {"cancellation_refused"}
    unfit = frozenset({"GET", "DELETE"})

    method: Method = "POST"
    success: parts.Condition = parts.Condition(status=frozenset({200, 201}))


class MakeGuest(_Make):
    """Creates the guest before the reservation, which refers to it by `pmsGuestId`. It books nothing."""

    fields = FIELDS - {PMS_ID, PMS_GUEST_ID} - CARD_FIELDS

    id: JsonPath = "id"
    """Where the response has the guest's id."""


class Create(_Make):
    """Makes a reservation."""

    fields = FIELDS - {PMS_ID}

    key_header: parts.HeaderName | None = None
    """The header for an idempotency key. The PMS must never make a second reservation with a key, however late it is sent again."""
    guest: MakeGuest | None = None
    """The request that creates the guest first, if the PMS requires one."""
    reservation: JsonPath = ""
    """Where the response shows the reservation."""
    id: JsonPath | None = None
    """Where the response has its id, if it shows nothing else."""
    most_at_once: Annotated[int, Field(ge=1, le=100)] = 1
    """How many reservations one request may create; more than one needs `code`."""
    as_list: bool = False
    """Whether the body is a list with one item."""
    left_out: frozenset[FieldName] = frozenset()
    """The fields that are kept out of the notes, too."""
    requests: Annotated[int, Field(ge=1, le=10)] = 1
    """How many requests a create takes, including those of `code`."""
    reference_in_notes: bool = False
    """Whether the first line of the notes is our reference."""

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if (PMS_GUEST_ID in self.sent) != (self.guest is not None):
            yield "guest: is for a PMS that makes the guest first, and is sent as pmsGuestId"
        if both := self.left_out & self.sent:
            yield f"leftOut: {', '.join(sorted(both))} is sent; it cannot be left out, too"
        for theirs, source in self.body.items():
            for other in (source.needs, source.without):
                if other is not None and (other not in self.body or other == theirs):
                    yield f"body: {theirs} refers to {other}, which is no other value of `body`"
        if self.reference_in_notes and self.notes_field is None:
            yield "referenceInNotes: `body` names no field that takes `notes` or `comments`"

    @property
    def notes_field(self) -> str | None:
        """The PMS's name of the field that takes notes: that of the caller's notes, or else of the comments."""
        first = {name: source.field[:1] for name, source in self.body.items() if source.written in (None, "text")}
        return next((name for ours in ("notes", "comments") for name in first if first[name] == (ours,)), None)


class Show(MappedOperation):
    """Reads one reservation by the PMS's id. After a rule that becomes `absent`, `find` must not find it either."""

    about_one = "readBack"
    fields = FIELDS - CARD_FIELDS - {PMS_GUEST_ID}
    outcomes = frozenset({"cancelled", "absent", *NOT_REFUSALS})
    unfit = frozenset({"PUT", "PATCH", "DELETE"})

    method: Method = "GET"
    success: parts.Condition = parts.Condition(status=frozenset({200}))
    reservation: JsonPath = ""
    """Where the response has the reservation. If that is the first item of a list, an empty list means that it is absent."""
    after: Literal["always", "refusal"] = "always"
    """`refusal`: it is read only after a refusal."""


class _Change(MappedOperation):
    fields = FIELDS - CARD_FIELDS - {PMS_GUEST_ID}

    success: parts.Condition = parts.Condition(status=frozenset({204}))
    read_back: Show | None = None
    """Reads the reservation afterwards. The state that it finds counts, not the response."""

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        silent = self.read_back is None or self.read_back.after == "refusal"
        if self.success.status != {204} and not self.success.reads_the_body and silent:
            said = "of other statuses than 204, `when` says what the PMS's own answer holds"
            yield f"success: {said}; or `readBack` looks at it afterwards"


class Confirm(_Change):
    """The second request of a create, which confirms what the first one made."""

    about_one = "a confirmation"
    outcomes = frozenset({*sdk.REFUSALS, "confirmed", *NOT_REFUSALS}) - {"cancellation_refused"}
    unfit = frozenset({"GET", "DELETE"})


class Pages(parts.MappingTable):
    """How to read a list page by page, until a page is empty or known to be the last."""

    by: Literal["page", "offset", "cursor", "lastId"] = "page"
    """What the next request names: the number of the page, how many reservations were listed before it, the cursor in the last
    response, or the id of the last reservation that was listed."""
    query: parts.Text
    """The query parameter for it."""
    first: Literal[0, 1] = 1
    """The number of the first page."""
    first_unsaid: bool = False
    """Whether the first request leaves its number out."""
    count: JsonPath | None = None
    """Where the response has the number of pages; by offset and last id, the number of reservations."""
    more: JsonPath | None = None
    """Where the response says, as true or false, whether there is another page."""
    next: JsonPath | None = None
    """Where the response has the cursor; there is none after the last page."""
    most: Annotated[int, Field(ge=1, le=100)] = 20
    """The number of pages after which a look-up gives up."""

    def mistakes(self) -> Iterator[str]:
        if (self.next is None) == (self.by == "cursor"):
            yield "`next` is for cursor, which needs it"
        if (self.count is not None or self.more is not None) and self.by == "cursor":
            yield "`count` and `more` are for page, offset and lastId"


class Find(MappedOperation):
    """Looks a reservation up."""

    fields = FIELDS - {PMS_ID, PMS_GUEST_ID} - CARD_FIELDS
    outcomes = frozenset({"absent", *NOT_REFUSALS})
    unfit = frozenset({"PUT", "PATCH", "DELETE"})

    method: Method = "GET"
    success: parts.Condition = parts.Condition(status=frozenset({200}))
    items: JsonPath
    """Where the response has the list of reservations."""
    empty_proves: bool = True
    """Whether an empty list proves that there is none. False until somebody has seen that the search finds every reservation."""
    counts: tuple[JsonPath, ...] = ()
    """Where the response says how many were found: from an empty list with another number than 0 nothing is concluded."""
    pages: Pages | None = None
    """How to read a list that is not filtered by our reference."""
    match: Literal["reference", "text", "stay"] = "reference"
    """How ours is recognised: `reservation.reference` is our reference; or is a text that holds it; or property, days and guest are
    the same. The last never confirms: it only finds out what is not there, and leaves the rest to you."""
    only_with: parts.Text | None = None
    """An option that an account needs for its reservations to be found."""
    only_with_matching: Annotated[str, AfterValidator(parts.regular_expression)] = ""
    """How the value of that option must begin."""

    def is_possible(self, settings: Mapping[str, Any]) -> bool:
        """Whether reservations of an account with these options can be found."""
        value = settings.get(self.only_with or "")
        return self.only_with is None or bool(value is not None and re.match(self.only_with_matching, str(value)))

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if ("reference" in self.sent) == (self.pages is not None):
            yield "a look-up either asks for our `reference`, or goes through the `pages` of a list: one of them, and not both"
        if self.pages is not None and self.pages.query in self.query:
            yield f"pages.query: {self.pages.query} is in `query` already"


class Cancel(_Change):
    """Cancels a reservation."""

    about_one = "a cancellation"
    outcomes = frozenset({"cancelled", "cancellation_refused", *NOT_REFUSALS})

    reservation: JsonPath | None = None
    """Where the response has the reservation, which must be cancelled if it is shown."""
