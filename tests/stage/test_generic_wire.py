"""The open PMS contract on the wire: what is sent, and what each answer means."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import httpx
import pytest

from forwarder.pms.directory import open_directory
from forwarder.pms.generic import REFUSALS
from forwarder.pms.port import Connection, Pms
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, InDoubt, Lookup, Outcome, Rejected
from tests.support.simulator import CARD, QuickClock, booking

Answer = Callable[[httpx.Request], httpx.Response]


@asynccontextmanager
async def pms_that(
    answer: Answer, *, kind: str = "generic", base_url: str = "http://pms.test/api/"
) -> AsyncIterator[Pms]:
    async with open_directory(QuickClock(), transport=httpx.MockTransport(answer)) as directory:
        yield directory.connect(Connection("acme", kind, base_url, "key-7"))


async def created(status: int, body: object, asked: Booking | None = None) -> Outcome:
    """What a create comes to that is answered so."""
    async with pms_that(lambda _: _response(status, body)) as pms:
        return await pms.create(asked or booking())


async def found(body: object, status: int = 200) -> Lookup:
    async with pms_that(lambda _: _response(status, body)) as pms:
        return await pms.find(booking())


def _response(status: int, body: object) -> httpx.Response:
    return httpx.Response(status, content=body if isinstance(body, bytes) else json.dumps(body).encode())


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


# --- what is sent ----------------------------------------------------------------------------------------------------


async def test_a_reservation_is_posted_in_the_callers_own_words() -> None:
    asked = booking(propertyId="00123", roomId=7, paymentProviderId=42, totalPrice=12.35, status="confirmed")
    request = await sent(asked)
    assert request.method == "POST"
    assert str(request.url) == "http://pms.test/api/reservations"
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
    assert str(request.url) == f"http://pms.test/api/reservations?reference={booking().reference}"
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


# --- a reservation that was made ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201])
@pytest.mark.parametrize(("pms_id", "text"), [(5, "5"), ("R-5", "R-5"), (2**60, str(2**60))])
async def test_a_made_reservation_is_confirmed_with_its_id(status: int, pms_id: object, text: str) -> None:
    for body in ({"id": pms_id}, {"id": pms_id, "status": "CONFIRMED"}, {"id": pms_id, "status": "confirmed"}):
        assert await created(status, body) == Confirmed(text, {})


RECORD = {
    "source": "DIRECT",
    "codes": {"accessCode": ["1234#"]},
    "notes": "Ring twice",
    "paymentUrl": "https://pay.test/5",
    "totalPrice": 450.35,
    "currency": "EUR",
    "primaryGuest": {
        "name": "Maria",
        "emails": ["m@example.com"],
        "mobileNumbers": ["+34600111222"],
        "nationality": None,
    },
    "finances": {
        "totalPrice": 450.35,
        "currency": "EUR",
        "totalPaid": 100,
        "remainingBalance": 350.35,
        "basePrice": {"totalBasePrice": 400, "breakdown": [{"name": "Nights", "type": "RoomRate", "total": 400}]},
        "fee": {"totalFee": 50.35, "breakdown": [{"name": "Cleaning", "type": "Fee", "total": 50.35}]},
        "tax": {"totalTax": 0, "breakdown": []},
        "discount": {"totalDiscount": 0, "breakdown": []},
    },
}


async def test_the_record_takes_what_the_pms_says() -> None:
    outcome = await created(201, {"id": 5, "status": "CONFIRMED", "reference": booking().reference, **RECORD})
    assert outcome == Confirmed("5", RECORD)


async def test_and_leaves_out_what_is_not_a_record_field() -> None:
    assert await created(201, {"id": 5, "internal": "x", "propertyId": 9, "requestId": "y"}) == Confirmed("5", {})


WRONG_SHAPES: list[tuple[str, list[object]]] = [
    ("source", [5, None, ["x"], "x" * 300, "a\0b"]),
    ("codes", ["1234", {"accessCode": "1234"}, {"accessCode": [1234]}, {}]),
    ("notes", [7, {}, "x" * 10_001]),
    ("paymentUrl", ["javascript:alert(1)", "pay.test", 5, "https://pay.test/a b"]),
    ("totalPrice", ["450.35", True, None, 1e15, {}]),
    ("currency", ["eur", "EURO", 5]),
    ("primaryGuest", ["Maria", {"name": "Maria"}, {"name": 5, "emails": [], "mobileNumbers": []}]),
    ("finances", ["450", 5, [1]]),
]


@pytest.mark.parametrize(("field", "values"), WRONG_SHAPES)
async def test_a_field_of_the_wrong_shape_is_left_out_and_harms_no_other(field: str, values: list[object]) -> None:
    for value in values:
        outcome = await created(201, {"id": 5, **RECORD, field: value})
        assert outcome == Confirmed("5", {name: part for name, part in RECORD.items() if name != field}), value


async def test_of_the_finances_each_part_stands_for_itself() -> None:
    finances = {"totalPaid": 5, "totalPrice": "5", "fee": {"totalFee": 1}, "tax": {"totalTax": 0, "breakdown": []}}
    outcome = await created(201, {"id": 5, "finances": finances})
    assert outcome == Confirmed("5", {"finances": {"totalPaid": 5, "tax": {"totalTax": 0, "breakdown": []}}})


async def test_a_card_number_that_the_pms_repeats_is_masked() -> None:
    notes = "Card 4111111111111111, or 4111-1111-1111-1111, phone 34600111222000"
    outcome = await created(201, {"id": 5, "notes": notes, "source": "4111 1111 1111 1111"}, booking(card=CARD))
    assert outcome == Confirmed(
        "5",
        {"notes": "Card 411111******1111, or 411111******1111, phone 34600111222000", "source": "411111******1111"},
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"<html></html>",
        b"\xff\xfe",
        [],
        [{"id": 5}],
        "5",
        {},
        {"id": None},
        {"id": True},
        {"id": 5.5},
        {"id": ""},
        {"id": "x" * 300},
        {"id": []},
        b'{"id":' + b"9" * 6000 + b"}",
        b'{"id":5,"totalPrice":NaN}',
        b'{"id":5,"deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        {"id": 5, "status": "PENDING"},
        {"id": 5, "status": "on request"},
        {"id": 5, "reference": "rsv_somebody_else's"},
    ],
)
async def test_an_answer_that_is_not_understood_leaves_the_reservation_in_doubt(body: object) -> None:
    for status in (200, 201):
        outcome = await created(status, body)
        assert isinstance(outcome, InDoubt)
        assert outcome.reason == "pms_answer_not_understood"


# --- the PMS's no ------------------------------------------------------------------------------------------------------


def refused(outcome: Outcome) -> str:
    assert isinstance(outcome, Rejected), outcome
    assert outcome.problem.status == 409
    assert outcome.problem.request_id is not None
    return outcome.problem.code


@pytest.mark.parametrize("status", [400, 404, 409, 422])
@pytest.mark.parametrize("code", sorted(REFUSALS))
async def test_a_no_keeps_its_code(status: int, code: str) -> None:
    outcome = await created(status, {"code": code, "title": "No", "detail": "For a reason."})
    assert refused(outcome) == code
    assert isinstance(outcome, Rejected)
    assert outcome.problem.title == REFUSALS[code]
    assert outcome.problem.detail == "For a reason."


@pytest.mark.parametrize("status", [409, 422])
@pytest.mark.parametrize("body", [{"code": "moon_phase"}, {"code": 5}, {"title": "No"}, {}, [], b"", b"<html>", b"{"])
async def test_any_other_no_is_a_no_all_the_same(status: int, body: object) -> None:
    assert refused(await created(status, body)) == "pms_refused"


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize("body", [{"code": "not_found"}, {"detail": "Not Found"}, b"<html>404</html>", b""])
async def test_what_any_server_may_say_is_no_refusal(status: int, body: object) -> None:
    outcome = await created(status, body)
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_refused_request"


@pytest.mark.parametrize("status", ["REJECTED", "declined", "Cancelled"])
async def test_a_reservation_that_was_made_as_a_refused_one_is_refused(status: str) -> None:
    assert refused(await created(201, {"id": 5, "status": status})) == "pms_refused"
    assert refused(await created(201, {"id": 5, "status": status, "code": "card_refused"})) == "card_refused"


async def test_the_detail_of_a_no_quotes_neither_card_nor_guest() -> None:
    said = (
        "Card 4111 1111 1111 1111 (cvv 8264, MARIA GONZALEZ) was declined for maria@example.com, 34600111222, "
        "Calle Mayor 7, Madrid; other card 5500-0000-0000-0004; room 12 is free 2027-03-01 2027-03-04"
    )
    outcome = await created(409, {"code": "card_refused", "detail": said}, booking(card=CARD))
    assert isinstance(outcome, Rejected)
    detail = outcome.problem.detail
    for secret in ("4111", "8264", "maria", "gonzalez", "34600111222", "calle", "madrid", "5500", "0004"):
        assert secret not in detail.lower(), detail
    assert "room 12 is free 2027-03-01 2027-03-04" in detail


async def test_the_detail_of_a_no_is_short_and_on_one_line() -> None:
    outcome = await created(409, {"detail": "no\n\tand \0 no" + "!" * 5000})
    assert isinstance(outcome, Rejected)
    assert outcome.problem.detail.startswith("no and no!")
    assert len(outcome.problem.detail) == 500


async def test_without_words_of_its_own_a_no_gets_ours() -> None:
    for body in ({"code": "room_unavailable"}, {"code": "room_unavailable", "title": " ", "detail": 5}):
        outcome = await created(409, body)
        assert isinstance(outcome, Rejected)
        assert outcome.problem.detail == "The room is not available."


# --- the key -----------------------------------------------------------------------------------------------------------


async def test_a_pms_that_is_still_at_it_has_not_refused() -> None:
    outcome = await created(409, {"code": "request_in_progress"})
    assert isinstance(outcome, InDoubt)
    assert outcome.reason == "pms_still_working"


@pytest.mark.parametrize("items", [[{"id": 5, "reference": booking().reference}], []])
async def test_a_key_that_is_known_in_other_words_is_looked_into(items: list[dict[str, Any]]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"data": items})
        return httpx.Response(422, json={"code": "idempotency_key_reused"})

    async with pms_that(answer) as pms:
        outcome = await pms.create(booking())
    if items:
        assert outcome == Confirmed("5", {})
    else:
        assert isinstance(outcome, InDoubt)


# --- looking up ----------------------------------------------------------------------------------------------------------


def item(status: str | None = None, **more: Any) -> dict[str, Any]:
    stated = {} if status is None else {"status": status}
    return {"id": 5, "reference": booking().reference} | stated | more


@pytest.mark.parametrize(
    "items",
    [
        [item()],
        [item("Confirmed")],
        [item(reference="other"), item("CONFIRMED")],
        [item("REJECTED", id=4), item("CONFIRMED")],
        [item("CANCELLED", id=4), item("CONFIRMED")],
    ],
)
async def test_what_is_found_is_confirmed(items: list[dict[str, Any]]) -> None:
    assert await found({"data": items}) == Confirmed("5", {})


@pytest.mark.parametrize("items", [[], [item("REJECTED")], [item("declined"), item("REJECTED")]])
async def test_what_is_not_there_or_was_refused_is_absent(items: list[dict[str, Any]]) -> None:
    assert await found({"data": items}) == Absent()


async def test_what_was_cancelled_since_is_neither_made_again_nor_confirmed() -> None:
    outcome = await found({"data": [item("CANCELLED")]})
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "cancelled_in_pms"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"data": None},
        {"data": {}},
        {"data": [{"id": 5}]},
        {"data": [item(reference="other")]},
        {"data": ["5"]},
        {"data": [item("PENDING")]},
        {"data": [item(id=None)]},
        [],
        b"",
        b"<html>",
    ],
)
async def test_a_list_that_may_not_have_been_searched_decides_nothing(body: object) -> None:
    outcome = await found(body)
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_answer_not_understood"


@pytest.mark.parametrize("status", [201, 302, 401, 404, 429, 500, 503])
async def test_a_lookup_that_fails_is_put_off(status: int) -> None:
    assert isinstance(await found({"data": []}, status), Deferred)
