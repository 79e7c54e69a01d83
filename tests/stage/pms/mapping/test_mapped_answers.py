"""A mapped PMS on the wire: what its answers mean, by the mapping, and where the mapping does not say."""

from typing import Any

import httpx
import pytest

from forwarder.reservation.outcome import (
    Absent,
    Cancelled,
    CancelOutcome,
    Confirmed,
    Deferred,
    InDoubt,
    LookupOutcome,
    Outcome,
    Rejected,
)
from tests.support.cases import for_each
from tests.support.pms.kinds.mapped import CLOUDBEDS_LIKE, LODGIFY_LIKE
from tests.support.pms.kinds.open_pms import pms_that, response
from tests.support.simulator.server import CARD, booking

OURS = booking().reference
UNSAID = (
    "The PMS refused the reservation. It does not say why. Check propertyId, roomId, the dates, the number of guests, totalPrice "
    "and currency against what the property offers."
)
NO_PROPERTY = "The property is not known. The PMS says no more. Check propertyId."
TAKEN = "The room is not available. The PMS says no more. Check roomId, arrivalDate and departureDate."
SHOWN = {"create": {"path": "/b", "reservation": "result", "body": {"ref": "reference"}}}
STATES = {"path": "state", "confirmed": ["Booked", "1"], "cancelled": ["Cancelled", "Declined"]}
WITH_STATES: dict[str, Any] = {**SHOWN, "reservation": {"reference": "ref", "status": STATES}}
FILTERED: dict[str, Any] = {
    **WITH_STATES,
    "find": {"path": "/b", "query": {"ref": "reference"}, "items": "data"},
}


async def created(mapping: Any, status: int, body: object, **asked: Any) -> Outcome:
    async with pms_that(lambda _: response(status, body), options={"mapping": mapping}) as pms:
        return await pms.create(booking(**asked))


async def found(mapping: Any, *answers: tuple[int, object]) -> LookupOutcome:
    """What a look-up comes to that is answered so, page by page."""
    left = list(answers)

    def answer(_request: httpx.Request) -> httpx.Response:
        return response(*(left.pop(0) if len(left) > 1 else left[0]))

    async with pms_that(answer, options={"mapping": mapping}) as pms:
        return await pms.find(booking())


async def cancelled(mapping: Any, status: int, body: object) -> CancelOutcome:
    async with pms_that(lambda _: response(status, body), options={"mapping": mapping}) as pms:
        return await pms.cancel(booking(), "5")


def refused(outcome: object) -> str:
    assert isinstance(outcome, Rejected), outcome
    return outcome.problem.code


def deferred(outcome: object) -> str:
    assert isinstance(outcome, Deferred), outcome
    return outcome.reason


@for_each(
    "flag",
    [
        {"success": False},
        {"ok": 0, "message": "No."},
        {"error": "timeout"},
        {"errors": [{"message": "timeout"}]},
        {"status": "failed"},
        {"status": 500},
        {"status": False, "message": "No."},
        {"Success": False},
        {"success": "false"},
        {"isSuccess": False},
        {"result": "ERROR"},
        {"statusCode": "422"},
        {"status": {"code": 500}},
        {"meta": {"success": False}},
        {"Errors": ["timeout"]},
        {"error_message": "timeout"},
        {"errorCode": 17},
        {"hasErrors": True},
        {"fault": {"faultstring": "timeout"}},
        {"timed_out": True},
        {"incomplete_results": True},
    ],
)
async def test_a_200_that_says_no_is_neither_a_yes_nor_an_empty_list(flag: dict[str, Any]) -> None:
    assert deferred(await found(FILTERED, (200, {"data": [], **flag}))) == "pms_answer_not_understood"
    made = await created({"create": {**SHOWN["create"], "id": "id"}}, 200, {"id": 77, **flag})
    assert isinstance(made, InDoubt)
    assert (made.made, made.pms_reservation_id) == (True, None)


