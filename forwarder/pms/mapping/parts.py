"""The parts of a mapping's operations: sources of values, conditions and rules for responses, and how a reservation is shown."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime
from string import Formatter
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictInt, StrictStr, model_validator

from forwarder.pms.mapping.values import MISSING, FieldName, JsonPath, Written, nonsense, same, texts_at, value_at
from forwarder.pms.sdk import NoOptions

Scalar = StrictStr | StrictBool | StrictInt | Annotated[float, Field(strict=True)]
Text = Annotated[str, Field(min_length=1, max_length=256)]


def as_list(given: Any) -> Any:
    return (given,) if isinstance(given, str | dict | MappingTable) else given


class MappingTable(NoOptions):
    """A table of a mapping."""

    def mistakes(self) -> Iterator[str]:
        """What its values cannot say together, or what would be right."""
        yield from ()

    @model_validator(mode="after")
    def _has_no_mistakes(self) -> Self:
        for mistake in self.mistakes():
            raise nonsense(mistake)
        return self


def _date_format(form: str) -> str:
    day = date(2031, 12, 25)
    with suppress(ValueError):
        if datetime.strptime(day.strftime(form), form).date() == day:  # noqa: DTZ007 - a day, not a moment
            return form
    raise nonsense("a date format has day, month and year, as in %d/%m/%Y or %Y-%m-%d")


def _from_name(given: Any) -> Any:
    return {"field": given} if isinstance(given, str) else given


class Source(MappingTable):
    """Where a value comes from: a field of ours, several joined, a constant, or an option of the account."""

    field: Annotated[tuple[FieldName, ...], BeforeValidator(as_list)] = ()
    """A field of ours, or several: the first that the booking has."""
    join: tuple[FieldName, ...] = ()
    """Several fields of ours, sent as one text with commas between them."""
    constant: Scalar | tuple[Scalar, ...] | None = None
    """A constant value. A list repeats a parameter of `query`."""
    option: Text | None = None
    """An option of the account, as `options` declares it."""
    of: FieldName | None = None
    """For an option that is a table: the field whose value is looked up in it."""
    otherwise: "Annotated[Source, BeforeValidator(_from_name)] | None" = Field(None, alias="else")
    """The source to use if the above has no value."""
    default: Scalar | None = None
    """The value to send if the booking has none of the fields, or the account does not set the option."""
    least: StrictInt | None = None
    """The smallest number that is sent."""
    needs: Text | None = None
    """Sent only together with this other value of the body."""
    without: Text | None = None
    """Sent only if this other value of the body is not."""
    add_days: Annotated[int, Field(ge=-400, le=400)] = 0
    """Days to add to a date, to search around it."""
    written: Written | None = Field(None, alias="as")
    """How the value is written. Default: unchanged."""
    values: Mapping[Text, Scalar] = Field(default_factory=dict)
    """The PMS's value for each of ours, such as {ES: Spanien, PT: Portugal}, looked up after `as`. Without an entry for it, a value
    goes into the notes, and `else` or `default` is sent."""
    date_format: Annotated[str, AfterValidator(_date_format)] | None = None
    """How a date is written, such as %d/%m/%Y."""
    max_length: Annotated[int, Field(ge=10)] | None = None
    """How many characters the PMS accepts. A longer text is cut, and ends in […]."""
    if_longer: Literal["cut", "notes"] = "cut"
    """`notes`: a longer text goes into the notes instead."""

    def mistakes(self) -> Iterator[str]:
        if sum(map(bool, (self.field, self.join, self.constant is not None, self.option))) != 1:
            yield "give one of `field`, `join`, `constant` and `option`"
        if not self.field and (self.written, self.date_format, self.add_days, self.values) != (None, None, 0, {}):
            yield "`as`, `values`, `dateFormat` and `addDays` are for `field`"
        if self.default is not None and not (self.fields or self.option):
            yield "a constant is written as it is: without `default`"
        is_day = self.date_format is not None or self.add_days
        if is_day and (self.written is not None or not set(self.field) <= {"arrivalDate", "departureDate"}):
            yield "`dateFormat` and `addDays` are for arrivalDate and departureDate, without `as`"
        if self.max_length is not None and not self.fields:
            yield "`maxLength` is for `field` and `join`"
        if self.least is not None and not self.field:
            yield "`least` is for `field`"
        if self.of is not None and self.option is None:
            yield "`of` is for `option`"

    @property
    def inner(self) -> "tuple[Source, ...]":
        return (self, *(() if self.otherwise is None else self.otherwise.inner))

    @property
    def fields(self) -> tuple[FieldName, ...]:
        return (*self.field, *self.join)


Sources = Mapping[Text, Annotated[Source, BeforeValidator(_from_name)]]
"""The PMS's name or path of each value → its source. A text is the name of a field of ours."""


