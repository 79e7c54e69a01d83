"""The guests, for PMSs that count, name and place them otherwise than a request does. Pure.

`unfit` holds the values that the PMS has no place for; `FieldTable.lines` writes them into the notes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from forwarder.pms.countries import code_of
from forwarder.reservation.booking import Booking

Unfit = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Headcount:
    """The numbers of guests for a PMS that counts only adults and children. None: unknown."""

    adults: int | None
    children: int | None
    unfit: Unfit


def headcount(booking: Booking, *, infants_are_children: bool) -> Headcount:
    """Every guest is counted: those whom nothing says to be children or infants are adults."""
    adults, children, infants, guests = _counts(booking.fields)
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


def _counts(fields: Mapping[str, int | None]) -> tuple[int | None, ...]:
    names = ("numberOfAdults", "numberOfChildren", "numberOfInfants", "numberOfGuests")
    return tuple(fields.get(name) for name in names)


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
