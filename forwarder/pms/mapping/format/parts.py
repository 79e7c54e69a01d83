"""What the operations of a mapping are made of: where values come from, how answers are told apart. Checked as they are loaded."""

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from difflib import get_close_matches
from string import Formatter
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)
from pydantic_core import PydanticCustomError

from forwarder.pms.adapter import NoOptions
from forwarder.pms.mapping.format.fields import DATES, FieldName, Written
from forwarder.pms.mapping.format.json_path import MISSING, JsonPath, clashes, same, texts_at, value_at

Scalar = StrictStr | StrictBool | StrictInt | StrictFloat
Text = Annotated[str, Field(min_length=1, max_length=256)]
Status = Annotated[int, Field(ge=200, le=599)]

_LITERAL = re.compile(r"[\w/.~!$&'()*+,;=:@%-]*", re.ASCII)
_TOKEN = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_OWN_HEADERS: Final = frozenset(
    {"authorization", "host", "content-length", "content-type", "transfer-encoding", "connection"}
)
_SAMPLE = date(2031, 12, 25)
_LONGEST_TEXT: Final = 2_000


def nonsense(message: str) -> PydanticCustomError:
    """What a validator raises: `message` says what is wrong, and what would be right."""
    return PydanticCustomError("nonsense", "{message}", {"message": message})


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint that goes with a name that is none of `known`."""
    among = sorted(known)
    near = get_close_matches(name, among, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(among)}"


class Table(NoOptions):
    """A table of a mapping."""

    model_config = ConfigDict(use_attribute_docstrings=True)


def _date_format(form: str) -> str:
    try:
        whole = date.fromisoformat(_reread(form)) == _SAMPLE
    except ValueError:
        whole = False
    if not whole:
        raise nonsense("a date format has day, month and year, as in %d/%m/%Y or %Y-%m-%d")
    return form


def _reread(form: str) -> str:
    """The sample, written by `form` and read back, in ISO 8601."""
    return datetime.strptime(_SAMPLE.strftime(form), form).date().isoformat()  # noqa: DTZ007 - a day, not a moment


def _from_name(given: Any) -> Any:
    return {"field": given} if isinstance(given, str) else given


class Source(Table):
    """Where one value comes from: a field of ours, several joined, a constant, an option of the account, or several put together as
    JSON text."""

    field: Annotated[
        tuple[FieldName, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
    ] = ()
    """A field of ours, or several: the first that the booking has."""
    join: tuple[FieldName, ...] = ()
    """Several fields of ours, sent as one text."""
    joined_by: str = ", "
    """What is between the joined fields."""
    constant: Scalar | tuple[Scalar, ...] | None = None
    """What is always sent. A list repeats a parameter of `query`."""
    option: Text | None = None
    """An option of the account, as `options` declares it."""
    of: FieldName | None = None
    """For an option that is a table: the field by whose value it is looked up."""
    json_text: "Sources | None" = Field(None, alias="json")
    """Paths and where their values come from: sent as one text of JSON, as some filters want it."""
    otherwise: "Annotated[Source, BeforeValidator(_from_name)] | None" = Field(None, alias="else")
    """Where the value comes from if there is none by the above."""
    default: Scalar | None = None
    """What is sent where the booking has none of the fields, or the account not that option."""
    least: StrictInt | None = None
    """The least number that is sent."""
    needs: Text | None = None
    """Sent only together with this other value of the body."""
    without: Text | None = None
    """Sent only where this other value of the body is not."""
    add_days: Annotated[int, Field(ge=-400, le=400)] = 0
    """How many days after a date, as where a list is asked for around it."""
    written: Written | None = Field(None, alias="as")
    """How the value is written; unchanged, if left out."""
    date_format: Annotated[str, AfterValidator(_date_format)] | None = None
    """How a date is written, such as %d/%m/%Y."""
    max_length: Annotated[int, Field(ge=10)] | None = None
    """How many characters the PMS takes. A longer text is cut, and ends in […]."""
    if_longer: Literal["cut", "notes"] = "cut"
    """`notes`: a longer text is not sent here, but in the notes."""

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        ways = (self.field, self.join, self.constant is not None, self.option, self.json_text is not None)
        if sum(map(bool, ways)) != 1:
            raise nonsense("give one of `field`, `join`, `constant`, `option` and `json`")
        fields = {*self.field, *self.join}
        if not self.field and (self.written, self.date_format, self.add_days) != (None, None, 0):
            raise nonsense("`as`, `dateFormat` and `addDays` are for `field`")
        if self.default is not None and not (fields or self.option):
            raise nonsense("a constant is written as it is: without `default`")
        if (self.date_format is not None or self.add_days) and (
            self.written is not None or not set(self.field) <= DATES
        ):
            raise nonsense("`dateFormat` and `addDays` are for arrivalDate and departureDate, without `as`")
        if self.max_length is not None and not fields:
            raise nonsense("`maxLength` is for `field` and `join`")
        if self.least is not None and not self.field:
            raise nonsense("`least` is for `field`")
        if self.of is not None and self.option is None:
            raise nonsense("`of` is for `option`")
        if self.json_text is not None and (clash := clashes(self.json_text)):
            raise nonsense(f"json: {clash}")
        return self

    @property
    def inner(self) -> "tuple[Source, ...]":
        """Itself, those in its JSON, and the one instead of it."""
        parts = () if self.json_text is None else tuple(self.json_text.values())
        instead = () if self.otherwise is None else self.otherwise.inner
        return (self, *(one for part in parts for one in part.inner), *instead)

    @property
    def fields(self) -> tuple[FieldName, ...]:
        """The fields of ours whose values it may send."""
        return (*self.field, *self.join)


Sources = Mapping[Text, Annotated[Source, BeforeValidator(_from_name)]]
"""The PMS's name or path of each value → where the value comes from; a text is the name of a field of ours."""


