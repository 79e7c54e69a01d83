"""The guests, for PMSs that count, name and place them otherwise than a request does. Pure.

`unfit` holds the values that the PMS has no place for; `FieldTable.lines` writes them into the notes.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from forwarder.reservation.booking import Booking

_CODE = re.compile(r"[A-Z]{2}")
_BETWEEN = re.compile(r"[^a-z0-9]+")
_OTHER_CODES = {"UK": "GB", "EL": "GR"}

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
    counted_children = children
    if infants_are_children and infants is not None:
        counted_children = (children or 0) + infants
    counted = adults
    if guests is not None:
        counted = max(adults or 0, guests - (children or 0) - (infants or 0))
    unfit: Unfit = {}
    if adults is not None and counted is not None and counted != adults:
        unfit["numberOfAdults"] = f"{adults}; {counted - adults} more of the {guests} guests are counted as adults"
    if guests is not None and (counted or 0) + (counted_children or 0) != guests:
        unfit["numberOfGuests"] = None
    if infants_are_children and infants:
        unfit["numberOfInfants"] = f"{infants}, counted as children"
    return Headcount(counted, counted_children, unfit)


def first_and_last(booking: Booking) -> tuple[str, str, Unfit]:
    """The first and the last name, taken from the full name where they were not given. A full name that says something else than
    the two together does not fit."""
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
    """The ISO 3166-1 code of two letters of a country that is given by its code or by a usual name; None for any other text. A code
    that is in no list is kept: the PMS may know it."""
    text = str(country).strip()
    if _CODE.fullmatch(text):
        return _OTHER_CODES.get(text, text)
    return _codes().get(_plain(text))


@cache
def _codes() -> Mapping[str, str]:
    """The names as `_plain` has them, with both codes of each country."""
    codes: dict[str, str] = {}
    for line in files("forwarder.pms").joinpath("countries.tsv").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            code, longer, names = line.split("\t")
            for name in (code, longer, *names.split(" | ")):
                codes[_plain(name)] = code
    return codes


def _plain(name: str) -> str:
    """Without case, accents, punctuation and a leading article."""
    letters = unicodedata.normalize("NFKD", name.casefold().replace("&", " and "))
    words = _BETWEEN.sub(" ", "".join(letter for letter in letters if not unicodedata.combining(letter))).strip()
    return words.removeprefix("the ")
