"""What the operations of a mapping are made of: where values come from, how answers are told apart. Checked as they are loaded."""

import re
from collections.abc import Mapping
from datetime import date, datetime
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
from forwarder.pms.mapping.fields import DATES, FieldName, Written
from forwarder.pms.mapping.json_path import JsonPath, same, value_at

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
    """Where one value comes from: a field of ours, or a constant."""

    field: Annotated[
        tuple[FieldName, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
    ] = ()
    """A field of ours, or several: the first that the booking has."""
    constant: Scalar | None = None
    """What is sent whatever the booking has."""
    default: Scalar | None = None
    """What is sent where the booking has none of the fields."""
    written: Written | None = Field(None, alias="as")
    """How the value is written; as it came, if left out."""
    date_format: Annotated[str, AfterValidator(_date_format)] | None = None
    """How a date is written, such as %d/%m/%Y."""

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        if bool(self.field) == (self.constant is not None):
            raise nonsense("give one of `field` and `constant`")
        if self.constant is not None and (self.default, self.written, self.date_format) != (None, None, None):
            raise nonsense("a constant is written as it is: without `default`, `as` and `dateFormat`")
        if self.date_format is not None and (self.written is not None or not set(self.field) <= DATES):
            raise nonsense("`dateFormat` is for arrivalDate and departureDate, without `as`")
        return self


Sources = Mapping[
    Text,
    Annotated[Source, BeforeValidator(lambda given: {"field": given} if isinstance(given, str) else given)],
]
"""The PMS's name or path of each value → where the value comes from; a text is the name of a field of ours."""


def names_in(sources: Sources) -> frozenset[str]:
    """The fields of ours that are sent there."""
    return frozenset(name for source in sources.values() for name in source.field)


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


class Auth(Table):
    """How the credential is shown."""

    form: Literal["bearer", "basic", "header", "query"] = "bearer"
    """Where it goes; `basic` takes one of the form user:password."""
    name: HeaderName | None = None
    """The header's or the parameter's name."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        if (self.name is None) == (self.form in ("header", "query")):
            raise nonsense("`name` is for the forms header and query, which need it")
        return self


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

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        words = [word.casefold() for part in (self.confirmed, self.cancelled, self.refused) for word in part]
        if len(words) != len(set(words)):
            raise nonsense("a word stands for one of confirmed, cancelled and refused")
        return self


class Shown(Table):
    """A reservation as the PMS shows it: paths from where it begins."""

    id: JsonPath = "id"
    """The PMS's id."""
    reference: JsonPath | None = None
    """Our reference, as it was sent."""
    status: States | None = None
    """Where it stands."""
    record: Mapping[RecordName, JsonPath] = Field(default_factory=dict)
    """What of it goes into the record."""
