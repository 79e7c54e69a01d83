"""Dry runs of adapters: the requests that would be made, by the adapter's own code, and sent to nobody."""

import json
from typing import Any

import pytest

from forwarder.pms.mapping.adapter import MappedKind
from forwarder.pms.port import AccountConnection, BadOptions, Rehearsal, UnknownKind
from forwarder.pms.registry import KINDS
from forwarder.pms.rehearsal import Previews
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Rejected
from forwarder.reservation.request import CardDetails
from forwarder_pms_kit.simulators import SITES
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tests.support.simulator.client import NOW
from tests.support.simulator.server import CARD, booking

BASE_URLS = {"booking-sync": "https://user:secret@www.bookingsync.com/api/v3", "beds24": "https://api.beds24.com/v2"}
GATEWAY = {"gatewayId": "123", "gatewayName": "stripe"}
SECRETS = ("4111", "8264", "2031", "07", "Holder of it", "secret", "withheld", "5555", "3782")
CHARGED = CARD.model_copy(update={"card_holder_name": "Holder of it"})


async def tried(kind: str, asked: Booking | None = None, **options: Any) -> Rehearsal:
    base_url = BASE_URLS.get(kind, "https://pms.example/base")
    connection = AccountConnection("acme", kind, base_url, "a-sealed-credential", options=options)
    return await Previews(ManualClock(NOW)).rehearse(connection, asked or booking())


def paths(rehearsal: Rehearsal) -> list[str]:
    return [f"{request.method} {request.path}" for request in rehearsal.requests]


async def test_one_request_is_shown_as_it_would_go_out() -> None:
    rehearsal = await tried("beds24", booking(numberOfPets=1))
    [request] = rehearsal.requests
    assert (request.method, request.path, request.media_type) == ("POST", "/v2/bookings", "application/json")
    assert request.body[0]["roomId"] == 5001
    assert request.body[0]["notes"] == "Late arrival\nPets: 1\nCurrency: EUR"
    assert (rehearsal.assumed, rehearsal.outcome) == ([], None)


async def test_a_form_is_shown_by_its_fields() -> None:
    rehearsal = await tried("cloudbeds")
    assert paths(rehearsal)[:2] == ["POST /base/postReservation", "POST /base/postReservationNote"]
    assert rehearsal.requests[0].body["rooms[0][roomTypeID]"] == "5001"
    assert rehearsal.requests[1].body["reservationNote"].startswith("Late arrival\n")


# The others need no name.
@for_each("kind", sorted({*KINDS} - {"generic", "website-builder", "beds24", "hostaway"}))
@for_each("guest", [{}, {"email": "ana@example.com"}])
async def test_a_guest_without_a_name_gets_one_where_the_pms_needs_it(kind: str, guest: dict[str, str]) -> None:
    rehearsal = await tried(kind, booking(guest=guest), **SITES[kind].options)
    sent = [request.body for request in rehearsal.requests if request.method == "POST"]
    assert "Guest" in json.dumps(sent) or (guest and "ana@example.com" in json.dumps(sent))


async def test_what_only_the_pms_can_say_is_assumed_and_said_to_be() -> None:
    rehearsal = await tried("booking-sync", booking(numberOfInfants=1, numberOfGuests=4))
    assert paths(rehearsal) == ["POST /api/v3/clients", "POST /api/v3/rentals/5001/bookings"]
    [sent] = rehearsal.requests[1].body["bookings"]
    assert (sent["client_id"], sent["comments"]) == (0, [{"content": "Infants: 1\nGuests: 4"}])
    assert rehearsal.assumed == ["client_id: 0 stands for the id that BookingSync gives to the guest."]


async def test_every_step_of_a_charge_is_shown_and_nothing_of_the_card_but_its_masked_number() -> None:
    asked = booking(card=CHARGED, morChannel="PMS")
    rehearsal = await tried("booking-sync", asked, securePayments=GATEWAY, liveQuote=True)
    assert paths(rehearsal) == [
        "GET /api/v3/rentals/search?rental_id=5001&start_at=2027-03-01&end_at=2027-03-04&adults=2&children=1",
        "POST /api/v3/clients",
        "POST /api/v3/rentals/5001/bookings",
        "POST /api/v3/bookings/0/payments",
        "POST /api/bookingsync/instant_bookings",
    ]
    assert len(rehearsal.assumed) == 4
    charge = rehearsal.requests[-1].body
    assert charge["card_number"] == "411111******1111"
    for name in ("cardholder_name", "expires_at_month", "expires_at_year", "security_code"):
        assert charge[name] == "***"
    assert charge["gateway_id"] == "123"
    assert charge["city"] == "Madrid"


@for_each("kind", KINDS)
async def test_neither_card_nor_credential_is_shown(kind: str) -> None:
    asked = booking(card=CHARGED, morChannel="PMS", arrivalDate="2028-08-01", departureDate="2028-08-03", guest={})
    options = SITES[kind].options if isinstance(KINDS[kind], MappedKind) else {}
    shown = repr(await tried(kind, asked, **options)).replace("411111******1111", "")
    assert not [secret for secret in SECRETS if secret in shown]


async def test_a_card_in_a_form_is_hidden_too() -> None:
    body = {
        "pan": "card.cardNumber",
        "cvc": "card.cvv",
        "m": {"field": "card.expiryMonth", "as": "text"},
        "adults": "numberOfGuests",
    }
    create = {"path": "/b", "encoding": "form", "body": body}
    [request] = (await tried("generic", booking(card=CARD, numberOfGuests=7), mapping={"create": create})).requests
    assert request.body == {"pan": "411111******1111", "cvc": "***", "m": "***", "adults": "7"}


async def test_a_card_that_is_like_another_is_hidden_too() -> None:
    same = CardDetails.model_validate({"expiryMonth": "11", "cvv": "112", "cardNumber": "5555 5555 5555 4444"})
    [request] = (await tried("generic", booking(card=same))).requests
    assert request.body["cardDetails"] == {"cardNumber": "555555******4444", "expiryMonth": "***", "cvv": "***"}


@pytest.mark.parametrize(
    ("kind", "fields", "code"),
    [
        ("beds24", {"roomId": "A7"}, "room_not_found"),
        ("hostaway", {"propertyId": "A7", "roomId": "A7"}, "property_not_found"),
        ("website-builder", {}, "property_not_found"),
    ],
)
async def test_what_is_refused_before_anything_is_sent(kind: str, fields: dict[str, Any], code: str) -> None:
    asked = booking(**fields)
    if kind == "website-builder":
        asked = Booking(asked.reference, asked.fields, website_id=".")
    rehearsal = await tried(kind, asked)
    assert rehearsal.requests == []
    assert isinstance(rehearsal.outcome, Rejected)
    assert rehearsal.outcome.problem.code == code


async def test_a_value_that_a_mapping_cannot_write_is_refused() -> None:
    mapping = {"create": {"path": "/b", "body": {"id": {"field": "propertyId", "as": "integer"}}}}
    rehearsal = await tried("generic", booking(propertyId="A7"), mapping=mapping)
    assert isinstance(rehearsal.outcome, Rejected)
    assert rehearsal.outcome.problem.code == "property_not_found"


async def test_settings_that_are_wrong_are_told() -> None:
    with pytest.raises(BadOptions, match="sourceId"):
        await tried("cloudbeds", sourceId="7")
    with pytest.raises(UnknownKind):
        await tried("fax")
