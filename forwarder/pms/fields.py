"""How each field of a reservation request is sent to one kind of PMS: the table that every kind declares. Pure.

    SentAs    the PMS has a field for it
    InNotes   it has none: the value goes into the notes of the booking, in plain words ("Infants: 1")
    LeftOut   it is not sent, for a reason
    Refused   a booking that has it is refused

An adapter writes its notes from its table (`FieldTable.lines`), so that the table's description of them is always true.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Final

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from forwarder.pms.port import Loss
from forwarder.reservation import request
from forwarder.reservation.booking import Booking

_PARTS: Final[Mapping[str, tuple[type[BaseModel], ...]]] = {
    "": (request.BookingEngineRequest, request.GeneralRequest),
    "guest.address.": (request.Address, request.GeneralAddress),
    "guest.": (request.Guest, request.GeneralGuest),
    "cardDetails.": (request.CardDetails,),
}
_EACH: Final = dict.fromkeys(
    prefix + to_camel(name) for prefix, models in _PARTS.items() for model in models for name in model.model_fields
)
SPECIFIED: Final = tuple(name for name in _EACH if name not in {"guest", "guest.address", "cardDetails"})
"""Every field of the two reservation requests, with those of the guest, the address and the card: `guest.address.city`."""


@dataclass(frozen=True, slots=True)
class InNotes:
    """A line of the PMS's notes. `how`: a remark about that; `also`: the PMS's names under which it may be sent as well."""

    how: str = ""
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Not sent. `lost`: whether information is lost, so that the caller gets a warning."""

    reason: str
    lost: bool = True


@dataclass(frozen=True, slots=True)
class Refused:
    """A booking with an unsuitable value is refused with this `code`. `when`: which values are unsuitable."""

    code: str
    when: str


@dataclass(frozen=True, slots=True)
class SentAs:
    """Sent under one or several of the PMS's `names`; `path` is the path of the request. `how`: what changes on the way. `only_if`:
    this is sent only if another field has that value. `otherwise`: the fate of a value that the PMS's field does not take."""

    names: tuple[str, ...]
    how: str = ""
    only_if: tuple[str, str] | None = None
    otherwise: "InNotes | LeftOut | Refused | None" = None


Fate = SentAs | InNotes | LeftOut | Refused

_WORDS: Final[Mapping[str, str]] = {
    "morChannel": "Payment taken by",
    "propertyId": "Property",
    "roomId": "Room",
    "arrivalDate": "Arrival",
    "departureDate": "Departure",
    "arrivalEstimatedTime": "Estimated arrival",
    "departureEstimatedTime": "Estimated departure",
    "numberOfGuests": "Guests",
    "numberOfAdults": "Adults",
    "numberOfChildren": "Children",
    "numberOfInfants": "Infants",
    "numberOfPets": "Pets",
    "paymentProviderId": "Payment provider",
    "transactionId": "Payment transaction",
    "guest.name": "Guest's full name",
    "guest.email": "Guest's e-mail",
    "guest.phone": "Guest's phone",
    "guest.address.line1": "Address",
    "guest.address.line2": "Address, line 2",
    "guest.address.postalCode": "Postal code",
}
_MEANINGS: Final[Mapping[tuple[str, str], str]] = {
    ("morChannel", "SELF"): "the host or the booking engine (SELF)",
    ("morChannel", "PMS"): "the property management system (PMS)",
}


def words_for(name: str) -> str:
    """The field's name in a line of notes: `Promotion code` for `promotionCode`."""
    return _WORDS.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.rpartition(".")[2]).capitalize()


def value_of(booking: Booking, name: str) -> Any:
    """The value that the caller gave to a field; None where there is none, and for fields of the card."""
    value: Any = booking.fields
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return None if value == "" else value


def as_text(value: Any) -> str:
    """A scalar as texts have it: no exponents, and booleans in lower case."""
    match value:
        case bool():
            return "true" if value else "false"
        case float() | Decimal():
            return format(Decimal(str(value)), "f")
        case _:
            return str(value)


def line_of(name: str, value: Any) -> str:
    """One field in plain words; the caller's own notes and comments unchanged."""
    text = as_text(value)
    return text if name in ("notes", "comments") else f"{words_for(name)}: {_MEANINGS.get((name, text), text)}"


def becomes(fate: Fate, notes: str) -> str:
    """A field's fate in a few words; `notes`: the PMS's name of its field for notes."""
    match fate:
        case SentAs():
            sent = f"sent as {', '.join(fate.names)}{f', {fate.how}' if fate.how else ''}"
            condition = "" if fate.only_if is None else f"only if {' is '.join(fate.only_if)}"
            otherwise = "" if fate.otherwise is None else f"else {becomes(fate.otherwise, notes)}"
            return "; ".join(filter(None, (sent, condition, otherwise)))
        case InNotes(how=how, also=also):
            besides = f"also as {', '.join(also)}" if also else ""
            return ", ".join(filter(None, (f"in {notes}", how, besides)))
        case LeftOut(reason=reason):
            return f"not sent: {reason}"
        case Refused(code=code, when=when):
            return f"refused ({code}) where {when}"


