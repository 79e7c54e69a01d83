"""Parses a body as a request, or an item of a bulk as one, or reports all its faults: of values, between fields, and of well-formed
requests that make no sense (an arrival long past, more adults and children than guests, an impossible time, a guest of the
booking-engine operation without a name), which are checked when a request arrives, unless its account skips the check. No fault
ever quotes the value at fault: it may be a card number. Pure."""

import codecs
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from types import SimpleNamespace
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel, to_snake
from pydantic_core import from_json

from forwarder.reservation.checks.faults import MalformedJson, UnknownField, field_faults, hinted, unknown_fields
from forwarder.reservation.fast import (
    AnyRequest,
    Usual,
    decoded,
    form_decoder,
    is_usual,
    max_names,
    read_usual,
    with_price,
)
from forwarder.reservation.problems import FieldFault
from forwarder.reservation.request import (
    CURRENCY_DECIMALS,
    INEXACT,
    MAX_BODY_BYTES,
    MAX_DECIMALS,
    MAX_GUESTS,
    MAX_NIGHTS,
    MODELS,
    PRINTABLE,
    BookingEngineRequest,
    GeneralRequest,
    Operation,
    Part,
    ReservationRequest,
    fields_given,
    whole,
)
from forwarder.reservation.submission import MAX_DEADLINE_SECONDS

M = TypeVar("M", bound=BaseModel)


# --- plausibility ---

PAST_ARRIVAL: Final = "past-arrival"
GUEST_COUNTS: Final = "guest-counts"
CLOCK_TIMES: Final = "clock-times"
GUEST_NAME: Final = "guest-name"
CARD_LIKE_IDS: Final = "card-like-ids"
"""For a PMS whose identifiers happen to look like card numbers; checked by `CardTextCheck` of the ingress."""

CHECKS: Final = (PAST_ARRIVAL, GUEST_COUNTS, CLOCK_TIMES, GUEST_NAME, CARD_LIKE_IDS)
"""The names of the checks that an account can skip."""


# A guest who arrives after midnight books for the day before; the last time zone with today's date is 12 hours behind UTC.
_LATEST: Final = timedelta(days=1, hours=12)


class Plausibility(NamedTuple):
    """The checks of one request. `earliest_arrival`: None if any day is accepted. `skipped`: the checks that its account skips."""

    earliest_arrival: date | None
    skipped: Collection[str] = ()

    def faults(self, request: AnyRequest) -> list[FieldFault]:
        return list(self._faults(request, None if isinstance(request, GeneralRequest) else request.guest))

    def faults_in(self, operation: Operation, document: Mapping[str, Any]) -> list[FieldFault]:
        """The faults of a document whose values may be wrong in any way, as far as they can be checked."""
        said = SimpleNamespace(arrival_date=_date(document.get("arrivalDate")))
        for name in ("number_of_guests", "number_of_adults", "number_of_children"):
            number = whole(document.get(to_camel(name)))
            setattr(said, name, number if type(number) is int and 0 <= number <= MAX_GUESTS else None)
        for name in ("arrival_estimated_time", "departure_estimated_time"):
            time = whole(document.get(to_camel(name)))
            setattr(said, name, time if type(time) in {str, int, float} else None)
        names: Any = document.get("guest")
        if not isinstance(names, dict):  # a missing or null guest is refused for that
            names = {"name": names or "?"}
        guest = SimpleNamespace(**{to_snake(name): names.get(name) for name in ("name", "firstName", "lastName")})
        return list(self._faults(said, None if operation == "general" else guest))

    def _faults(self, said: Any, guest: Any) -> Iterator[FieldFault]:
        """`said`: the values; None for one that is missing or of another type. `guest`: None where every name is optional."""
        if self.earliest_arrival and said.arrival_date and said.arrival_date < self.earliest_arrival:
            yield FieldFault("/arrivalDate", "arrival_in_the_past", "must be no earlier than yesterday")
        guests, party = said.number_of_guests, (said.number_of_adults or 0) + (said.number_of_children or 0)
        if guests and party > guests and GUEST_COUNTS not in self.skipped:
            right = "must be at least numberOfAdults and numberOfChildren together"
            yield FieldFault("/numberOfGuests", "fewer_than_adults_and_children", right)
        # A name that is not a text is refused for its type.
        names = () if guest is None else (guest.name, guest.first_name, guest.last_name)
        named = any(each is not None and (not isinstance(each, str) or each.strip()) for each in names)
        if names and not named and GUEST_NAME not in self.skipped:
            right = "must be there and not be empty, unless firstName or lastName is"
            yield FieldFault("/guest/name", "guest_without_name", right)
        if CLOCK_TIMES not in self.skipped:
            for end, time in (("arrival", said.arrival_estimated_time), ("departure", said.departure_estimated_time)):
                if time is not None and not is_possible(time):
                    right = "must be a time that a clock shows, such as 15:30, or words"
                    yield FieldFault(f"/{end}EstimatedTime", "impossible_time", right)


