"""The check that holds an adapter's table of fields against the requests it makes: nothing is dropped in silence.

A value that cannot be mistaken is put into each field in turn, once in a booking that says little and once in one that says all.
The requests are recorded as in a dry run; nobody is asked.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic_core import from_json

from forwarder.pms.accounts import traits_of
from forwarder.pms.fields import SPECIFIED, FieldTable, InNotes, LeftOut, Refused, SentAs, line_of, words_for
from forwarder.pms.http.client import Request
from forwarder.pms.port import AccountConnection
from forwarder.pms.rehearsal import CREDENTIAL, WITHHELD, dry_run
from forwarder.pms.sdk import Adapter
from forwarder.process.clock import SystemClock
from forwarder.reservation.booking import Booking, booking_of
from forwarder.reservation.request import CardDetails
from forwarder_pms_kit.conformance.trial import Findings, Trial, check

_CARD: Final = "cardDetails."
_POSITION: Final = re.compile(r"\[\d+\]|\.\d+(?=\.|$)")
_MIN_TELLING: Final = 5
"""A shorter text may stand in another by chance."""

_INFANTS: Final = 11
_COUNT: Final = 27
"""Like no other number of a booking, and no default of a mapping."""
_STAY: Final = {"propertyId": "5001", "arrivalDate": "2029-08-18", "departureDate": "2029-08-21"}
_LITTLE: Final[Mapping[str, Any]] = {
    **_STAY,
    "totalPrice": 380,
    "currency": "EUR",
    "guest.name": "Quentin Zoller",
    "paymentProviderId": "provider-x",
}
_ALL: Final[Mapping[str, Any]] = {
    **_LITTLE,
    "roomId": "5002",
    "arrivalEstimatedTime": "17:00",
    "departureEstimatedTime": "09:00",
    "numberOfGuests": 40,
    "numberOfAdults": 20,
    "numberOfChildren": 9,
    "numberOfInfants": _INFANTS,
    "numberOfPets": 3,
    "notes": "Feather allergy",
    "comments": "Anniversary",
    "morChannel": "SELF",
    "guest.firstName": "Quentin",
    "guest.lastName": "Zoller",
    "guest.email": "quentin@example.net",
    "guest.phone": "+41 44 000",
    "guest.address.line1": "Hafenweg",
    "guest.address.line2": "Hinterhaus",
    "guest.address.postalCode": "CH-8000",
    "guest.address.city": "Zuerich",
    "guest.address.state": "Kanton",
    "guest.address.country": "CH",
    "paymentProviderKey": "tok_zzz",
    "transactionId": "txn_zzz",
    "promotionCode": "WINTER",
    **{
        _CARD + name: value
        for name, value in {
            "cardNumber": "5555555555554444",
            "cardHolderName": "Quentin Zoller-Amman",
            "expiryMonth": "11",
            "expiryYear": "2098",
            "cvv": "7731",
        }.items()
    },
}


@dataclass(frozen=True, slots=True)
class _Marker:
    """A value, and the forms in which it may be written."""

    value: Any
    forms: tuple[str, ...] = ()

    @property
    def spellings(self) -> tuple[str, ...]:
        return (str(self.value), *self.forms)


def _spelt(year: str, month: str, day: str) -> tuple[str, ...]:
    """A date as PMSs write them: with the day, the month or the year first."""
    orders = ((day, month, year), (month, day, year), (year, month, day))
    return tuple(between.join(order) for order in orders for between in ("/", ".", "-", " ", ""))


_MARKERS: Final[Mapping[str, Sequence[_Marker]]] = {
    "propertyId": [_Marker("730031")],
    "roomId": [_Marker("730032")],
    "arrivalDate": [_Marker("2029-08-17", _spelt("2029", "08", "17"))],
    "departureDate": [_Marker("2029-08-23", _spelt("2029", "08", "23"))],
    "arrivalEstimatedTime": [_Marker("22:00", ("22:00:00", "22")), _Marker("22:45", ("22:45:00",)), _Marker("at dusk")],
    "departureEstimatedTime": [_Marker("06:00", ("06:00:00", "6")), _Marker("at dawn")],
    **{f"numberOf{who}": [_Marker(_COUNT)] for who in ("Guests", "Adults", "Infants", "Pets")},
    "numberOfChildren": [_Marker(_COUNT, (str(_COUNT + _INFANTS),))],
    "morChannel": [_Marker("SELF"), _Marker("PMS")],
    "status": [_Marker("CONFIRMED")],
    "guest.name": [_Marker("Marker Fullname", ("Marker", "Fullname"))],
    "guest.email": [_Marker("marker@example.org")],
    "guest.address.country": [_Marker("PT"), _Marker("Atlantis")],
    "totalPrice": [_Marker(1234.56, ("123456",))],
    "currency": [_Marker("SEK")],
    "cardDetails.cardNumber": [_Marker("4111 1111 1111 1111", ("4111111111111111",))],
    "cardDetails.expiryMonth": [_Marker("07")],
    "cardDetails.expiryYear": [_Marker("2031")],
    "cardDetails.cvv": [_Marker("8264")],
}


@check
async def sends_what_it_declares(trial: Trial) -> Findings:
    """Of each field of a request becomes what the adapter's table says: sent under the PMS's names, put into the notes in plain
    words, or neither."""
    connection = AccountConnection(
        "conformance", trial.kind, trial.proxy.url, CREDENTIAL, options=trial.options, grants=WITHHELD
    )
    async for finding in unlike_its_table(trial.adapter(connection, SystemClock()), trial.kind):
        yield finding


async def unlike_its_table(adapter: Adapter, kind: str) -> Findings:
    """What of the requests of `adapter` is unlike its table, a sentence each. Nobody is asked anything."""
    for name in adapter.fields.missing:
        yield f"{name}: the table says nothing of it"
    for name in SPECIFIED:
        if name in adapter.fields.fates:
            for base in (_LITTLE, _ALL):
                for marker in _MARKERS.get(name, (_Marker(f"marker-{name.rpartition('.')[2]}"),)):
                    async for finding in _tried(adapter, kind, name, marker, base):
                        yield finding


async def _tried(adapter: Adapter, kind: str, name: str, marker: _Marker, base: Mapping[str, Any]) -> Findings:
    given = {other: value for other, value in base.items() if not _is_refused(adapter.fields, other)}
    given[name] = marker.value
    fate = adapter.fields.fates[name]
    condition = fate.only_if if isinstance(fate, SentAs) else None
    if condition is not None:
        given[condition[0]] = condition[1]
    places = await _places(adapter, _booking(kind, given), name, marker)
    # The PMS's names of the room, where it is the property for want of one.
    room = adapter.fields.fates.get("roomId")
    twins = room.names if "roomId" not in given and isinstance(room, SentAs) else ()
    finding = _unlike(adapter.fields, name, places, twins)
    if finding is None and condition is not None:
        elsewhere = _booking(kind, {**given, condition[0]: "SELF" if condition[1] == "PMS" else None})
        places = await _places(adapter, elsewhere, name, marker)
        finding = f"is sent as {_listed(places)} without {condition[0]} {condition[1]}" if places else None
    if finding is not None:
        yield f"{name} ({marker.value!r}, in a booking that says {'all' if base is _ALL else 'little'}): {finding}"


def _is_refused(table: FieldTable, name: str) -> bool:
    """Whether a booking with it, or with one that is unlike the property, is refused: then nothing else of it is sent either."""
    fate = table.fates.get(name)
    return isinstance(fate.otherwise if isinstance(fate, SentAs) and name == "roomId" else fate, Refused)


def _unlike(table: FieldTable, name: str, places: Sequence[str], twins: tuple[str, ...]) -> str | None:
    """How what was seen of a field is unlike what `table` says; None where it is not. `twins`: where a property may be, too."""
    fate, noted = table.fates[name], [place for place in places if _matches(place, table.notes)]
    match fate:
        case LeftOut():
            return f"is said not to be sent, and is sent as {_listed(places)}" if places else None
        case InNotes(also=also):
            own = [place for place in places if place not in noted and not any(_matches(place, one) for one in also)]
            return (
                None if noted and not own else f"is to be in {table.notes or 'the notes'}, and is in {_listed(places)}"
            )
        case SentAs(names=names, otherwise=otherwise):
            allowed = (*names, table.notes) if isinstance(otherwise, InNotes) else names
            if name == "propertyId":
                allowed = (*allowed, *twins)
            strange = [place for place in places if not any(_matches(place, theirs) for theirs in allowed)]
            if strange:
                return f"is to be sent as {', '.join(names)}, and is sent as {_listed(strange)} too"
            if not places and not isinstance(otherwise, LeftOut | Refused):
                return f"is to be sent as {', '.join(names)}, and is nowhere"
            return None
        case _:
            return None


def _listed(places: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(places)) or "nothing"


def _booking(kind: str, given: Mapping[str, Any]) -> Booking:
    """The booking of a request with these fields, as the rules make it."""
    reservation: dict[str, Any] = {}
    for name, value in given.items():
        *parents, last = name.split(".")
        part = reservation
        for parent in parents:
            part = part.setdefault(parent, {})
        if value is not None:
            part[last] = value
    card = reservation.get("cardDetails")
    of_card = None if card is None else CardDetails.model_validate(card)
    return booking_of(traits_of(kind), "rsv_of_the_conformance_kit", reservation, of_card)


async def _places(adapter: Adapter, booking: Booking, name: str, marker: _Marker) -> Sequence[str]:
    """Where the value is in the requests: the PMS's names, without positions in lists."""
    notes = adapter.fields.notes
    fate, places = adapter.fields.fates[name], []
    begin = line_of(name, "").strip() if name in ("notes", "comments") else f"{words_for(name)}: "
    for request in (await dry_run(adapter, booking)).requests:
        for place, text in _leaves(request):
            found = any(text == form or (len(form) >= _MIN_TELLING and form in text) for form in marker.spellings)
            if _matches(place, notes):  # there it is a line of notes, unless it is sent under that name by itself
                noted = any(line.startswith(begin) and str(marker.value) in line for line in text.split("\n"))
                own = isinstance(fate, SentAs) and any(_matches(place, theirs) for theirs in fate.names)
                found = noted or (own and found)
            places += [place] if found else []
    return places


def _matches(place: str, theirs: str) -> bool:
    wanted = _POSITION.sub("", theirs).replace("[", ".").replace("]", "")
    return bool(wanted) and (place == wanted or place.endswith(f".{wanted}"))


def _leaves(request: Request) -> Iterator[tuple[str, str]]:
    for segment in urlsplit(request.url).path.split("/"):
        yield "path", unquote(segment)
    for name, text in parse_qsl(request.query):
        yield name, text
    media_type = next((value for name, value in request.headers if name.lower() == b"content-type"), b"")
    if media_type.startswith(b"application/x-www-form-urlencoded"):
        for name, text in parse_qsl(request.content.decode()):
            yield _POSITION.sub("", name).replace("[", ".").replace("]", ""), text
    elif request.content:
        yield from _of_json(from_json(request.content), "")


def _of_json(value: Any, place: str) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for name, part in value.items():
                yield from _of_json(part, f"{place}.{name}" if place else name)
        case list():
            for part in value:
                yield from _of_json(part, place)
        case _:
            yield place, str(value)
