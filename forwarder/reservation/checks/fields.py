"""Parses a body as a request, or an item of a bulk as one, or reports all its faults. Pure.

No fault ever quotes the value at fault: it may be a card number.
"""

import codecs
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache
from itertools import islice
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import from_json

from forwarder.reservation.checks.faults import MalformedJson, field_faults, nearest
from forwarder.reservation.checks.plausibility import Plausibility
from forwarder.reservation.problems.problem import Fault
from forwarder.reservation.request import (
    CURRENCY_DECIMALS,
    INEXACT,
    MAX_BODY_BYTES,
    MAX_DECIMALS,
    MAX_NIGHTS,
    MODELS,
    PRINTABLE,
    BookingEngineRequest,
    GeneralRequest,
    Operation,
    ReservationRequest,
    fields_given,
    whole,
)
from forwarder.reservation.submission import MAX_DEADLINE_SECONDS
from forwarder.reservation.usual import AnyRequest, Usual, decoded, form_decoder, is_usual, read_usual, with_price
from forwarder.reservation.value import max_names

M = TypeVar("M", bound=BaseModel)


class UnknownField(NamedTuple):
    """An unknown name in a request, which is dropped. `place`: JSON Pointer of its object; `known`: that object's fields."""

    place: str
    name: str
    known: Collection[str]


class Reading(NamedTuple):
    """A request, and the unknown fields of its body. `rounded`: whether its price had more decimals than its currency; it was
    rounded half to even."""

    request: AnyRequest
    unknown: Sequence[UnknownField] = ()
    rounded: bool = False


def read_request(operation: Operation, body: bytes, check: Plausibility | None = None) -> Reading | list[Fault]:
    """The request in `body`, or all its faults, each with its JSON Pointer; then including those that `check` finds, which
    alone do not refuse it here. Raises `MalformedJson`."""
    if operation == "booking-engine" and (usual := read_usual(body)) is not None:
        return checked(usual, (), check)
    model = MODELS[operation]
    read_json: Callable[[bytes], ReservationRequest] = model.model_validate_json
    try:
        request = read_exactly(read_json, model.model_validate, body)
    except ValidationError as error:
        return _faults(operation, error, body, check)
    skipped = refuse_hidden(body, fields_given(request))
    unknown = unknown_fields(model, from_json(body)) if skipped else ()
    return checked(request, unknown, check)


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


_BEYOND_ALL_BOUNDS: Final = 2**64


def _exact(text: str) -> int | float:
    """The number in `text`, exact if it is whole and within all bounds; else the nearest float."""
    nearest = float(text)
    if not nearest:  # its exponent may be beyond those of a Decimal
        return 0
    if abs(nearest) >= _BEYOND_ALL_BOUNDS:
        return -_BEYOND_ALL_BOUNDS if nearest < 0 else _BEYOND_ALL_BOUNDS
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


_MAX_UNKNOWN: Final = 20


def unknown_fields(model: type[BaseModel], document: Any, place: str = "") -> Sequence[UnknownField]:
    """The unknown fields in a `document`, which is at `place` and may be wrong in any way; at most `_MAX_UNKNOWN` of them."""
    return tuple(islice(_unknown(model, document, place), _MAX_UNKNOWN)) if isinstance(document, dict) else ()


def _unknown(model: type[BaseModel], document: Mapping[str, Any], place: str) -> Iterator[UnknownField]:
    fields = _fields(model)
    for name, value in document.items():
        if name not in fields:
            yield UnknownField(place, name, fields.keys())
        elif (part := fields[name]) is not None and isinstance(value, dict):
            yield from _unknown(part, value, f"{place}/{name}")


@cache
def _fields(model: type[BaseModel]) -> Mapping[str, type[BaseModel] | None]:
    """The fields of an object by the names that callers know, each with the model of the object that it holds, if it holds one."""
    found: dict[str, type[BaseModel] | None] = {}
    for name, field in model.model_fields.items():
        parts = (field.annotation, *get_args(field.annotation))
        models = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
        found[field.alias or name] = models[0] if models else None
    return found


def checked(request: AnyRequest, unknown: Sequence[UnknownField], check: Plausibility | None) -> Reading | list[Fault]:
    """The reading of a request with valid values; or the faults between its fields, then with those of `check`."""
    faults = _date_faults(request.arrival_date, request.departure_date) + _currency_faults(request.currency)
    if faults:
        return faults + check.faults(request) if check else faults
    price = request.total_price
    decimals = MAX_DECIMALS if request.currency is None else CURRENCY_DECIMALS[request.currency]
    rounded = None if price is None else price.quantize(_SMALLEST[decimals], ROUND_HALF_EVEN)
    if rounded == price or rounded is None:
        return Reading(request, unknown)
    return Reading(with_price(request, rounded), unknown, rounded=True)


def read_object(model: type[M], body: bytes) -> M | list[Fault]:
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
    """Rejects `NaN` and `Infinity` outside of strings: not JSON (RFC 8259, section 6), but accepted by pydantic's reader. Raises
    `MalformedJson`."""
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


def _faults(operation: Operation, error: ValidationError, body: bytes, check: Plausibility | None) -> list[Fault]:
    _refuse_nothing(body)
    return _all_faults(operation, field_faults(error), from_json(body), check)