@dataclass(frozen=True)
class FieldTable:
    """`fates`: of each field of `SPECIFIED`. `notes`: the PMS's name of its field for notes; empty if it has none."""

    fates: Mapping[str, Fate]
    notes: str = ""

    @classmethod
    def with_rest(cls, fates: Mapping[str, Fate], rest: Fate, notes: str = "") -> "FieldTable":
        """The table of a kind in which every field that `fates` does not name has the fate `rest`, later ones too."""
        return cls({name: fates.get(name, rest) for name in SPECIFIED}, notes)

    def but(self, fates: Mapping[str, Fate], notes: str | None = None) -> "FieldTable":
        """The same with other fates for some fields: what an account's options change."""
        return FieldTable({**self.fates, **fates}, self.notes if notes is None else notes)

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in SPECIFIED if name not in self.fates)

    @cached_property
    def _noted(self) -> tuple[str, ...]:
        return tuple(name for name in SPECIFIED if isinstance(self.fates.get(name), InNotes))

    def lines(self, booking: Booking, unfit: Mapping[str, str | None] | None = None) -> list[str]:
        """Notes for the PMS: a line for each given field that the PMS has no field for. `unfit`: fields whose value the PMS's own
        field does not take, each with a text to write instead of the value, if any."""
        unfit, lines = unfit or {}, []
        for name in [name for name in SPECIFIED if name in unfit or name in self._noted] if unfit else self._noted:
            value = value_of(booking, name)
            only_room = name == "roomId" and booking.room_id == booking.property_id
            if value is not None and not only_room and not (value == 0 and name.startswith("numberOf")):
                lines.append(line_of(name, unfit.get(name) or value))
        return lines

    @cached_property
    def losses(self) -> Sequence[Loss]:
        """The fields that may be lost on the way to the PMS."""
        lost: list[Loss] = []
        for name, fate in self.fates.items():
            match fate:
                case LeftOut(reason=reason, lost=True):
                    lost.append(Loss(name, reason))
                case SentAs(only_if=(_, _) as condition, otherwise=LeftOut(reason=reason, lost=True)):
                    lost.append(Loss(name, reason, condition))
        return lost

    def in_callers_words(self, pms_name: str) -> str:
        """A PMS's field with the caller's names for it: `start_at (arrivalDate)`; alone if there are none, or the same."""
        names = [name for name, fate in self.fates.items() if isinstance(fate, SentAs) and pms_name in fate.names]
        return pms_name if not names or pms_name in names else f"{pms_name} ({', '.join(names)})"


# --- guests ---

Unfit = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Headcount:
    """The numbers of guests for a PMS that counts only adults and children. None: unknown."""

    adults: int | None
    children: int | None
    unfit: Unfit


def headcount(booking: Booking, *, infants_are_children: bool) -> Headcount:
    """Every guest is counted: those whom nothing says to be children or infants are adults."""
    names = ("numberOfAdults", "numberOfChildren", "numberOfInfants", "numberOfGuests")
    adults, children, infants, guests = map(booking.fields.get, names)
    with_infants = infants_are_children and infants is not None
    counted_children = (children or 0) + (infants or 0) if with_infants else children
    counted = adults if guests is None else max(adults or 0, guests - (children or 0) - (infants or 0))
    unfit: Unfit = {}
    if adults is not None and counted is not None and counted != adults:
        unfit["numberOfAdults"] = f"{adults}; {counted - adults} more of the {guests} guests are counted as adults"
    if guests is not None and (counted or 0) + (counted_children or 0) != guests:
        unfit["numberOfGuests"] = None
    if infants_are_children and infants:
        unfit["numberOfInfants"] = f"{infants}, counted as children"
    return Headcount(counted, counted_children, unfit)


def first_and_last(booking: Booking) -> tuple[str, str, Unfit]:
    """The first and the last name, from the full name where they were not given; unfit is a full name that says something else."""
    guest = booking.guest
    full = guest.get("name") or ""
    first, _, last = full.strip().partition(" ")
    first, last = guest.get("firstName") or first, guest.get("lastName") or last.strip()
    return first, last, {"guest.name": None} if full and full.split() != f"{first} {last}".split() else {}


def country_code(booking: Booking) -> tuple[str | None, Unfit]:
    """The guest's country by its two letters, from its code or its name. A text that is no country's name does not fit."""
    country = (booking.guest.get("address") or {}).get("country")
    code = code_of(country) if country else None
    return code, {"guest.address.country": None} if country and code is None else {}


def code_of(country: object) -> str | None:
    """The ISO 3166-1 code of a country, from its code (also one that is in no list) or a usual name; None for any other text."""
    text = str(country).strip()
    if re.fullmatch("[A-Z]{2}", text):
        return {"UK": "GB", "EL": "GR"}.get(text, text)
    return _codes().get(_plain(text))


@cache
def _codes() -> Mapping[str, str]:
    """The names as `_plain` has them, with both codes of each country."""
    lines = files("forwarder.pms").joinpath("countries.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return {_plain(name): code for code, longer, names in rows for name in (code, longer, *names.split(" | "))}


def _plain(name: str) -> str:
    """Without case, accents, punctuation and a leading article."""
    letters = unicodedata.normalize("NFKD", name.casefold().replace("&", " and "))
    words = re.sub("[^a-z0-9]+", " ", "".join(letter for letter in letters if not unicodedata.combining(letter)))
    return words.strip().removeprefix("the ")
