"""The open PMS contract on the wire: what is sent."""

import json
from decimal import Decimal

import httpx

from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent
from tests.support.pms.kinds.open_pms import pms_that, refused
from tests.support.simulator.server import CARD, booking


async def sent(asked: Booking, *, kind: str = "generic", find: bool = False) -> httpx.Request:
    """The request that `asked` makes."""
    requests: list[httpx.Request] = []

    def note(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(503)

    async with pms_that(note, kind=kind) as pms:
        await (pms.find(asked) if find else pms.create(asked))
    [request] = requests
    return request


async def test_a_reservation_is_posted_in_the_callers_own_words() -> None:
    asked = booking(propertyId="00123", roomId=7, paymentProviderId=42, totalPrice=12.35, status="confirmed")
    request = await sent(asked)
    assert request.method == "POST"
    assert str(request.url) == "https://pms.test/api/reservations"
    assert request.headers["authorization"] == "Bearer key-7"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["idempotency-key"] == f'"{asked.reference}"'
    assert json.loads(request.content) == {**asked.fields, "reference": asked.reference}
    assert b'"propertyId":"00123","roomId":7' in request.content
    assert b'"totalPrice":12.35' in request.content


async def test_an_amount_stays_a_number() -> None:
    for price, written in ((Decimal("12.350"), b"12.35"), (Decimal("1200.00"), b"1200"), (0.1, b"0.1"), (7, b"7")):
        request = await sent(booking(totalPrice=price))
        assert b'"totalPrice":' + written + b"," in request.content


async def test_a_card_goes_along_in_the_clear_and_only_what_there_is_of_it() -> None:
    request = await sent(booking(card=CARD.model_copy(update={"cvv": None})))
    assert json.loads(request.content)["cardDetails"] == {
        "cardNumber": "4111 1111 1111 1111",
        "cardHolderName": "Maria Gonzalez",
        "expiryMonth": "07",
        "expiryYear": "2031",
    }
    assert "cardDetails" not in json.loads((await sent(booking())).content)


async def test_a_reservation_is_looked_for_by_its_reference() -> None:
    request = await sent(booking(), find=True)
    assert request.method == "GET"
    assert str(request.url) == f"https://pms.test/api/reservations?reference={booking().reference}"
    assert request.headers["authorization"] == "Bearer key-7"
    assert not request.content


async def test_a_website_is_part_of_the_address() -> None:
    asked = Booking("rsv_1", booking().fields, website_id="site/7 ä")
    for find in (False, True):
        request = await sent(asked, kind="website-builder", find=find)
        assert request.url.raw_path.startswith(b"/api/websites/site%2F7%20%C3%A4/reservations")


async def test_a_website_that_no_address_can_name_is_not_known() -> None:
    def never(_request: httpx.Request) -> httpx.Response:
        raise AssertionError

    async with pms_that(never, kind="website-builder") as pms:
        asked = Booking("rsv_1", booking().fields, website_id="..")
        assert refused(await pms.create(asked)) == "property_not_found"
        assert await pms.find(asked) == Absent()