def _all_faults(
    operation: Operation, by_pointer: Mapping[str, Fault], document: Any, check: Plausibility | None, place: str = ""
) -> list[Fault]:
    """The faults of single values and those between them, of a document that is at `place`."""
    crossed = [replace(each, pointer=place + each.pointer) for each in cross_faults(operation, document, check)]
    faults = hinted(by_pointer, unknown_fields(MODELS[operation], document, place))
    return [*faults, *(fault for fault in crossed if fault.pointer not in by_pointer)]


def hinted(faults: Mapping[str, Fault], unknown: Sequence[UnknownField]) -> list[Fault]:
    """`faults`, with the field that was probably meant where a required one is missing or an unknown one is refused."""
    found = []
    for fault in faults.values():
        detail, (place, _, name) = fault.detail, fault.pointer.rpartition("/")
        there = [each for each in unknown if each.place == place]
        if fault.code == "required" and (sent := [each.name for each in there if nearest(each.name, (name,))]):
            detail = f"is required; you sent {sent[0]}: did you mean {name}?"
        elif fault.code == "unknown_field":
            meant = [field for each in there if each.name == name and (field := nearest(name, each.known))]
            detail = f"{detail}; did you mean {meant[0]}?" if meant else detail
        found.append(replace(fault, detail=detail))
    return found


def _date_faults(arrival: date, departure: date) -> list[Fault]:
    nights = (departure - arrival).days
    if nights < 1:
        return [Fault("/departureDate", "departure_not_after_arrival", "must be at least one day after arrivalDate")]
    if nights > MAX_NIGHTS:
        return [Fault("/departureDate", "stay_too_long", f"must be at most {MAX_NIGHTS} nights after arrivalDate")]
    return []


def _currency_faults(currency: str | None) -> list[Fault]:
    if currency is None or currency in CURRENCY_DECIMALS:
        return []
    return [Fault("/currency", "unknown_currency", "must be an ISO 4217 currency code, such as EUR")]


_SMALLEST: Final = {decimals: Decimal(1).scaleb(-decimals) for decimals in set(CURRENCY_DECIMALS.values())}
"""The smallest amount of a currency with that many decimals."""


def cross_faults(operation: Operation, document: Any, check: Plausibility | None) -> Iterator[Fault]:
    """The rules between fields, and those of `check`, as far as the values of a document that may be wrong allow."""
    if not isinstance(document, dict):
        return
    try:
        arrival = date.fromisoformat(document["arrivalDate"])
        departure = date.fromisoformat(document["departureDate"])
    except (KeyError, TypeError, ValueError):
        pass
    else:
        yield from _date_faults(arrival, departure)
    currency = document.get("currency")
    if isinstance(currency, str) and currency:
        yield from _currency_faults(currency.upper())
    if check:
        yield from check.faults_in(operation, document)


# --- an item of a bulk ---

MAX_ITEMS: Final = 1_000
MAX_BULK_BYTES: Final = 8 * 1024 * 1024
MAX_ITEM_BYTES: Final = MAX_BODY_BYTES + 1024
"""The body limit of a single operation, and a little for the item around it."""

RESERVATION: Final = "/reservation"  # JSON Pointer to an item's reservation


class _Item(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, frozen=True, extra="forbid", validate_by_name=False, validate_by_alias=True
    )

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


def read_item(text: bytes, check: Plausibility | None = None) -> ItemReading | list[Fault]:
    """The item in `text`, or all its faults, each with its JSON Pointer into the item; then including the faults that `check`
    finds. Raises `MalformedJson`."""
    usual = decoded(_USUAL, text)
    if usual is not None and is_usual(usual.reservation, max_names(text) - usual.names):
        return _checked_item(usual, (), check)
    try:
        # Bypasses the adapter's `validate_json`, a mere wrapper.
        item = read_exactly(_ITEM.validator.validate_json, _ITEM.validator.validate_python, text)
    except ValidationError as error:
        return _item_faults(error, text, check)
    skipped = refuse_hidden(text, len(item.model_fields_set) + fields_given(item.reservation))
    unknown = unknown_fields(type(item.reservation), from_json(text)["reservation"]) if skipped else ()
    return _checked_item(item, unknown, check)


def _checked_item(
    item: BulkItem, unknown: Sequence[UnknownField], check: Plausibility | None
) -> ItemReading | list[Fault]:
    read = checked(item.reservation, unknown, check)
    if isinstance(read, list):
        return [replace(fault, pointer=RESERVATION + fault.pointer) for fault in read]
    return ItemReading(item, read)


def _item_faults(error: ValidationError, text: bytes, check: Plausibility | None) -> list[Fault]:
    _refuse_nothing(text)
    match error.errors(include_url=False, include_input=False)[0]["type"]:
        case "union_tag_not_found":
            return [Fault("/operation", "required", "is required")]
        case "union_tag_invalid":
            return [Fault("/operation", "invalid_value", "must be 'booking-engine' or 'general'")]
    by_pointer = field_faults(error, skipped_steps=1)  # the item's operation
    document = from_json(text)
    if not isinstance(document, dict):
        return [*by_pointer.values()]
    return _all_faults(document["operation"], by_pointer, document.get("reservation"), check, RESERVATION)
