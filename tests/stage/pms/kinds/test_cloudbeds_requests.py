"""Cloudbeds on the wire: what is sent, held against the vendor's own OpenAPI document."""

from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest

from forwarder.pms.port import BadOptions
from forwarder.pms.registry import check_options
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Deferred
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators import simulator_app
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tests.support.pms.kinds.cloudbeds import Vendor, answered, cancel, create, find, item, listed, made, no, shown
from tests.support.pms.vendor_contracts import contract_document
from tests.support.pms.vendor_openapi import OpenApi
from tests.support.simulator.client import NOW
from tests.support.simulator.server import CARD, booking


@pytest.fixture(scope="module")
def vendors_document() -> OpenApi:
    return OpenApi(contract_document("cloudbeds", "pms-v1.3-openapi.yaml"), "/api/v1.3")


async def sent(asked: Booking | None = None, **options: Any) -> httpx.Request:
    """The request that books."""
    vendor = Vendor(postReservation=made(), getReservation=shown())
    await create(vendor, asked, **options)
    return vendor.requests[0]


async def form(asked: Booking | None = None, **options: Any) -> dict[str, str]:
    return dict(parse_qsl((await sent(asked, **options)).content.decode()))


async def test_a_booking_is_a_form() -> None:
    request = await sent()
    assert request.method == "POST"
    assert str(request.url) == "https://api.cloudbeds.com/api/v1.3/postReservation"
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert request.headers["x-api-key"] == "cbat_7"
    assert "authorization" not in request.headers
    assert dict(parse_qsl(request.content.decode())) == {
        "propertyID": "5001",
        "sourceID": "ss-7-1",
        "thirdPartyIdentifier": booking().reference,
        "startDate": "2027-03-01",
        "endDate": "2027-03-04",
        "guestFirstName": "Maria",
        "guestLastName": "Gonzalez",
        "guestCountry": "ES",
        "guestZip": "28013",
        "guestEmail": "maria@example.com",
        "guestPhone": "34600111222",
        "rooms[0][roomTypeID]": "5001",
        "rooms[0][quantity]": "1",
        "adults[0][roomTypeID]": "5001",
        "adults[0][quantity]": "2",
        "children[0][roomTypeID]": "5001",
        "children[0][quantity]": "1",
        "paymentMethod": "cash",
        "sendEmailConfirmation": "false",
    }


OPTIONS: dict[str, Any] = {
    "propertyId": "77",
    "rateIds": {"5001": "R-9"},
    "paymentMethod": "credit",
    "authorization": "bearer",
    "notesField": "notes",
    "sendEmailConfirmation": True,
}
BARE = Booking("rsv_1", {"propertyId": 7, "roomId": 7, "arrivalDate": "2027-03-01", "departureDate": "2027-03-04"})


NOTES = """\
Late arrival
Two dogs
Property: 5001
Total price: 450.35
Currency: EUR
Payment transaction: tx-1
Address: Calle Mayor 7
City: Madrid"""


async def test_options_say_what_the_request_does_not() -> None:
    asked = booking(promotionCode="SPRING", arrivalEstimatedTime="9:30", comments="Two dogs", transactionId="tx-1")
    request = await sent(asked, **OPTIONS)
    assert request.headers["authorization"] == "Bearer cbat_7"
    assert "x-api-key" not in request.headers
    fields = dict(parse_qsl(request.content.decode()))
    assert fields["propertyID"] == "77"
    assert fields["rooms[0][roomTypeID]"] == "5001"
    assert fields["rooms[0][roomRateID]"] == "R-9"
    assert fields["promoCode"] == "SPRING"
    assert fields["paymentMethod"] == "credit"
    assert fields["estimatedArrivalTime"] == "09:30:00"
    assert fields["customFields[0][fieldName]"] == "notes"
    assert fields["customFields[0][fieldValue]"] == NOTES
    assert fields["sendEmailConfirmation"] == "true"


async def test_a_promotion_goes_only_with_a_rate() -> None:
    assert "promoCode" not in await form(booking(promotionCode="SPRING"))


async def test_a_guest_who_said_little() -> None:
    fields = await form(BARE)
    assert (fields["guestFirstName"], fields["guestLastName"]) == ("Guest", "Guest")
    assert not {"guestCountry", "guestZip", "guestEmail", "guestPhone"} & fields.keys()
    assert fields["adults[0][quantity]"] == "1"
    fields = await form(BARE, defaultCountry="PT", defaultZip="1000", defaultEmail="desk@example.com")
    assert [fields[name] for name in ("guestCountry", "guestZip", "guestEmail")] == ["PT", "1000", "desk@example.com"]


@pytest.mark.parametrize(
    ("guest", "first", "last"),
    [
        ({"name": "Ana Maria Lopez"}, "Ana", "Maria Lopez"),
        ({"name": "Madonna"}, "Madonna", "Guest"),
        ({"firstName": "Ana", "lastName": "Lopez", "name": "x"}, "Ana", "Lopez"),
    ],
)
async def test_names_are_put_in_two(guest: dict[str, str], first: str, last: str) -> None:
    fields = await form(booking(guest=guest))
    assert (fields["guestFirstName"], fields["guestLastName"]) == (first, last)