def plausibility(now: datetime, skipped: Collection[str] = ()) -> Plausibility:
    """The checks of a request that arrives at `now`, in UTC."""
    return Plausibility(None if PAST_ARRIVAL in skipped else (now - _LATEST).date(), skipped)


_DAY: Final = 24
_SIXTY: Final = 60
_USUAL_TIME = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")
# Common notations of times. At most nine digits: longer numbers are no times. Blanks are possessive, so that the time is linear.
_CLOCK_TIME = re.compile(
    r"\s*+(\d{1,9})\s*+[:.h]\s*+(\d{1,9})(?:\s*+[:.]\s*+(\d\d)(?:[.,]\d+)?)?\s*+"
    r"(?:([ap])\.?m?\.?)?\s*+h?(?:z|[+-]\d\d:?\d\d)?\s*+",
    re.ASCII | re.IGNORECASE,
)
_HOUR = re.compile(r"\s*(\d{1,9})\s*(?:([ap])\.?m\.?|h)\s*", re.ASCII | re.IGNORECASE)
_DIGITS = re.compile(r"\s*(-?)(\d{1,4})\s*", re.ASCII)


def is_possible(time: str | float) -> bool:
    """Whether a clock shows `time`. Digits alone are an hour (15), or hours and minutes (1530); five or more, and words, pass."""
    if isinstance(time, float):
        return 0 <= time <= _DAY  # a part of an hour: 15.5
    text = str(time)
    if _USUAL_TIME.fullmatch(text):
        return True
    if digits := _DIGITS.fullmatch(text):
        hours, minutes = divmod(int(digits[2]), 100) if len(digits[2]) > len("24") else (int(digits[2]), 0)
        return not digits[1] and _shows(hours, minutes)
    if hour := _HOUR.fullmatch(text):
        return _shows(int(hour[1]), half=hour[2])
    if clock := _CLOCK_TIME.fullmatch(text):
        return _shows(int(clock[1]), int(clock[2]), int(clock[3] or 0), half=clock[4])
    return True


def _shows(hours: int, minutes: int = 0, seconds: int = 0, *, half: str | None = None) -> bool:
    if (hours, minutes, seconds) == (_DAY, 0, 0) and not half:
        return True
    return (2 * hours <= _DAY if half else hours < _DAY) and minutes < _SIXTY and seconds < _SIXTY


# --- a request ---


class Reading(NamedTuple):
    """A request, and the unknown fields of its body. `rounded`: its price had too many decimals, and was rounded half to even."""

    request: AnyRequest
    unknown: Sequence[UnknownField] = ()
    rounded: bool = False


def read_request(operation: Operation, body: bytes, check: Plausibility | None = None) -> Reading | list[FieldFault]:
    """The request in `body`, or all its faults, each with its JSON Pointer; then including those that `check` finds, which
    alone do not refuse it here. Raises `MalformedJson`."""
    if operation == "booking-engine" and (usual := read_usual(body)) is not None:
        return checked(usual, (), check)
    model = MODELS[operation]
    read_json: Callable[[bytes], ReservationRequest] = model.model_validate_json
    try:
        request = read_exactly(read_json, model.model_validate, body)
    except ValidationError as error:
        _refuse_nothing(body)
        return _all_faults(operation, field_faults(error), from_json(body), check)
    skipped = refuse_hidden(body, fields_given(request))
    return checked(request, unknown_fields(model, from_json(body)) if skipped else (), check)


T = TypeVar("T")


def read_exactly(read_json: Callable[[bytes], T], read_parsed: Callable[[Any], T], body: bytes) -> T:
    """The result of `read_json(body)`; or, if a number has more digits than a float keeps, of `read_parsed` with the document's
    whole numbers exact. Raises `MalformedJson`, and pydantic's `ValidationError` for invalid values."""
    try:
        return read_json(body)
    except ValidationError as error:
        refuse_what_is_no_number(body)
        details = error.errors(include_url=False, include_input=False)
        if all(detail["type"] != INEXACT for detail in details):
            raise
    return read_parsed(json.loads(body, parse_float=_exact, parse_int=_exact))