@for_each(
    "flag",
    [
        {"success": True, "error": None, "errors": []},
        {"status": 0, "ok": 1},
        {"status": "OK", "error": False},
        {"errorCode": 0, "errorMessage": "OK", "has_errors": False, "timed_out": False},
        {"result": "success", "meta": {"status": "ok", "code": 200, "total": 0}},
        {"Status": True, "code": 450, "fault": None, "error": "", "total": "0"},
    ],
)
async def test_a_200_that_says_yes_is_one(flag: dict[str, Any]) -> None:
    assert await found(FILTERED, (200, {"data": [], **flag})) == Absent()
    assert await created({"create": {**SHOWN["create"], "id": "id"}}, 200, {"id": 77, **flag}) == Confirmed("77")


async def test_a_200_that_refuses_in_words_and_shows_no_id_is_a_refusal_if_it_is_repeated() -> None:
    said = {"success": False, "message": "The dates are not available"}
    for mapping in (SHOWN, {"create": {"path": "/b", "id": "id"}}):
        assert deferred(await created(mapping, 200, said)) == "pms_refused_in_words"
        assert isinstance(await created(mapping, 200, {"success": False}), InDoubt)
        assert isinstance(await created(mapping, 200, {"success": False, "message": "Timed out"}), InDoubt)
        for with_id in ({**said, "id": 7}, {**said, "result": {"id": 7}}):
            assert isinstance(await created(SHOWN, 200, with_id), InDoubt)
    cancelling = {"method": "POST", "path": "/b/{pmsReservationId}", "success": {"status": [200], "has": ["done"]}}
    assert deferred(await cancelled({**SHOWN, "cancel": cancelling}, 200, said)) == "pms_refused_in_words"


@for_each(
    "body",
    [
        {"messages": ["No more units"]},
        {"errors": {"arrival": ["is in the past"]}},
        {"errors": {"arrival": "is in the past"}},
        {"errors": ["bad date"]},
        {"error": "bad date"},
    ],
)
async def test_a_reason_is_read_wherever_servers_put_it(body: object) -> None:
    assert deferred(await created(SHOWN, 422, body)) == "pms_refused_in_words"


async def test_a_cancellation_that_is_refused_because_it_was_made_before_is_one() -> None:
    cancel = {"method": "POST", "path": "/b/{pmsReservationId}"}
    mapping = {**SHOWN, "cancel": cancel, "message": "message"}
    rule = {"status": [422], "becomes": "cancellation_refused"}
    ruled = {**mapping, "cancel": {**cancel, "errors": [rule]}}
    for said in ("The reservation is already cancelled", "It has already been canceled", "Bereits storniert"):
        assert await cancelled(mapping, 409, {"message": said}) == Cancelled()
        assert await cancelled(ruled, 422, {"message": said}) == Cancelled()
    assert deferred(await cancelled(mapping, 409, {"message": "The guest has arrived"})) == "pms_refused_in_words"


@for_each("count", [{"total": 3}, {"count": "1"}, {"meta": {"total_count": 2}}])
async def test_an_empty_list_that_counts_reservations_proves_nothing(count: dict[str, Any]) -> None:
    paged = {**FILTERED, "find": {"path": "/b", "items": "data", "pages": {"query": "page"}}}
    for mapping in (FILTERED, paged):
        assert deferred(await found(mapping, (200, {"data": [], **count}))) == "pms_answer_not_understood"


async def test_a_bare_id_confirms() -> None:
    assert await created(LODGIFY_LIKE, 201, 70123) == Confirmed("70123")
    assert await created(LODGIFY_LIKE, 200, "R-5") == Confirmed("R-5")


