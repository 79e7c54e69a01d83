"""Looking up a booking at BookingSync: no filter takes our reference, so the rental's bookings around the nights are all read."""

from dataclasses import replace
from decimal import Decimal
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from forwarder.pms.kinds.booking_sync.api import BookingSyncApi
from forwarder.pms.kinds.booking_sync.responses import SyncBooking, bookings_in
from forwarder.pms.sdk import (
    CANCELLED_IN_PMS,
    Absent,
    Booking,
    Confirmed,
    Deferred,
    LookupOutcome,
    Response,
    Send,
    harmless,
    whole_number,
)

_PER_PAGE: Final = 100
_MOST_PAGES: Final = 20


async def look_up(api: BookingSyncApi, booking: Booking, send: Send, *, strict: bool) -> LookupOutcome:
    """Cancelled ones too, page by page. `strict`: it may have been made as a strict booking."""
    shown: list[SyncBooking] = []
    for page in range(1, _MOST_PAGES + 1):
        response = await api.ask(send, "GET", "bookings", query=_around(booking, page))
        bookings = bookings_in(response) if response.status_code == HTTPStatus.OK else None
        if bookings is None:
            return harmless(api.unexpected(response))
        shown += bookings
        booked = {each.id: each for each in bookings if each.is_ours(booking) and each.status == "Booked"}
        if booked:
            first, *others = booked
            return replace(confirmed(booked[first]), doubles=tuple(map(str, others)))
        if page >= _pages(response) or not bookings:
            return _hidden(shown, booking, strict=strict) or _not_booked(shown, booking)
    return Deferred("pms_lists_too_much", f"The PMS lists more than {_MOST_PAGES * _PER_PAGE} bookings.")


def confirmed(found: SyncBooking, paid_since: Decimal = Decimal(0)) -> Confirmed:
    """The booking that BookingSync shows. `paid_since`: what was paid after it was shown."""
    return Confirmed(str(found.id), found.record(paid_since))


def _hidden(shown: list[SyncBooking], booking: Booking, *, strict: bool) -> Deferred | None:
    """Why ours may be among `shown` without being known."""
    others = [found for found in shown if not found.is_ours(booking)]
    if not all(found.shows_reference for found in others):
        detail = "The account's credential may not see the references of bookings; it needs the scope bookings_read."
        return Deferred("pms_scope_too_small", detail)
    nameless = (found for found in others if found.external_reference is None and found.may_be_on(booking))
    if strict and any(nameless):
        # Nothing tells whether a strict booking keeps the reference that it is given.
        detail = "A booking without a reference is on these nights, and may be this one."
        return Deferred("pms_reference_not_shown", detail)
    return None


def _not_booked(shown: list[SyncBooking], booking: Booking) -> Absent | Deferred:
    """What was held, and never confirmed nor paid for, counts for nothing."""
    ours = [found for found in shown if found.is_ours(booking) and not found.came_to_nothing]
    if not ours:
        return Absent()
    if all(found.status == "Canceled" for found in ours):
        return Deferred(CANCELLED_IN_PMS, "The PMS made the booking, and it was cancelled there since.")
    return Deferred("pms_still_working", "The PMS holds the nights for the booking and has not confirmed it yet.")


def _around(booking: Booking, page: int) -> str:
    """What ends after the arrival and starts before the departure."""
    return urlencode(
        {
            "rental_id": booking.property_id,
            "from": booking.arrival.isoformat(),
            "until": booking.departure.isoformat(),
            "include_canceled": "true",
            "per_page": _PER_PAGE,
            "page": page,
        }
    )


def _pages(response: Response) -> int:
    """How many there are; where the PMS does not say, more than are read: an empty page then ends the list."""
    total = whole_number(response.header("x-total-pages") or "")
    return _MOST_PAGES + 1 if total is None else total