def _exact(text: str) -> int | float:
    """The number in `text`, exact if it is whole and within all bounds; else the nearest float."""
    nearest, beyond_all_bounds = float(text), 2**64
    if not nearest:  # its exponent may be beyond those of a Decimal
        return 0
    if abs(nearest) >= beyond_all_bounds:
        return -beyond_all_bounds if nearest < 0 else beyond_all_bounds
    exact = Decimal(text)
    return int(exact) if exact == exact.to_integral_value() else nearest


def refuse_hidden(body: bytes, given: int) -> bool:
    """Rejects invalid JSON in the parts of a valid `body` that its reader skipped. `given`: how many fields the reader read; if
    there are no more names than that, it skipped nothing. Returns whether it may have skipped any. Raises `MalformedJson`."""
    if max_names(body) == given:
        return False
    refuse_what_is_no_number(body)
    refuse_names_given_twice(body)
    return True


def checked(
    request: AnyRequest, unknown: Sequence[UnknownField], check: Plausibility | None
) -> Reading | list[FieldFault]:
    """The reading of a request with valid values; or the faults between its fields, then with those of `check`."""
    if faults := _faults_between(request.arrival_date, request.departure_date, request.currency):
        return faults + check.faults(request) if check else faults
    price = request.total_price
    decimals = MAX_DECIMALS if request.currency is None else CURRENCY_DECIMALS[request.currency]
    rounded = None if price is None else price.quantize(_SMALLEST[decimals], ROUND_HALF_EVEN)
    if rounded == price or rounded is None:
        return Reading(request, unknown)
    return Reading(with_price(request, rounded), unknown, rounded=True)


def read_object(model: type[M], body: bytes) -> M | list[FieldFault]:
    """`body` as a `model`, or all the faults of its values. Raises `MalformedJson`."""
    refuse_what_is_no_number(body)
    try:
        said = model.model_validate_json(body)
    except ValidationError as error:
        _refuse_nothing(body)
        return hinted(field_faults(error), unknown_fields(model, from_json(body)))
    refuse_names_given_twice(body)
    return said


def _refuse_twice(members: Sequence[tuple[str, Any]]) -> None:
    if len({name for name, _ in members}) < len(members):
        raise MalformedJson("an object has one name twice")


# Values are ignored: numbers of any length are not parsed.
_DECODER = json.JSONDecoder(object_pairs_hook=_refuse_twice, parse_int=bool, parse_float=bool)


def refuse_names_given_twice(body: bytes) -> None:
    """Rejects repeated names in a body that was already parsed, and so has moderate depth. Raises `MalformedJson`."""
    _DECODER.decode(body.decode())


def refuse_what_is_no_number(body: bytes) -> None:
    """Rejects `NaN` and `Infinity` (no JSON by RFC 8259, section 6), which pydantic's reader accepts. Raises `MalformedJson`."""
    if b"NaN" not in body and b"Infinity" not in body:
        return
    try:
        from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise MalformedJson(str(error)) from error


def _refuse_nothing(body: bytes) -> None:
    """Names what a parser only calls unexpected: no document, and a byte order mark before it. Raises `MalformedJson`."""
    if not body.strip():
        raise MalformedJson("it is empty; send one JSON object")
    if body.startswith(codecs.BOM_UTF8):
        raise MalformedJson("it begins with a byte order mark; leave that out")


def _all_faults(
    operation: Operation,
    by_pointer: Mapping[str, FieldFault],
    document: Any,
    check: Plausibility | None,
    place: str = "",
) -> list[FieldFault]:
    """The faults of single values of a document that is at `place`; then those between fields, and those of `check`, as far as
    its values, which may be wrong in any way, allow."""
    crossed = list[FieldFault]()
    if isinstance(document, dict):
        currency = document.get("currency")
        code = currency.upper() if isinstance(currency, str) and currency else None
        crossed += _faults_between(_date(document.get("arrivalDate")), _date(document.get("departureDate")), code)
        crossed += check.faults_in(operation, document) if check else ()
    between = [replace(each, pointer=place + each.pointer) for each in crossed]
    faults = hinted(by_pointer, unknown_fields(MODELS[operation], document, place))
    return [*faults, *(fault for fault in between if fault.pointer not in by_pointer)]