@for_each(
    ("status", "body", "code", "detail"),
    [
        (500, {"code": 666, "message": "Room is not available"}, "room_unavailable", "Room is not available"),
        (500, {"code": 666, "message": "CLOSED to arrivals"}, "room_unavailable", "CLOSED to arrivals"),
        (500, {"code": 666, "message": "No."}, "pms_refused", "No."),
        (500, {"code": 666}, "pms_refused", UNSAID),
        (400, {"code": 900, "message": ["x"]}, "property_not_found", NO_PROPERTY),
        (400, {"code": 900, "message": "HTTP 400: Bad Request"}, "property_not_found", NO_PROPERTY),
        (409, b"<html>", "room_unavailable", TAKEN),
    ],
)
async def test_a_no_in_any_status(status: int, body: object, code: str, detail: str) -> None:
    outcome = await created(LODGIFY_LIKE, status, body)
    assert refused(outcome) == code
    assert isinstance(outcome, Rejected)
    assert outcome.problem.detail == detail


async def test_a_no_quotes_neither_guest_nor_card() -> None:
    said = {"code": 666, "message": "Maria Gonzalez may not pay by 4111111111111111"}
    outcome = await created(LODGIFY_LIKE, 500, said, card=CARD)
    assert isinstance(outcome, Rejected)
    assert "Maria" not in outcome.problem.detail
    assert "4111" not in outcome.problem.detail


async def test_rules_may_put_off_or_leave_in_doubt() -> None:
    assert deferred(await created(LODGIFY_LIKE, 500, {"code": 777})) == "pms_put_off"
    assert deferred(await created(LODGIFY_LIKE, 418, b"")) == "pms_put_off"
    assert isinstance(await created(LODGIFY_LIKE, 504, b""), InDoubt)


@for_each(
    ("status", "body"),
    [
        (500, b""),
        (500, b"<html>"),
        (500, {"code": "666"}),
        (500, {"code": 665, "message": "not available"}),
        (500, {"code": True}),
        (502, {"code": 666}),
        (503, b""),
        (200, b""),
        (201, {}),
        (201, []),
        (201, None),
        (201, True),
        (201, 5.5),
        (202, 70123),
        (204, b""),
    ],
)
async def test_what_the_mapping_does_not_decide_is_as_strict_as_ever(status: int, body: object) -> None:
    assert isinstance(await created(LODGIFY_LIKE, status, body), InDoubt)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "pms_unauthorized"),
        (403, "pms_unauthorized"),
        (429, "pms_throttled"),
        (400, "pms_refused_in_words"),
    ],
)
async def test_what_surely_did_nothing_is_put_off(status: int, reason: str) -> None:
    assert deferred(await created(LODGIFY_LIKE, status, {"message": "not available"})) == reason


@for_each("status", [301, 302, 303, 307, 308, 408, 500, 502, 503, 504, 524])
async def test_what_proxies_say_of_requests_that_were_carried_out_is_in_doubt(status: int) -> None:
    assert isinstance(await created(SHOWN, status, b""), InDoubt)
    assert isinstance(await created({"create": {"path": "/b", "keyHeader": "X-Key"}}, status, b""), InDoubt)


async def test_a_408_is_in_doubt_whatever_a_rule_says_of_it() -> None:
    rule = {"errors": [{"status": [408], "becomes": "deferred"}]}
    assert isinstance(await created({"create": {"path": "/b", **rule}}, 408, b""), InDoubt)


@for_each("body", [{"result": {}}, {"result": {"id": None}}, {"id": 5}, {"result": 5}, {"result": {"id": ""}}])
async def test_a_success_without_an_id_is_in_doubt(body: object) -> None:
    assert isinstance(await created(SHOWN, 200, body), InDoubt)


async def test_success_is_what_the_mapping_says() -> None:
    mapping = {"create": {"path": "/b", "success": {"status": [200], "when": {"ok": True, "error": None}}}}
    assert await created(mapping, 200, {"ok": True, "error": None, "id": 5}) == Confirmed("5")
    for status, body in (
        (201, {"ok": True, "error": None, "id": 5}),
        (400, {"ok": True, "error": None, "id": 5}),
        (200, {"ok": 1, "error": None, "id": 5}),
        (200, {"ok": True, "id": 5}),
        (200, {"ok": "true", "error": None, "id": 5}),
    ):
        assert isinstance(await created(mapping, status, body), InDoubt), (status, body)


