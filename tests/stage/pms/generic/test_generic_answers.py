"""The open PMS contract on the wire: what the answers to a create mean."""

import re
from typing import Any

import httpx
import pytest

from forwarder.pms.http.outcomes import REFUSALS
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Rejected
from tests.support.cases import for_each
from tests.support.pms.kinds.open_pms import created, pms_that, refused
from tests.support.simulator.server import CARD, booking


@for_each("status", [200, 201])
@for_each(("pms_id", "text"), [(5, "5"), ("R-5", "R-5"), (2**60, str(2**60))])
async def test_a_made_reservation_is_confirmed_with_its_id(status: int, pms_id: object, text: str) -> None:
    for body in ({"id": pms_id}, {"id": pms_id, "status": "CONFIRMED"}, {"id": pms_id, "status": "confirmed"}):
        assert await created(status, body) == Confirmed(text, {})


@for_each("flag", [{"success": False}, {"errors": ["timed out"]}])
async def test_one_that_says_no_with_an_id_is_in_doubt(flag: dict[str, Any]) -> None:
    outcome = await created(201, {"id": 5, **flag})
    assert isinstance(outcome, InDoubt)
    assert (outcome.made, outcome.pms_reservation_id) == (True, "5")


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
    ("source", [5, None, ["x"], "a\0b"]),
    ("codes", ["1234", {"accessCode": "1234"}, {"accessCode": [1234]}, {}]),
    ("notes", [7, {}]),
    ("paymentUrl", ["javascript:alert(1)", "pay.test", 5, "https://pay.test/a b"]),
    ("totalPrice", ["450.35", True, None, 1e15, {}]),
    ("currency", ["eur", "EURO", 5]),
    ("primaryGuest", ["Maria", {"name": "Maria"}, {"name": 5, "emails": [], "mobileNumbers": []}]),
    ("finances", ["450", 5, [1]]),
]


@for_each(("field", "values"), WRONG_SHAPES)
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


@for_each(
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
        {"id": 5, "status": ""},
        {"id": 5, "status": 0},
        {"id": 5, "status": False},
        {"id": 5, "status": []},
        {"id": 5, "reference": "rsv_somebody_else's"},
    ],
)
async def test_an_answer_that_is_not_understood_leaves_the_reservation_in_doubt(body: object) -> None:
    for status in (200, 201):
        outcome = await created(status, body)
        assert isinstance(outcome, InDoubt)
        assert outcome.reason == "pms_answer_not_understood"


@for_each("status", [400, 404, 409, 422])
@for_each("code", sorted(REFUSALS))
async def test_a_no_keeps_its_code(status: int, code: str) -> None:
    outcome = await created(status, {"code": code, "title": "No", "detail": "For a reason."})
    assert refused(outcome) == code
    assert isinstance(outcome, Rejected)
    assert outcome.problem.title == REFUSALS[code]
    assert outcome.problem.detail == "For a reason."


@for_each("status", [409, 422])
@for_each("body", [{"code": "moon_phase"}, {"code": 5}, {"title": "No"}, {}, [], b"", b"<html>", b"{"])
async def test_any_other_no_is_a_no_all_the_same(status: int, body: object) -> None:
    assert refused(await created(status, body)) == "pms_refused"


@for_each("detail", [None, "", "Bad Request", "400 bad request", "HTTP error 422: Unprocessable Entity.", "409"])
@for_each("code", sorted(REFUSALS))
async def test_a_no_without_a_reason_says_so_and_names_what_to_check(code: str, detail: str | None) -> None:
    outcome = await created(422, {"code": code, "detail": detail})
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == code
    assert re.search(r"says? no more|not say", outcome.problem.detail)
    assert re.search(r"(Check|Ask) [a-z]", outcome.problem.detail)


@pytest.mark.parametrize("detail", ["Δεν υπάρχει", "No", "Bad request: no such rate plan", "満室"])
async def test_a_reason_in_any_language_is_kept(detail: str) -> None:
    outcome = await created(422, {"code": "pms_refused", "detail": detail})
    assert isinstance(outcome, Rejected)
    assert outcome.problem.detail == detail


@pytest.mark.parametrize("body", [b"", b"<html>", {}, {"title": "Bad Request"}])
async def test_a_bare_400_says_in_the_callers_words_that_no_reason_was_given(body: object) -> None:
    outcome = await created(400, body)
    assert isinstance(outcome, Deferred)
    assert outcome.detail.startswith(
        "The PMS refused the request without saying why (HTTP 400). Check propertyId, roomId,"
    )


@for_each("status", [400, 404])
@for_each(
    "body",
    [
        {"code": "not_found"},
        {"code": ["room_not_found"]},
        {"code": {}},
        {"detail": "Not Found"},
        b"<html>404</html>",
        b"",
    ],
)
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
        assert outcome.problem.detail.startswith("The room is not available. The PMS says no more.")


@for_each(
    ("body", "media_type", "sure"),
    [
        ({"code": "nothing_done"}, "application/problem+json", True),
        ({"code": "nothing_done"}, "Application/Problem+JSON; charset=utf-8", True),
        ({"code": "nothing_done"}, "application/json", False),
        ({"code": "unavailable"}, "application/problem+json", False),
        ({"code": ["nothing_done"]}, "application/problem+json", False),
        ([], "application/problem+json", False),
    ],
)
async def test_a_503_is_sure_only_where_the_pms_itself_says_so(body: object, media_type: str, *, sure: bool) -> None:
    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(503, json=body, headers={"Content-Type": media_type, "Retry-After": "9"})

    async with pms_that(answer) as pms:
        outcome = await pms.create(booking())
    assert isinstance(outcome, Deferred if sure else InDoubt)
    assert (outcome.reason, outcome.retry_after_seconds) == ("pms_unavailable", 9.0)


@pytest.mark.parametrize("status", [500, 502, 504, 408])
async def test_no_other_status_is_sure_by_the_words_of_a_503(status: int) -> None:
    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            status, json={"code": "nothing_done"}, headers={"Content-Type": "application/problem+json"}
        )

    async with pms_that(answer) as pms:
        assert isinstance(await pms.create(booking()), InDoubt)


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


async def test_words_about_the_server_are_no_refusal_unless_a_code_says_so() -> None:
    said = {"detail": "The service is unavailable"}
    assert isinstance(await created(422, said), InDoubt)
    assert refused(await created(422, {**said, "code": "room_unavailable"})) == "room_unavailable"
