"""Kinds whose PMS need not name our reference: what it shows of another reservation is in doubt, and of ours is confirmed."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from forwarder.reservation.outcome import Confirmed, InDoubt, Outcome
from tests.support.pms.dialogue import Vendor
from tests.support.pms.kinds import beds24, booking_sync, cloudbeds, hostaway

OURS: Mapping[str, Any] = {"day": "2027-03-01", "last": "2027-03-04", "place": 5001, "email": "maria@example.com"}

Answer = Callable[[Mapping[str, Any]], Awaitable[Outcome]]


async def _beds24(shown: Mapping[str, Any]) -> Outcome:
    new = {"arrival": shown["day"], "departure": shown["last"], "roomId": shown["place"], "email": shown["email"]}
    return await beds24.create(Vendor(beds24.posted(beds24.made(81, **new))))


async def _hostaway(shown: Mapping[str, Any]) -> Outcome:
    listing = {"arrivalDate": shown["day"], "departureDate": shown["last"], "listingMapId": shown["place"]}
    return await hostaway.create(Vendor(hostaway.success(hostaway.a_reservation(**listing, guestEmail=shown["email"]))))


async def _booking_sync(shown: Mapping[str, Any]) -> Outcome:
    made = {
        "id": 81,
        "status": "Booked",
        "start_at": f"{shown['day']}T16:00:00Z",
        "end_at": f"{shown['last']}T10:00:00Z",
        "links": {"rental": shown["place"]},
    }
    return await booking_sync.booked(201, {"bookings": [made]})


KINDS: Mapping[str, tuple[Answer, frozenset[str]]] = {
    "beds24": (_beds24, frozenset(OURS)),
    "hostaway": (_hostaway, frozenset(OURS)),
    "booking-sync": (_booking_sync, frozenset(OURS) - {"email"}),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_anothers_is_in_doubt(kind: str) -> None:
    answer, shows = KINDS[kind]
    assert isinstance(await answer(OURS), Confirmed)
    others = {"day": "2027-03-02", "last": "2027-03-05", "place": 7, "email": "jan@example.com"}
    for part in shows:
        outcome = await answer({**OURS, part: others[part]})
        assert isinstance(outcome, InDoubt), (part, outcome)


async def test_another_guest_at_cloudbeds_is_in_doubt() -> None:
    for email, kind in (("maria@example.com", Confirmed), ("jan@example.com", InDoubt)):
        answers = {"postReservation": cloudbeds.made(guestEmail=email), "getReservation": cloudbeds.shown()}
        outcome = await cloudbeds.create(cloudbeds.Vendor(**answers))
        assert isinstance(outcome, kind)