async def test_success_and_its_contrary_are_in_doubt() -> None:
    rule = {"when": {"warning": "taken"}, "becomes": "room_unavailable"}
    mapping = {"create": {"path": "/b", "success": {"status": [200], "when": {"ok": True}}, "errors": [rule]}}
    assert isinstance(await created(mapping, 200, {"ok": True, "warning": "taken", "id": 5}), InDoubt)
    assert refused(await created(mapping, 200, {"ok": False, "warning": "taken"})) == "room_unavailable"


async def test_of_a_success_by_status_alone_a_rule_tells_the_exceptions() -> None:
    rule = {"status": [200], "when": {"status": "fail"}, "becomes": "room_unavailable"}
    mapping = {"create": {"path": "/b", "reservation": "result", "errors": [rule]}}
    assert refused(await created(mapping, 200, {"status": "fail", "message": "x"})) == "room_unavailable"
    assert await created(mapping, 200, {"status": "success", "result": {"id": 5}}) == Confirmed("5")


@for_each(
    ("shown", "outcome"),
    [
        ({"state": "booked"}, Confirmed),
        ({"state": 1}, Confirmed),
        ({"state": "Booked", "ref": OURS}, Confirmed),
        ({"state": "Booked", "ref": None}, Confirmed),
        ({"state": "Declined"}, Rejected),
        ({"state": "cancelled"}, Rejected),
        ({"state": " Canceled"}, Rejected),
        ({"state": "Pending"}, InDoubt),
        ({"state": ["Booked"]}, InDoubt),
        ({}, InDoubt),
        ({"state": "Booked", "ref": "another"}, InDoubt),
    ],
)
async def test_a_reservation_is_made_in_a_state(shown: dict[str, Any], outcome: type[Outcome]) -> None:
    assert isinstance(await created(WITH_STATES, 201, {"result": {"id": 5, **shown}}), outcome)


async def test_the_record_is_put_together_by_its_map() -> None:
    shown = {
        "id": 5,
        "source_text": OURS,
        "status": "Booked",
        "payment": {"link": "https://pay.test/5"},
        "total": "450.35",
        "currency": "EUR",
        "paid": 100,
        "taxes": 12.5,
        "key_code": 1234,
        "notes": "Card 4111111111111111",
    }
    outcome = await found(LODGIFY_LIKE, (200, {"items": [shown]}))
    assert outcome == Confirmed(
        "5",
        {
            "notes": "Card 411111******1111",
            "paymentUrl": "https://pay.test/5",
            "totalPrice": 450.35,
            "currency": "EUR",
            "codes": {"accessCode": ["1234"]},
            "finances": {
                "totalPrice": 450.35,
                "totalPaid": 100,
                "tax": {"totalTax": 12.5, "breakdown": [{"name": "Taxes", "type": "Tax", "total": 12.5}]},
            },
        },
    )


async def test_what_is_not_well_formed_is_left_out_of_the_record() -> None:
    shown = {"id": 5, "source_text": OURS, "status": "Booked", "total": True, "paid": {}, "taxes": "many", "notes": 5}
    assert await found(LODGIFY_LIKE, (200, {"items": [shown]})) == Confirmed("5", {})


async def test_a_card_number_that_the_pms_repeats_is_masked() -> None:
    mapping = {**SHOWN, "reservation": {"record": {"notes": "notes"}}}
    body = {"result": {"id": 5, "notes": "Card 4111 1111 1111 1111"}}
    assert await created(mapping, 201, body, card=CARD) == Confirmed("5", {"notes": "Card 411111******1111"})


def item(**more: Any) -> dict[str, Any]:
    return {"id": 5, "ref": OURS, "state": "Booked"} | more