def names_in(sources: Sources) -> frozenset[str]:
    """The fields of ours that are sent there."""
    return frozenset(name for source in sources.values() for one in source.inner for name in one.fields)


def placeholders(template: str) -> list[tuple[str, str | None]]:
    """A path's pieces: literal text, and the name of the field that follows it."""
    return [(text, name) for text, name, _, _ in Formatter().parse(template)]


def path_template(template: str) -> str:
    try:
        pieces = list(Formatter().parse(template))
    except ValueError as error:
        raise nonsense(f"a path has its fields in braces, as in /bookings/{{pmsReservationId}}: {error}") from error
    literal = re.fullmatch(r"[\w/.~!$&'()*+,;=:@%-]*", "".join(text for text, *_ in pieces), re.ASCII)
    if not template.startswith("/") or not literal or {"", ".", ".."} & set(template[1:].split("/")):
        raise nonsense("a path begins with a slash, has no empty segment, and leaves the query to `query`")
    if any(form or conversion for _, _, form, conversion in pieces):
        raise nonsense("a field in a path is its bare name, without : or !")
    return template


def _header_name(name: str) -> str:
    own = {"authorization", "host", "content-length", "content-type", "transfer-encoding", "connection"}
    if not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name, re.ASCII) or name.lower() in own:
        raise nonsense("a header is named by letters, digits and hyphens, and is none that is set already")
    return name


HeaderName = Annotated[str, AfterValidator(_header_name)]


def regular_expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise nonsense(f"not a regular expression: {error}") from error
    return text


class Condition(MappingTable):
    """A condition for responses."""

    status: frozenset[Annotated[int, Field(ge=200, le=599)]] = frozenset()
    """The status is one of these."""
    when: Mapping[JsonPath, Scalar | None] = Field(default_factory=dict)
    """Each path leads to exactly this value."""
    has: tuple[JsonPath, ...] = ()
    """Each path leads to a value other than null."""
    lacks: tuple[JsonPath, ...] = ()
    """Each path leads to null or nowhere."""

    @property
    def reads_the_body(self) -> bool:
        return bool(self.when or self.has)

    def says(self, body: Any) -> bool:
        """Whether there is a condition for bodies, and this body meets it."""
        return self.reads_the_body and self._holds(body)

    def passes(self, status: int, body: Any) -> bool:
        return (not self.status or status in self.status) and self._holds(body)

    def _holds(self, body: Any) -> bool:
        return (
            all(same(value_at(body, path), expected) for path, expected in self.when.items())
            and all(value_at(body, path) not in (MISSING, None) for path in self.has)
            and all(value_at(body, path) in (MISSING, None) for path in self.lacks)
        )


class Rule(Condition):
    """What responses that meet a condition mean."""

    matches: Mapping[JsonPath, Annotated[str, Field(min_length=1), AfterValidator(regular_expression)]] = Field(
        default_factory=dict
    )
    """Each path leads to a text in which this regular expression is found, ignoring case. A * in a path matches every item."""
    message: Annotated[str, AfterValidator(regular_expression)] | None = None
    """This regular expression is found in the reason that the response gives (see `message` of the mapping)."""
    becomes: str
    """An outcome, or the code of a refusal."""

    def mistakes(self) -> Iterator[str]:
        if not (self.status or self.reads_the_body):
            yield "a rule has a condition: `status`, `when`, `has`, `message` or `matches`"

    @property
    def reads_the_body(self) -> bool:
        return bool(self.when or self.has or self.matches or self.message is not None)

    def applies(self, status: int, body: Any, words: str) -> bool:
        return (
            self.passes(status, body)
            and all(_found(pattern, texts_at(body, path)) for path, pattern in self.matches.items())
            and (self.message is None or _found(self.message, [words]))
        )


def _found(pattern: str, texts: Iterable[str]) -> bool:
    return any(re.search(pattern, text[:2_000], re.IGNORECASE) for text in texts)