def names_in(sources: Sources) -> frozenset[str]:
    """The fields of ours that are sent there."""
    return frozenset(name for source in sources.values() for one in source.inner for name in one.fields)


def options_in(sources: Sources) -> frozenset[str]:
    """The options of the account that are sent there."""
    return frozenset(one.option for source in sources.values() for one in source.inner if one.option is not None)


def placeholders(template: str) -> list[tuple[str, str | None]]:
    """A path's pieces: literal text, and the name of the field that follows it."""
    return [(text, name) for text, name, _, _ in Formatter().parse(template)]


def _path_template(template: str) -> str:
    try:
        pieces = list(Formatter().parse(template))
    except ValueError as error:
        raise nonsense(f"a path has its fields in braces, as in /bookings/{{pmsReservationId}}: {error}") from error
    literal = "".join(text for text, *_ in pieces)
    if (
        not template.startswith("/")
        or not _LITERAL.fullmatch(literal)
        or {"", ".", ".."} & set(template[1:].split("/"))
    ):
        raise nonsense("a path begins with a slash, has no empty segment, and leaves the query to `query`")
    if any(form or conversion for _, _, form, conversion in pieces):
        raise nonsense("a field in a path is its bare name, without : or !")
    return template


PathTemplate = Annotated[str, AfterValidator(_path_template)]


def _header_name(name: str) -> str:
    if not _TOKEN.fullmatch(name) or name.lower() in _OWN_HEADERS:
        raise nonsense("a header is named by letters, digits and hyphens, and is none that is set already")
    return name


HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderValue = Annotated[str, Field(pattern=r"^[\x20-\x7e]*$")]


def regular_expression(text: str) -> str:
    """The text, which is a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise nonsense(f"a regular expression that is none: {error}") from error
    return text


Pattern = Annotated[str, Field(min_length=1), AfterValidator(regular_expression)]


class Condition(Table):
    """What a response must be."""

    status: frozenset[Status] = frozenset()
    """Its status is one of these."""
    when: Mapping[JsonPath, Scalar | None] = Field(default_factory=dict)
    """Each path leads to this very value."""
    has: tuple[JsonPath, ...] = ()
    """Each path leads to something that is not null."""
    lacks: tuple[JsonPath, ...] = ()
    """No path leads to anything but null."""

    @property
    def reads_the_body(self) -> bool:
        return bool(self.when or self.has)

    def says(self, body: Any) -> bool:
        """Whether the body by itself meets the condition. Never where nothing is said about bodies."""
        return self.reads_the_body and self.holds(body)

    def passes(self, status: int, body: Any) -> bool:
        return (not self.status or status in self.status) and self.holds(body)

    def holds(self, body: Any) -> bool:
        return all(same(value_at(body, path), expected) for path, expected in self.when.items()) and all(
            (value_at(body, path) not in (MISSING, None)) is there
            for paths, there in ((self.has, True), (self.lacks, False))
            for path in paths
        )


class Rule(Condition):
    """What a response that meets the condition means."""

    matches: Mapping[JsonPath, Pattern] = Field(default_factory=dict)
    """Each path leads to a text, or with * to several, in which this regular expression is found, in any case of letters."""
    message: Annotated[str, AfterValidator(regular_expression)] | None = None
    """This regular expression is found in the PMS's words, as `message` of the mapping finds them."""
    becomes: str
    """An outcome, or the code of a refusal."""

    @model_validator(mode="after")
    def _tells_apart(self) -> Self:
        if not (self.status or self.reads_the_body):
            raise nonsense("a rule has a condition: `status`, `when`, `has`, `message` or `matches`")
        return self

    @property
    def reads_the_body(self) -> bool:
        return bool(self.when or self.has or self.matches or self.message is not None)

    def applies(self, status: int, body: Any, words: str) -> bool:
        return self.passes(status, body) and self._matching(body) and self._worded(words)

    def _matching(self, body: Any) -> bool:
        return all(_found(pattern, texts_at(body, path)) for path, pattern in self.matches.items())

    def _worded(self, words: str) -> bool:
        return self.message is None or _found(self.message, [words])