@pytest.mark.parametrize(
    ("items", "outcome"),
    [
        ([], Absent()),
        ([item()], Confirmed("5")),
        ([item(id=4, state="Cancelled"), item()], Confirmed("5")),
        ([item(ref="another"), item()], Confirmed("5")),
    ],
)
async def test_a_filtered_list(items: list[Any], outcome: LookupOutcome) -> None:
    assert await found(FILTERED, (200, {"data": items})) == outcome


@for_each(
    ("body", "reason"),
    [
        ({"data": [item(state="Cancelled")]}, "cancelled_in_pms"),
        ({"data": [item(state="Cancelled"), item(state="Declined")]}, "cancelled_in_pms"),
        ({"data": [item(ref="another")]}, "pms_answer_not_understood"),
        ({"data": [{"id": 5}]}, "pms_answer_not_understood"),
        ({"data": ["5"]}, "pms_answer_not_understood"),
        ({"data": [item(state="Pending")]}, "pms_still_working"),
        ({"data": [item(state="Pending"), item(state="Declined")]}, "pms_still_working"),
        ({"data": [item(id=None)]}, "pms_answer_not_understood"),
        ({"data": {}}, "pms_answer_not_understood"),
        ({"data": None}, "pms_answer_not_understood"),
        ({}, "pms_answer_not_understood"),
        ([], "pms_answer_not_understood"),
        (b"<html>", "pms_answer_not_understood"),
    ],
)
async def test_a_list_that_decides_nothing(body: object, reason: str) -> None:
    assert deferred(await found(FILTERED, (200, body))) == reason


@for_each("status", [201, 302, 401, 404, 429, 500, 503])
async def test_a_lookup_that_fails_is_put_off(status: int) -> None:
    assert isinstance(await found(FILTERED, (status, {"data": []})), Deferred)


async def test_a_lookup_that_says_yes_in_a_wrong_status_says_nothing() -> None:
    find = {**FILTERED["find"], "success": {"status": [200], "when": {"ok": True}}}
    body = {"ok": True, "data": []}
    assert await found({**FILTERED, "find": find}, (200, body)) == Absent()
    assert deferred(await found({**FILTERED, "find": find}, (404, body))) == "pms_answer_not_understood"


OTHER = {"id": 4, "source_text": "another", "status": "Booked"}
MINE = {"id": 5, "source_text": OURS, "status": "Booked"}
NO_MORE: tuple[int, object] = (200, {"items": []})


async def test_a_list_without_a_filter_is_gone_through_to_its_end() -> None:
    page = (200, {"items": [OTHER]})
    assert await found(LODGIFY_LIKE, page, (200, {"items": [OTHER, MINE]})) == Confirmed("5")
    assert await found(LODGIFY_LIKE, page, NO_MORE) == Absent()
    assert await found(LODGIFY_LIKE, NO_MORE) == Absent()
    pages = [(200, {"items": [{**OTHER, "id": number}]}) for number in range(1000, 1050)]
    assert deferred(await found(LODGIFY_LIKE, *pages)) == "pms_lists_too_much"


async def test_a_list_that_hides_references_says_nothing() -> None:
    hidden = {"id": 4, "status": "Booked"}
    assert deferred(await found(LODGIFY_LIKE, (200, {"items": [OTHER, hidden]}), NO_MORE)) == "pms_scope_too_small"
    empty = {**OTHER, "source_text": None}
    assert await found(LODGIFY_LIKE, (200, {"items": [empty]}), NO_MORE) == Absent()


async def test_a_later_page_that_fails_is_put_off() -> None:
    assert isinstance(await found(LODGIFY_LIKE, (200, {"items": [OTHER]}), (500, b"")), Deferred)


async def test_a_rule_may_say_that_there_is_none() -> None:
    assert await found(LODGIFY_LIKE, (500, {"code": 404})) == Absent()