def _faults_between(arrival: date | None, departure: date | None, currency: str | None) -> list[FieldFault]:
    """The faults of a stay and a currency whose values are valid by themselves; None for one that is not, or is missing."""
    found = list[FieldFault]()
    nights = (departure - arrival).days if arrival and departure else 1
    if nights < 1:
        after = "must be at least one day after arrivalDate"
        found.append(FieldFault("/departureDate", "departure_not_after_arrival", after))
    elif nights > MAX_NIGHTS:
        after = f"must be at most {MAX_NIGHTS} nights after arrivalDate"
        found.append(FieldFault("/departureDate", "stay_too_long", after))
    if currency is not None and currency not in CURRENCY_DECIMALS:
        found.append(FieldFault("/currency", "unknown_currency", "must be an ISO 4217 currency code, such as EUR"))
    return found


_SMALLEST: Final = {decimals: Decimal(1).scaleb(-decimals) for decimals in set(CURRENCY_DECIMALS.values())}
"""The smallest amount of a currency with that many decimals."""


def _date(value: object) -> date | None:
    try:
        return date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


# --- an item of a bulk ---

MAX_ITEMS: Final = 1_000
MAX_BULK_BYTES: Final = 8 * 1024 * 1024
MAX_ITEM_BYTES: Final = MAX_BODY_BYTES + 1024
"""The body limit of a single operation, and a little for the item around it."""

RESERVATION: Final = "/reservation"  # JSON Pointer to an item's reservation


class _Item(Part, extra="forbid"):
    idempotency_key: Annotated[str, Field(min_length=1, max_length=255, pattern=PRINTABLE)] | None = None
    deadline_seconds: (
        Annotated[int, Field(strict=True, ge=1, le=MAX_DEADLINE_SECONDS), BeforeValidator(whole)] | None
    ) = None


class BookingEngineItem(_Item):
    """A reservation of the booking-engine operation."""

    operation: Literal["booking-engine"]
    reservation: BookingEngineRequest


class GeneralItem(_Item):
    """A reservation of the general operation."""

    operation: Literal["general"]
    reservation: GeneralRequest


class UsualItem(Usual, frozen=True):
    """As `BookingEngineItem`, of a usual request."""

    @property
    def names(self) -> int:
        """How many names it has in addition to those of its reservation."""
        return 2 + (self.idempotency_key is not None) + (self.deadline_seconds is not None)


BulkItem = BookingEngineItem | GeneralItem | UsualItem

_USUAL: Final = form_decoder(BookingEngineItem, UsualItem)
_ITEM: Final[TypeAdapter[BookingEngineItem | GeneralItem]] = TypeAdapter(
    Annotated[BookingEngineItem | GeneralItem, Field(discriminator="operation")]
)


class ItemReading(NamedTuple):
    """An item, and the reading of its reservation, which replaces `item.reservation`."""

    item: BulkItem
    reading: Reading


def read_item(text: bytes, check: Plausibility | None = None) -> ItemReading | list[FieldFault]:
    """The item in `text`, or all its faults, also those that `check` finds; pointers into the item. Raises `MalformedJson`."""
    item: BulkItem
    unknown: Sequence[UnknownField] = ()
    usual = decoded(_USUAL, text)
    if usual is not None and is_usual(usual.reservation, max_names(text) - usual.names):
        item = usual
    else:
        try:
            # Bypasses the adapter's `validate_json`, a mere wrapper.
            item = read = read_exactly(_ITEM.validator.validate_json, _ITEM.validator.validate_python, text)
        except ValidationError as error:
            return _item_faults(error, text, check)
        skipped = refuse_hidden(text, fields_given(read))
        unknown = unknown_fields(type(read.reservation), from_json(text)["reservation"]) if skipped else ()
    reading = checked(item.reservation, unknown, check)
    if isinstance(reading, list):
        return [replace(fault, pointer=RESERVATION + fault.pointer) for fault in reading]
    return ItemReading(item, reading)


def _item_faults(error: ValidationError, text: bytes, check: Plausibility | None) -> list[FieldFault]:
    _refuse_nothing(text)
    match error.errors(include_url=False, include_input=False)[0]["type"]:
        case "union_tag_not_found":
            return [FieldFault("/operation", "required", "is required")]
        case "union_tag_invalid":
            return [FieldFault("/operation", "invalid_value", "must be 'booking-engine' or 'general'")]
    by_pointer = field_faults(error, skipped_steps=1)  # the item's operation
    document = from_json(text)
    if not isinstance(document, dict):
        return [*by_pointer.values()]
    return _all_faults(document["operation"], by_pointer, document.get("reservation"), check, RESERVATION)