def _found(pattern: str, texts: Iterable[str]) -> bool:
    return any(re.search(pattern, text[:_LONGEST_TEXT], re.IGNORECASE) for text in texts)


RecordName = Literal[
    "source",
    "notes",
    "paymentUrl",
    "totalPrice",
    "currency",
    "accessCode",
    "finances.totalPrice",
    "finances.currency",
    "finances.totalPaid",
    "finances.remainingBalance",
    "finances.basePrice",
    "finances.fee",
    "finances.tax",
    "finances.discount",
]
"""What of the record (section 2.5) can be mapped. A base price, fee, tax or discount is a sum, which becomes one line."""


class States(Table):
    """The PMS's words for where a reservation stands, in any case of letters. Any other word decides nothing."""

    path: JsonPath
    """Where the word is."""
    confirmed: Annotated[frozenset[Text], Field(min_length=1)]
    """The words for one that stands."""
    cancelled: frozenset[Text] = frozenset()
    """The words for one that was cancelled."""
    refused: frozenset[Text] = frozenset()
    """The words for one that was never made."""
    tentative: frozenset[Text] = frozenset()
    """The words for one that is made, and not confirmed yet: what `confirm` is for."""
    missing: Literal["confirmed"] | None = None
    """What it is where no word is shown; else nothing is concluded from such a reservation."""
    cancelled_when: Mapping[JsonPath, Scalar] = Field(default_factory=dict)
    """Where one of these paths leads to that value, it is cancelled, whatever the word."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        words = [word.casefold() for part in self._parts for word in part]
        if len(words) != len(set(words)):
            raise nonsense("a word stands for one of confirmed, cancelled and refused, or tentative")
        return self

    @property
    def _parts(self) -> tuple[frozenset[str], ...]:
        return (self.confirmed, self.cancelled, self.refused, self.tentative)


class Shown(Table):
    """A reservation as the PMS shows it: paths from where it begins."""

    id: JsonPath = "id"
    """The PMS's id."""
    ids: Literal["any", "numbers"] = "any"
    """Whether ids are whole numbers above 0 alone: then nothing else is taken for one."""
    reference: JsonPath | None = None
    """Our reference, as it was sent."""
    status: States | None = None
    """Where it stands."""
    property: JsonPath | None = None
    """The property's id. What is shown of this and of the next four, and is another than was asked for, is another's
    reservation."""
    room: JsonPath | None = None
    """The room's id, in the answer to a create."""
    arrival: JsonPath | None = None
    """The first day."""
    departure: JsonPath | None = None
    """The last day."""
    date_format: Annotated[str, AfterValidator(_date_format)] | None = None
    """How those two days are shown, such as %d/%m/%Y; else as 2027-01-31, with or without hours behind it."""
    price: JsonPath | None = None
    """The total price, where it is shown as it was sent."""
    email: JsonPath | None = None
    """The guest's e-mail."""
    amounts: Literal["asTheyAre", "minorUnits"] = "asTheyAre"
    """How the price and the record's amounts are written: in the currency itself, or in its cents."""
    record: Mapping[RecordName, JsonPath] = Field(default_factory=dict)
    """What of it goes into the record."""

    @model_validator(mode="after")
    def _dates_that_are_shown(self) -> Self:
        if self.date_format is not None and self.arrival is None and self.departure is None:
            raise nonsense("dateFormat: is for `arrival` and `departure`, and neither is there")
        return self

    def day(self, value: Any) -> str | None:
        """A day that the PMS shows, as 2027-01-31; None for what is no day in that format."""
        if not isinstance(value, str):
            return None
        try:
            if self.date_format is not None:
                return datetime.strptime(value.strip(), self.date_format).date().isoformat()  # noqa: DTZ007 - a day
            return date.fromisoformat(value[:10]).isoformat()
        except ValueError:
            return None