@pytest.mark.parametrize(
    ("mapping", "status", "body"),
    [
        (LODGIFY_LIKE, 204, b""),
        (LODGIFY_LIKE, 404, {"code": 404}),
        (CLOUDBEDS_LIKE, 200, {"success": True}),
        (CLOUDBEDS_LIKE, 200, {"success": False, "message": "Reservation not found"}),
    ],
)
async def test_a_cancellation(mapping: str, status: int, body: object) -> None:
    assert await cancelled(mapping, status, body) == Cancelled()


@for_each(
    ("mapping", "status", "body"),
    [
        (LODGIFY_LIKE, 404, b"<html>"),
        (LODGIFY_LIKE, 200, b""),
        (LODGIFY_LIKE, 500, {"code": 1}),
        (LODGIFY_LIKE, 401, b""),
        (LODGIFY_LIKE, 503, b""),
        (CLOUDBEDS_LIKE, 200, {"success": False, "message": "Try later"}),
        (CLOUDBEDS_LIKE, 200, b"<html>"),
        (CLOUDBEDS_LIKE, 500, {"success": True}),
    ],
)
async def test_a_cancellation_that_did_not_surely_happen_is_put_off(mapping: str, status: int, body: object) -> None:
    assert isinstance(await cancelled(mapping, status, body), Deferred)


async def test_a_cancellation_that_the_pms_refuses() -> None:
    outcome = await cancelled(LODGIFY_LIKE, 500, {"code": 666, "message": "Too late"})
    assert refused(outcome) == "cancellation_refused"


@pytest.mark.parametrize("error", [httpx.ReadError("gone"), httpx.ConnectError("no")])
async def test_an_exchange_that_fails(error: httpx.HTTPError) -> None:
    def fail(_request: httpx.Request) -> httpx.Response:
        raise error

    async with pms_that(fail, options={"mapping": LODGIFY_LIKE}) as pms:
        made = await pms.create(booking())
        assert isinstance(made, InDoubt if isinstance(error, httpx.ReadError) else Deferred)
        assert isinstance(await pms.find(booking()), Deferred)
        assert isinstance(await pms.cancel(booking(), "5"), Deferred)


async def test_what_was_made_under_another_mapping_is_not_taken_for_absent() -> None:
    asked = booking(propertyId="..", roomId=1)
    mapping = {**FILTERED, "find": {"path": "/p/{propertyId}", "query": {"r": "reference"}, "items": "data"}}
    async with pms_that(lambda _: response(200, {"data": []}), options={"mapping": mapping}) as pms:
        assert deferred(await pms.find(asked)) == "mapping_does_not_fit"


def shown(pms_id: str, reference: str = OURS, state: str = "Booked") -> dict[str, str]:
    return {"id": pms_id, "ref": reference, "state": state}


@for_each(
    ("listed", "doubles"),
    [
        ([shown("1")], ()),
        ([shown("1"), shown("2")], ("2",)),
        ([shown("1"), shown("1")], ()),  # one that is shown twice
        ([shown("1"), shown("2", state="Cancelled")], ()),
        ([shown("1", OURS[:30]), shown("2", OURS.upper()), shown("3")], ("2", "3")),
    ],
)
async def test_other_reservations_under_our_reference_are_told(
    listed: list[dict[str, str]], doubles: tuple[str, ...]
) -> None:
    outcome = await found(FILTERED, (200, {"data": listed}))
    assert isinstance(outcome, Confirmed)
    assert (outcome.pms_reservation_id, outcome.doubles) == ("1", doubles)


async def test_a_create_whose_answer_is_not_understood_gives_its_id_all_the_same() -> None:
    outcome = await created(WITH_STATES, 201, {"result": shown("4711", "HA-7QX2")})
    assert isinstance(outcome, InDoubt)
    assert (outcome.made, outcome.pms_reservation_id, outcome.status) == (True, "4711", 201)