async def test_a_country_that_is_no_code_is_the_default() -> None:
    fields = await form(booking(guest={"address": {"country": "Spain"}}), defaultCountry="ES")
    assert fields["guestCountry"] == "ES"


async def test_infants_are_children_there() -> None:
    fields = await form(booking(numberOfGuests=4, numberOfChildren=1, numberOfInfants=1))
    assert (fields["adults[0][quantity]"], fields["children[0][quantity]"]) == ("2", "2")
    assert (await form(booking(numberOfAdults=3)))["adults[0][quantity]"] == "3"


async def test_no_card_travels() -> None:
    content = (await sent(booking(card=CARD), notesField="notes")).content
    assert b"4111" not in content
    assert b"8264" not in content


async def test_every_request_is_one_of_the_vendors_document(vendors_document: OpenApi) -> None:
    vendor = Vendor(
        postReservation=made(),
        postReservationNote=answered({"success": True}),
        getReservationNotes=answered({"success": True, "data": []}),
        getReservation=shown(),
        getReservations=listed(item()),
        putReservation=no("Not possible"),
    )
    everything = booking(promotionCode="S", arrivalEstimatedTime="23:15", comments="x", transactionId="t", card=CARD)
    await create(vendor, everything, **OPTIONS)
    await create(vendor, BARE, defaultCountry="PT")
    await find(vendor)
    await cancel(vendor)
    methods = {"postReservation", "getReservation", "getReservations", "putReservation"}
    assert set(vendor.asked) == methods | {"postReservationNote", "getReservationNotes"}
    for request in vendor.requests:
        vendors_document.check_request(request)


async def test_the_check_can_fail(vendors_document: OpenApi) -> None:
    request = await sent()
    for wrong in (b"&cardNumber=4", b"&rooms[1][roomTypeID]=1&rooms[1][nights]=2", b"&children[1][quantity]=two"):
        broken = httpx.Request("POST", request.url, headers=request.headers, content=request.content + wrong)
        with pytest.raises(Exception, match=r"unexpected|not of type"):
            vendors_document.check_request(broken)


async def test_the_simulator_answers_as_the_vendors_document_says(vendors_document: OpenApi) -> None:
    with World(ManualClock(NOW)) as world:
        simulator = httpx.ASGITransport(simulator_app(world))
        booked = (await sent()).content
        async with httpx.AsyncClient(
            transport=simulator, base_url="https://pms.test/api/v1.3", headers={"x-api-key": "k"}
        ) as http:
            requests = [
                http.build_request("POST", "/postReservation", content=booked),
                http.build_request("POST", "/postReservation", content=booked),
                http.build_request("GET", "/getReservation", params={"reservationID": "1001"}),
                http.build_request("GET", "/getReservations", params={"sourceReservationId": booking().reference}),
                http.build_request("PUT", "/putReservation", content=b"reservationID=1001&status=canceled"),
                http.build_request("POST", "/postReservationNote", content=b"reservationID=1001&reservationNote=Twins"),
                http.build_request("GET", "/getReservationNotes", params={"reservationID": "1001"}),
            ]
            exchanges = [(request, await http.send(request)) for request in requests]
    assert [answer.json()["success"] for _, answer in exchanges] == [True, False, True, True, True, True, True]
    for request, answer in exchanges:
        vendors_document.check_answer(request, answer)


async def test_a_booking_is_looked_for_in_every_status() -> None:
    vendor = Vendor(getReservations=listed())
    await find(vendor)
    [request] = vendor.requests
    assert request.method == "GET"
    assert dict(request.url.params) == {
        "propertyID": "5001",
        "sourceReservationId": booking().reference,
        "pageNumber": "1",
        "pageSize": "100",
    }


async def test_a_booking_is_cancelled_by_its_status() -> None:
    vendor = Vendor(putReservation=answered({"success": True}))
    await cancel(vendor)
    [request] = vendor.requests
    assert request.method == "PUT"
    assert dict(parse_qsl(request.content.decode())) == {
        "propertyID": "5001",
        "reservationID": "9001",
        "status": "canceled",
    }


@for_each(
    ("options", "at_fault"),
    [
        ({"sourceId": "7"}, "sourceId"),
        ({"sourceId": "ss-7"}, "sourceId"),
        ({"propertyId": 7}, "propertyId"),
        ({"paymentMethod": "card"}, "paymentMethod"),
        ({"defaultCountry": "Spain"}, "defaultCountry"),
        ({"rateIds": {"5": 5}}, "rateIds.5"),
        ({"rateId": "5"}, "rateId"),
    ],
)
def test_options_are_checked(options: dict[str, Any], at_fault: str) -> None:
    with pytest.raises(BadOptions, match=rf"^{at_fault}: "):
        check_options("cloudbeds", options)


async def test_without_a_third_partys_source_nothing_can_be_concluded_from_an_empty_list() -> None:
    for source in ({"sourceId": None}, {"sourceId": "s-2-1"}, {"sourceId": "s-2"}):
        outcome = await find(Vendor(getReservations=listed()), **source)
        assert isinstance(outcome, Deferred)
        assert outcome.reason == "pms_scope_too_small"
