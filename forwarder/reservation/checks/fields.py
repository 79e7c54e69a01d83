"""Parses a body as a request, or reports all its faults. Pure.

No fault ever quotes the value at fault: it may be a card number.
"""

import codecs
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from forwarder.reservation.cancellation import CancellationBody
from forwarder.reservation.checks.faults import MalformedJson, field_faults
from forwarder.reservation.checks.plausibility import Plausibility
from forwarder.reservation.json_text import max_names
from forwarder.reservation.problems.problem import Fault
from forwarder.reservation.request import (
    CURRENCY_DECIMALS,
    INEXACT,
    MAX_DECIMALS,
    MAX_NIGHTS,
    MAX_PRICE,
    MODELS,
    Operation,
    ReservationRequest,
    fields_given,
    without_noise,
)
from forwarder.reservation.usual import AnyRequest, read_usual

M = TypeVar("M", bound=BaseModel)


_EMPTY: Final = "it is empty; send one JSON object"


class UnknownField(NamedTuple):
    """An unknown name in a request, which is dropped. `place`: the JSON Pointer of its object; `known`: the fields of such an
    object."""

    place: str
    name: str
    known: Collection[str]


class Reading(NamedTuple):
    """A request, and the unknown fields of its body."""

    request: AnyRequest
    unknown: Sequence[UnknownField] = ()


def read_request(operation: Operation, body: bytes, check: Plausibility | None = None) -> Reading | list[Fault]:
    """The request in `body`, or all its faults, each with its JSON Pointer; then including those that `check` finds, which
    alone do not refuse it here. Raises `MalformedJson`."""
    if operation == "booking-engine" and (usual := read_usual(body)) is not None:
        return between_fields(usual, check) or Reading(usual)
    model = MODELS[operation]
    read_json: Callable[[bytes], ReservationRequest] = model.model_validate_json
    try:
        request = read_exactly(read_json, model.model_validate, body)
    except ValidationError as error:
        return _faults(error, body, check)
    skipped = refuse_hidden(body, fields_given(request))
    unknown = unknown_fields(model, from_json(body)) if skipped else ()
    return between_fields(request, check) or Reading(request, unknown)


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


def unknown_fields(model: type[BaseModel], document: Mapping[str, Any]) -> Sequence[UnknownField]:
    """The unknown fields in a valid `document`, at most `_MAX_UNKNOWN` of them."""
    return tuple(islice(_unknown(model, document, ""), _MAX_UNKNOWN))


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


def between_fields(request: AnyRequest, check: Plausibility | None) -> list[Fault]:
    """The faults between fields of a request with valid values; if there are any, with those of `check`."""
    faults = _date_faults(request.arrival_date, request.departure_date) + _price_faults(
        request.total_price, request.currency
    )
    return faults + check.faults(request) if faults and check else faults


def read_cancellation(body: bytes) -> CancellationBody | list[Fault]:
    """The cancellation in `body`, or its faults. Raises `MalformedJson`."""
    return read_object(CancellationBody, body)


def read_object(model: type[M], body: bytes) -> M | list[Fault]:
    """`body` as a `model`, or all the faults of its values. Raises `MalformedJson`."""
    refuse_what_is_no_number(body)
    try:
        said = model.model_validate_json(body)
    except ValidationError as error:
        _refuse_nothing(body)
        return list(field_faults(error).values())
    refuse_names_given_twice(body)
    return said


def refuse_names_given_twice(body: bytes) -> None:
    """Rejects repeated names in a body that was already parsed. Raises `MalformedJson`."""
    if not names_are_unique(body):
        raise MalformedJson("an object has one name twice")


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
    if not body.strip():
        raise MalformedJson(_EMPTY)


def _faults(error: ValidationError, body: bytes, check: Plausibility | None) -> list[Fault]:
    _refuse_nothing(body)
    if body.startswith(codecs.BOM_UTF8):
        raise MalformedJson("it begins with a byte order mark; leave that out")
    by_pointer = field_faults(error)
    crossed = cross_faults(from_json(body), check)
    return [*by_pointer.values(), *(fault for fault in crossed if fault.pointer not in by_pointer)]


def _date_faults(arrival: date, departure: date) -> list[Fault]:
    nights = (departure - arrival).days
    if nights < 1:
        return [Fault("/departureDate", "departure_not_after_arrival", "must be at least one day after arrivalDate")]
    if nights > MAX_NIGHTS:
        return [Fault("/departureDate", "stay_too_long", f"must be at most {MAX_NIGHTS} nights after arrivalDate")]
    return []


def _price_faults(price: Decimal | None, currency: str | None) -> list[Fault]:
    decimals = MAX_DECIMALS if currency is None else CURRENCY_DECIMALS.get(currency)
    if decimals is None:
        return [Fault("/currency", "unknown_currency", "must be an ISO 4217 currency code, such as EUR")]
    if price is not None and price != price.quantize(_SMALLEST[decimals]):
        right = f"must have at most {decimals} decimals" + (f" in {currency}" if currency else "")
        return [Fault("/totalPrice", "too_many_decimals", right)]
    return []


_SMALLEST: Final = {decimals: Decimal(1).scaleb(-decimals) for decimals in set(CURRENCY_DECIMALS.values())}
"""The smallest amount of a currency with that many decimals."""


def cross_faults(document: Any, check: Plausibility | None) -> Iterator[Fault]:
    """The rules between fields, and those of `check`, for a document that may be wrong in any way: checked as far as its values
    allow."""
    if not isinstance(document, dict):
        return
    try:
        arrival = date.fromisoformat(document["arrivalDate"])
        departure = date.fromisoformat(document["departureDate"])
    except (KeyError, TypeError, ValueError):
        pass
    else:
        yield from _date_faults(arrival, departure)
    price, currency = _decimal(document.get("totalPrice")), document.get("currency") or None
    if currency is None or isinstance(currency, str):
        yield from _price_faults(price, currency and currency.upper())
    if check:
        yield from check.faults_in(document)


def _decimal(price: object) -> Decimal | None:
    if isinstance(price, bool) or not isinstance(price, int | float) or not abs(price) <= MAX_PRICE:
        return None
    return without_noise(Decimal(str(price)))


class _Twice(Exception):
    """An object has one name twice."""


def names_are_unique(document: bytes) -> bool:
    """Whether no object repeats a name. For a document that was parsed before, and so has moderate depth."""
    try:
        _DECODER.decode(document.decode())
    except _Twice:
        return False
    return True


def _refuse_twice(members: Sequence[tuple[str, Any]]) -> None:
    if len({name for name, _ in members}) < len(members):
        raise _Twice


# Values are ignored: numbers of any length are not parsed.
_DECODER = json.JSONDecoder(object_pairs_hook=_refuse_twice, parse_int=bool, parse_float=bool)