RecordName = Literal[
    "source", "notes", "paymentUrl", "totalPrice", "currency", "accessCode", "finances.totalPrice", "finances.currency",
    "finances.totalPaid", "finances.remainingBalance", "finances.basePrice", "finances.fee", "finances.tax",
    "finances.discount",
]  # fmt: skip
"""The fields of a record (section 2.5) that can be mapped. A base price, fee, tax or discount is a sum, which becomes one line."""

_STATES: Final = ("confirmed", "tentative", "cancelled")


def _plain(word: str) -> str:
    """`No-Show` and `no_show`, `canceled` and `Cancelled` are the same."""
    return re.sub(r"[\s_-]", "", word.casefold()).replace("cancelled", "canceled")


class States(MappingTable):
    """The PMS's words for the status of a reservation, ignoring case, spaces and hyphens. Any other word decides nothing."""

    path: JsonPath
    """Where the word is."""
    confirmed: Annotated[frozenset[Text], Field(min_length=1)]
    """Confirmed."""
    cancelled: frozenset[Text] = frozenset()
    """Cancelled, or refused by the PMS."""
    tentative: frozenset[Text] = frozenset()
    """Made, and to be confirmed by `confirm`."""
    missing: Literal["confirmed"] | None = None
    """The status of a reservation without a word. Default: unknown, and nothing is concluded from it."""
    cancelled_when: Mapping[JsonPath, Scalar] = Field(default_factory=dict)
    """It is cancelled if one of these paths leads to that value, regardless of the word."""

    def meant_by(self, word: str) -> str:
        """The state that a word means; empty for an unknown word."""
        said = _plain(word)
        return next((state for state in _STATES if said in map(_plain, getattr(self, state))), "")

    def mistakes(self) -> Iterator[str]:
        words = [word for state in _STATES for word in set(map(_plain, getattr(self, state)))]
        if len(words) != len(set(words)):
            yield "a word stands for one of confirmed, cancelled, or tentative"


class Shown(MappingTable):
    """How the PMS shows a reservation: paths into it."""

    id: JsonPath = "id"
    """The PMS's id."""
    ids: Literal["any", "numbers"] = "any"
    """Whether only whole numbers above 0 are ids."""
    reference: JsonPath | None = None
    """Our reference, as it was sent."""
    status: States | None = None
    """The status."""
    property: JsonPath | None = None
    """The property's id. If this or one of the next five shows another value than was sent, it is another's reservation."""
    room: JsonPath | None = None
    """The room's id."""
    arrival: JsonPath | None = None
    """The first day."""
    departure: JsonPath | None = None
    """The last day."""
    date_format: Annotated[str, AfterValidator(_date_format)] | None = None
    """How those two days are shown, such as %d/%m/%Y. Default: as 2027-01-31, with or without a time after it."""
    price: JsonPath | None = None
    """The total price, if it is shown as it was sent."""
    email: JsonPath | None = None
    """The guest's e-mail."""
    amounts: Literal["asTheyAre", "minorUnits"] = "asTheyAre"
    """Whether the price and the amounts of the record are in the currency itself, or in its cents."""
    record: Mapping[RecordName, JsonPath] = Field(default_factory=dict)
    """What goes into the record."""

    def mistakes(self) -> Iterator[str]:
        if self.date_format is not None and self.arrival is None and self.departure is None:
            yield "dateFormat: is for `arrival` and `departure`, and neither is there"

    def may_be(self, value: Any, day: str) -> bool:
        """Whether `value` is that day; a moment with a zone may be of the day before or after, where the property is."""
        seen = self.day(value)
        zone = r"(?i):\d\d(\.\d+)? ?(Z|UTC|GMT|[+-]\d\d(:?\d\d)?)$"
        days = 1 if isinstance(value, str) and re.search(zone, value) else 0
        return seen is not None and abs(date.fromisoformat(seen) - date.fromisoformat(day)).days <= days

    def day(self, value: Any) -> str | None:
        """A day that the PMS shows, as 2027-01-31; None if it is no day in that format."""
        if not isinstance(value, str):
            return None
        try:
            if self.date_format is not None:
                return datetime.strptime(value.strip(), self.date_format).date().isoformat()  # noqa: DTZ007 - a day
            return date.fromisoformat(value[:10]).isoformat()
        except ValueError:
            return None
