"""BookingSync: what is sent, and that nothing is in doubt before there is a client."""

import json
from typing import Any

import httpx
import pytest

from forwarder.reservation.outcome import Deferred, Rejected
from tests.support.cases import for_each
from tests.support.pms.kinds.booking_sync import (
    BASE_URL,
    CLIENT,
    create,
)
from tests.support.simulator.server import CARD, booking


async def test_the_guest_then_the_booking() -> None:
    asked = booking(
        card=CARD, comments="Twins", transactionId="tx-1", arrivalEstimatedTime="15:00", propertyId="a/7", roomId="a/7"
    )
    _, requests = await create(asked, CLIENT, httpx.Response(503))
    [client], [sent] = (
        json.loads(request.content)[name] for request, name in zip(requests, ("clients", "bookings"), strict=True)
    )
    assert str(requests[1].url) == f"{BASE_URL}/rentals/a%2F7/bookings"
    assert client == {
        "fullname": "Maria Gonzalez",
        "firstname": "Maria",
        "lastname": "Gonzalez",
        "emails": [{"label": "default", "email": "maria@example.com"}],
        "phones": [{"label": "default", "number": "34600111222"}],
        "addresses": [
            {"label": "default", "address1": "Calle Mayor 7", "city": "Madrid", "zip": "28013", "country_code": "ES"}
        ],
    }
    assert sent == {
        "start_at": "2027-03-01",
        "end_at": "2027-03-04",
        "booked": True,
        "client_id": 77,
        "adults": 2,
        "children": 1,
        "currency": "EUR",
        "final_price": "450.35",
        "external_reference": asked.reference,
        "notes": "Late arrival",
        "expected_checkin_time": "15:00",
        "comments": [{"content": "Twins"}, {"content": "Payment transaction: tx-1"}],
    }


async def test_a_card_is_not_part_of_this_wire() -> None:
    _, requests = await create(booking(card=CARD), CLIENT, httpx.Response(503))
    assert not [request for request in requests if b"4111" in request.content or b"8264" in request.content]


@pytest.mark.parametrize(
    ("guest", "fullname"),
    [
        ({"firstName": "Maria", "lastName": "Gonzalez"}, "Maria Gonzalez"),
        ({"lastName": "Gonzalez"}, "Gonzalez"),
        ({"email": "maria@example.com"}, "maria@example.com"),
        ({}, "Guest"),
    ],
)
async def test_a_guest_has_a_name_whatever_is_known(guest: dict[str, Any], fullname: str) -> None:
    _, (request, _) = await create(booking(guest=guest), CLIENT, httpx.Response(503))
    assert json.loads(request.content)["clients"][0]["fullname"] == fullname


async def test_what_the_vendor_would_not_take_is_a_comment() -> None:
    guest = {"name": "Maria", "phone": "", "address": {"country": "Hispania"}}
    _, (client, sent) = await create(
        booking(guest=guest, arrivalEstimatedTime="in the evening", notes=None), CLIENT, httpx.Response(503)
    )
    assert json.loads(client.content)["clients"] == [{"fullname": "Maria"}]
    [booked] = json.loads(sent.content)["bookings"]
    assert not {"expected_checkin_time", "notes"} & booked.keys()
    assert booked["comments"] == [{"content": "Estimated arrival: in the evening\nCountry: Hispania"}]


@for_each(
    ("counts", "adults", "said"),
    [
        ({"numberOfAdults": 3}, 3, []),
        (
            {"numberOfGuests": 5, "numberOfAdults": 2},
            5,
            ["Adults: 2; 3 more of the 5 guests are counted as adults"],
        ),
        ({"numberOfGuests": 4, "numberOfChildren": 1, "numberOfInfants": 1}, 2, ["Infants: 1", "Guests: 4"]),
        ({"numberOfGuests": 2, "numberOfAdults": 2, "numberOfPets": 1, "numberOfInfants": 0}, 2, ["Pets: 1"]),
        ({"numberOfGuests": 1, "numberOfChildren": 3}, 0, ["Guests: 1"]),
        ({"numberOfGuests": None, "numberOfChildren": None}, None, []),
    ],
)
async def test_no_guest_goes_uncounted(counts: dict[str, Any], adults: int | None, said: list[str]) -> None:
    fields = {"numberOfChildren": None, "numberOfInfants": None} | counts
    _, (_, sent) = await create(booking(**fields), CLIENT, httpx.Response(503))
    [booked] = json.loads(sent.content)["bookings"]
    assert booked.get("adults") == adults
    assert [line for comment in booked.get("comments", ()) for line in comment["content"].split("\n")] == said


@for_each(("price", "text"), [(0.1, "0.1"), (1e11, "100000000000.0"), (7, "7"), (0.07, "0.07"), (None, None)])
async def test_a_price_is_a_decimal_text(price: float | None, text: str | None) -> None:
    _, (_, sent) = await create(booking(totalPrice=price), CLIENT, httpx.Response(503))
    assert json.loads(sent.content)["bookings"][0].get("final_price") == text


@for_each(
    ("answer", "reason"),
    [
        (httpx.ReadTimeout("late"), "pms_timed_out"),
        (httpx.ReadError("reset"), "pms_connection_lost"),
        (httpx.Response(500), "pms_failed"),
        (httpx.Response(503), "pms_unavailable"),
        (httpx.Response(404), "pms_refused_request"),
        (httpx.Response(401, json={"error": "Not authorized"}), "pms_unauthorized"),
        (httpx.Response(201, content=b"<html>"), "pms_answer_not_understood"),
        (httpx.Response(201, json={"clients": []}), "pms_answer_not_understood"),
        (httpx.Response(201, json={"clients": [{"id": "x"}]}), "pms_answer_not_understood"),
    ],
)
async def test_until_there_is_a_client_nothing_is_in_doubt(
    answer: httpx.Response | httpx.HTTPError, reason: str
) -> None:
    outcome, requests = await create(booking(), answer)
    assert isinstance(outcome, Deferred)
    assert outcome.reason == reason
    assert len(requests) == 1


async def test_a_guest_that_is_refused() -> None:
    refusal = httpx.Response(422, json={"errors": {"emails": ["maria@example.com is invalid"]}})
    outcome, _ = await create(booking(), refusal)
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "guest_refused"
    assert outcome.problem.detail == "emails: […] is invalid"
