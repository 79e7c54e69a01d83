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
from forwarder.pms.mapping.format.json_path import JsonPath, clashes, same, value_at

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


class Source(Table):
    """Where one value comes from: a field of ours, a constant, an option of the account, or several put together as JSON text."""

    field: Annotated[
        tuple[FieldName, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
    ] = ()
    """A field of ours, or several: the first that the booking has."""
    constant: Scalar | None = None
    """What is sent whatever the booking has."""
    option: Text | None = None
    """An option of the account, as `options` declares it."""
    json_text: "Sources | None" = Field(None, alias="json")
    """Paths and where their values come from: sent as one text of JSON, as some filters want it."""
    default: Scalar | None = None
    """What is sent where the booking has none of the fields, or the account not that option."""
    add_days: Annotated[int, Field(ge=-400, le=400)] = 0
    """How many days after a date, as where a list is asked for around it."""
    written: Written | None = Field(None, alias="as")
    """How the value is written; as it came, if left out."""
    date_format: Annotated[str, AfterValidator(_date_format)] | None = None
    """How a date is written, such as %d/%m/%Y."""

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        given = (bool(self.field), self.constant is not None, self.option is not None, self.json_text is not None)
        if sum(given) != 1:
            raise nonsense("give one of `field` and `constant`, or of `option` and `json`")
        if not self.field and (self.written, self.date_format, self.add_days) != (None, None, 0):
            what = "a constant is" if self.constant is not None else "options and JSON are"
            raise nonsense(f"{what} written as it is: without `as`, `dateFormat` and `addDays`")
        if self.default is not None and not (self.field or self.option):
            raise nonsense("a constant is written as it is: without `default`")
        if (self.date_format is not None or self.add_days) and (
            self.written is not None or not set(self.field) <= DATES
        ):
            raise nonsense("`dateFormat` and `addDays` are for arrivalDate and departureDate, without `as`")
        if self.json_text is not None and (clash := clashes(self.json_text)):
            raise nonsense(f"json: {clash}")
        return self

    @property
    def inner(self) -> "tuple[Source, ...]":
        """Itself and those in its JSON."""
        parts = () if self.json_text is None else tuple(self.json_text.values())
        return (self, *(one for part in parts for one in part.inner))


Sources = Mapping[
    Text,
    Annotated[Source, BeforeValidator(lambda given: {"field": given} if isinstance(given, str) else given)],
]
"""The PMS's name or path of each value → where the value comes from; a text is the name of a field of ours."""


def names_in(sources: Sources) -> frozenset[str]:
    """The fields of ours that are sent there."""
    return frozenset(name for source in sources.values() for one in source.inner for name in one.field)


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


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise nonsense(f"a regular expression that is none: {error}") from error
    return text


Pattern = Annotated[str, Field(min_length=1), AfterValidator(_pattern)]


class Condition(Table):
    """What an answer must be."""

    status: frozenset[Status] = frozenset()
    """Its status is one of these."""
    when: Mapping[JsonPath, Scalar | None] = Field(default_factory=dict)
    """Each path leads to this very value."""

    def says(self, body: Any) -> bool:
        """Whether the body by itself meets the condition. Never where nothing is said about bodies."""
        return bool(self.when) and self._holds(body)

    def passes(self, status: int, body: Any) -> bool:
        return status in self.status and self._holds(body)

    def _holds(self, body: Any) -> bool:
        return all(same(value_at(body, path), expected) for path, expected in self.when.items())


class Rule(Condition):
    """What an answer that meets the condition means."""

    matches: Mapping[JsonPath, Pattern] = Field(default_factory=dict)
    """Each path leads to a text in which this regular expression is found, in any case of letters."""
    becomes: str
    """An outcome, or the code of a refusal."""

    @model_validator(mode="after")
    def _tells_apart(self) -> Self:
        if not (self.status or self.reads_the_body):
            raise nonsense("a rule has a condition: `status`, `when` or `matches`")
        return self

    @property
    def reads_the_body(self) -> bool:
        return bool(self.when or self.matches)

    def applies(self, status: int, body: Any) -> bool:
        return (not self.status or status in self.status) and self._holds(body) and self._matching(body)

    def _matching(self, body: Any) -> bool:
        texts = ((value_at(body, path), pattern) for path, pattern in self.matches.items())
        return all(
            isinstance(text, str) and re.search(pattern, text[:_LONGEST_TEXT], re.IGNORECASE) for text, pattern in texts
        )


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
    reference: JsonPath | None = None
    """Our reference, as it was sent."""
    status: States | None = None
    """Where it stands."""
    property: JsonPath | None = None
    """The property's id. What is shown of this and of the next four, and is another than was asked for, is another's
    reservation."""
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
