"""Who sends a submission again without our header gets the earlier one: at the door where this process accepted that, else by the
worker's word."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from forwarder.reservation.cancellation import Cancellation, CancellationStatus
from forwarder.reservation.outcome import Status
from forwarder.topics.codec import decode_submission
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, CARD, GENERAL, changed
from tests.support.stages.contract_stages import contract_stages
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, BULK_PATH, GENERAL_PATH, OTHER_ACCOUNT, Stages

WINDOW = 300
PAID = BOOKING_ENGINE
UNPAID = changed(BOOKING_ENGINE, "transactionId", ABSENT)
AT_ONCE = {"Prefer": "respond-async"}


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    """With the accounts' usual duplicate window."""
    async with contract_stages() as opened:
        accounts = opened.directory.accounts.items()
        opened.directory.accounts = {
            name: replace(account, duplicate_window_seconds=WINDOW) for name, account in accounts
        }
        yield opened


async def post(house: Stages, body: dict[str, Any] = UNPAID, key: str | None = None, **headers: str) -> httpx.Response:
    keyed = {} if key is None else {"Idempotency-Key": key}
    return await house.client.post(BOOKING_ENGINE_PATH, json=body, headers={**keyed, **headers})


def request_id(answer: httpx.Response) -> str:
    assert answer.status_code == 202, answer.text
    return str(answer.json()["data"]["requestId"])


def is_repetition(again: httpx.Response, first: httpx.Response) -> bool:
    """Whether it says so, in its header and in its body; both or neither."""
    said = again.headers.get("duplicate-of")
    data = again.json()["data"]
    assert (said is not None) is (data.get("duplicate") is True)
    assert said in {None, request_id(first)}
    assert said in {None, data["requestId"]}
    return said is not None


async def test_what_is_sent_again_is_the_earlier_one(house: Stages) -> None:
    first = await post(house)
    again = await post(house)
    assert not is_repetition(first, first)
    assert is_repetition(again, first)
    assert again.headers["location"] == first.headers["location"]
    assert again.json()["data"]["acceptedAt"] == first.json()["data"]["acceptedAt"]
    assert len(house.requests) == 1


_SAME = {
    "names in other letters": ("guest.name", "  ana   RUIZ "),
    "an address in other letters": ("guest.email", "Ana.Ruiz@EXAMPLE.com"),
    "a number as a text": ("propertyId", "1001"),
    "a phone number with blanks": ("guest.phone", "34600 111222"),
    "a price with more zeros": ("totalPrice", 480.50),
    "other notes": ("notes", "Early arrival"),
    "a card": ("cardDetails", CARD),
}
_OTHER = {
    "another day": ("departureDate", "2027-06-06"),
    "another room": ("roomId", "A-8"),
    "another property": ("propertyId", 1002),
    "another guest": ("guest.firstName", "Eva"),
    "another address": ("guest.email", "eva.ruiz@example.com"),
    "another phone number": ("guest.phone", 34600111223),
    "another price": ("totalPrice", 480.51),
    "another currency": ("currency", "USD"),
    "a transaction": ("transactionId", "tx-2"),
}


@pytest.mark.parametrize("change", _SAME.values(), ids=_SAME)
async def test_how_it_is_written_does_not_matter(house: Stages, change: tuple[str, Any]) -> None:
    first = await post(house)
    assert is_repetition(await post(house, changed(UNPAID, *change)), first)


@pytest.mark.parametrize("change", _OTHER.values(), ids=_OTHER)
async def test_what_asks_for_something_else_is_another(house: Stages, change: tuple[str, Any]) -> None:
    first = await post(house)
    assert not is_repetition(await post(house, changed(UNPAID, *change)), first)
    assert len(house.requests) == 2


async def test_the_other_operation_and_the_other_account_are_another(house: Stages) -> None:
    await post(house)
    await house.client.post(BOOKING_ENGINE_PATH, json=UNPAID, headers=OTHER_ACCOUNT)
    await house.client.post(GENERAL_PATH, json=UNPAID, headers=AT_ONCE)
    assert len(house.requests) == 3
    keys = {natural.key for each in house.requests if (natural := decode_submission(each).natural) is not None}
    assert len(keys) == 3


async def test_the_window_is_the_accounts(house: Stages) -> None:
    first = await post(house)
    house.ingest(house.requests[0], Status.CONFIRMED)
    await house.clock.advance(WINDOW - 0.001)
    assert is_repetition(await post(house), first)
    await house.clock.advance(0.001)
    assert not is_repetition(await post(house), first)
    assert len(house.requests) == 2


async def test_without_a_window_each_is_its_own(house: Stages) -> None:
    accounts = house.directory.accounts
    house.directory.accounts = {
        name: replace(account, duplicate_window_seconds=0) for name, account in accounts.items()
    }
    for _ in range(2):
        await post(house)
    assert len(house.requests) == 2
    assert decode_submission(house.requests[0]).natural is None


@pytest.mark.parametrize("status", [Status.PENDING, Status.IN_DOUBT])
async def test_what_is_not_decided_is_repeated_at_any_time(house: Stages, status: Status) -> None:
    first = await post(house)
    house.ingest(house.requests[0], status)
    await house.clock.advance(10 * WINDOW)
    assert is_repetition(await post(house), first)


@pytest.mark.parametrize("status", [Status.REJECTED, Status.FAILED, Status.CANCELLED])
async def test_what_came_to_nothing_may_be_asked_for_again(house: Stages, status: Status) -> None:
    first = await post(house)
    house.ingest(house.requests[0], status)
    assert not is_repetition(await post(house), first)
    assert len(house.requests) == 2


async def test_what_is_to_be_cancelled_may_be_asked_for_again(house: Stages) -> None:
    first = await post(house)
    cancellation = Cancellation(CancellationStatus.REQUESTED, "2027-01-01T00:00:00.000Z", None)
    house.ingest(house.requests[0], cancellation=cancellation)
    assert not is_repetition(await post(house), first)


async def test_a_transaction_is_the_same_at_any_time(house: Stages) -> None:
    first = await post(house, PAID)
    house.ingest(house.requests[0], Status.CONFIRMED)
    await house.clock.advance(100 * 24 * 3600)
    assert is_repetition(await post(house, PAID), first)


@pytest.mark.parametrize("ingested", [False, True])
async def test_a_transaction_used_for_something_else_is_refused_at_once(house: Stages, ingested: bool) -> None:
    first = await post(house, PAID)
    if ingested:
        house.ingest(house.requests[0], Status.CONFIRMED)
    refused = await post(house, changed(PAID, "totalPrice", 1))
    assert (refused.status_code, refused.json()["code"]) == (409, "transaction_reused")
    assert refused.json()["transactionOf"] == request_id(first)
    assert request_id(first) in refused.json()["detail"]
    assert len(house.requests) == 1


async def test_a_transaction_whose_reservation_was_refused_is_free_again(house: Stages) -> None:
    await post(house, PAID)
    house.ingest(house.requests[0], Status.REJECTED)
    assert (await post(house, changed(PAID, "totalPrice", 1))).status_code == 202


async def test_two_keys_are_two(house: Stages) -> None:
    answers = [await post(house, PAID, key=f"order-{number}") for number in range(2)]
    assert len({request_id(answer) for answer in answers}) == 2
    assert [decode_submission(each).natural.keyed for each in house.requests] == [True, True]  # type: ignore[union-attr]


async def test_without_the_store_the_worker_decides(house: Stages) -> None:
    await post(house)
    house.reader.away = True
    assert (await post(house)).status_code == 202
    assert len(house.requests) == 2


async def test_no_store_is_asked_for_what_is_new(house: Stages) -> None:
    for number in range(3):
        await post(house, changed(UNPAID, "roomId", number))
    assert house.reader.reads == 0


async def test_a_publish_that_failed_is_not_remembered(house: Stages) -> None:
    house.log.away = True
    assert (await post(house)).status_code == 503
    house.log.away = False
    answer = await post(house)
    assert not is_repetition(answer, answer)
    assert len(house.requests) == 1


async def test_nothing_of_a_card_or_a_guest_is_in_the_keys(house: Stages) -> None:
    await post(house, changed(PAID, "cardDetails", CARD))
    await post(house, changed(PAID, "cardDetails", {**CARD, "cardNumber": "5555555555554444"}))
    assert len(house.requests) == 1
    natural = decode_submission(house.requests[0]).natural
    assert natural is not None
    assert len(natural.key) == len(natural.transaction or "") == 20


# --- who waits ---


async def waiting(house: Stages, body: dict[str, Any] = UNPAID, **more: str) -> asyncio.Task[httpx.Response]:
    return asyncio.create_task(post(house, body, Prefer="wait=30", **more))


async def test_who_waits_is_told_the_earlier_ones_outcome(house: Stages) -> None:
    first = await waiting(house)
    message = await house.requested()
    again = await waiting(house)
    await house.clock.advance(1)
    stored = await house.settle(message, Status.CONFIRMED, pms_reservation_id="pms-1")
    answers = await asyncio.gather(first, again)
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].content == answers[1].content
    assert [answer.headers.get("duplicate-of") for answer in answers] == [None, stored.request_id]
    assert len(house.requests) == 1


@pytest.mark.parametrize("decided", [False, True])
async def test_so_is_who_learns_only_from_the_worker_that_it_is_one(house: Stages, decided: bool) -> None:
    """The first was accepted by another process."""
    first = await waiting(house, key="one")
    message = await house.requested()
    stored = house.ingest(message)
    again = await waiting(house)
    second = await house.requested(2)
    if decided:
        await house.settle(message, Status.CONFIRMED, pms_reservation_id="pms-1")
        await house.repeat(second, stored)
    else:
        await house.repeat(second, stored)
        await house.clock.advance(1)
        await house.settle(message, Status.CONFIRMED, pms_reservation_id="pms-1")
    answers = await asyncio.gather(first, again)
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[1].headers["duplicate-of"] == stored.request_id


async def test_the_wait_for_both_is_no_longer_than_was_asked_for(house: Stages) -> None:
    first = await post(house, key="one")
    stored = house.ingest(house.requests[0])
    again = await waiting(house)
    second = await house.requested(2)
    await house.clock.advance(20)
    await house.repeat(second, stored)
    await house.clock.advance(10)
    answer = await again
    assert is_repetition(answer, first)
    assert answer.json()["data"]["status"] == "PENDING"


async def test_a_refusal_is_the_outcome_too(house: Stages) -> None:
    first = await waiting(house)
    message = await house.requested()
    again = await waiting(house)
    await house.clock.advance(1)
    problem = {"type": "/problems/rejected", "title": "No", "status": 409, "detail": "No.", "code": "rejected"}
    await house.settle(message, Status.REJECTED, problem=problem)
    answers = await asyncio.gather(first, again)
    assert [answer.status_code for answer in answers] == [409, 409]
    assert "duplicate-of" in answers[1].headers


# --- what a duplicate's own request id leads to ---


async def test_a_key_that_turned_out_to_be_a_repetition_still_has_its_body(house: Stages) -> None:
    first = await post(house)
    stored = house.ingest(house.requests[0])
    await post(house, key="late")
    await house.repeat(house.requests[1], stored)
    again = await post(house, key="late")
    assert is_repetition(again, first)
    other = await post(house, changed(UNPAID, "notes", "another body"), key="late")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert len(house.requests) == 2


async def test_its_status_is_the_earlier_ones(house: Stages) -> None:
    first = await post(house)
    second = await post(house, key="late")
    own = (await house.client.get(second.headers["location"])).json()["data"]
    assert (own["requestId"], own["status"]) == (request_id(second), "PENDING")
    stored = house.ingest(house.requests[0], Status.CONFIRMED, pms_reservation_id="pms-1")
    await house.repeat(house.requests[1], stored)
    shown = [await house.client.get(each.headers["location"]) for each in (first, second)]
    assert shown[0].content == shown[1].content
    assert [each.headers.get("duplicate-of") for each in shown] == [None, request_id(first)]
    tag = {"If-None-Match": shown[1].headers["etag"]}
    assert (await house.client.get(second.headers["location"], headers=tag)).status_code == 304


async def test_who_polls_for_it_hears_the_earlier_ones_outcome(house: Stages) -> None:
    await post(house)
    second = await post(house, key="late")
    stored = house.ingest(house.requests[0])
    polling = asyncio.create_task(house.client.get(second.headers["location"], headers={"Prefer": "wait=30"}))
    await house.clock.advance(1)
    await house.repeat(house.requests[1], stored)
    await house.clock.advance(1)
    assert not polling.done()
    await house.settle(house.requests[0], Status.CONFIRMED, pms_reservation_id="pms-1")
    answer = await polling
    assert answer.json()["data"]["status"] == "CONFIRMED"
    assert answer.headers["duplicate-of"] == stored.request_id


async def test_who_cancels_it_cancels_the_earlier_one(house: Stages) -> None:
    first = await post(house)
    second = await post(house, key="late")
    await house.repeat(house.requests[1], house.ingest(house.requests[0]))
    answer = await house.client.post(f"/api/v1/vrs/reservations/{request_id(second)}/cancel")
    assert answer.json()["data"]["requestId"] == request_id(first)
    assert house.published()["requestId"] == request_id(first)


# --- bulks ---


async def bulk(house: Stages, *items: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await house.client.post(BULK_PATH, json=list(items))
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["data"]["results"]
    return results


def item(reservation: dict[str, Any] = UNPAID, **more: Any) -> dict[str, Any]:
    return {"operation": "booking-engine", "reservation": reservation, **more}


async def test_items_may_repeat_one_another_and_what_came_before(house: Stages) -> None:
    before = await post(house, changed(UNPAID, "roomId", "Z"))
    results = await bulk(
        house, item(), item(), item(changed(UNPAID, "roomId", "Z")), item(idempotencyKey="own"), item(GENERAL | UNPAID)
    )
    ids = [each["requestId"] for each in results]
    assert [each.get("duplicate") for each in results] == [None, True, True, None, True]
    assert (ids[1], ids[2], ids[4]) == (ids[0], request_id(before), ids[0])
    assert len(house.requests) == 3
    again = await bulk(house, item(), item(changed(UNPAID, "roomId", "Y")))
    assert [each.get("duplicate") for each in again] == [True, None]


async def test_a_bulk_that_is_sent_again_adds_nothing(house: Stages) -> None:
    items = [item(changed(UNPAID, "roomId", number)) for number in range(30)]
    first = await bulk(house, *items)
    reads = house.reader.reads
    again = await bulk(house, *items)
    assert [each["requestId"] for each in again] == [each["requestId"] for each in first]
    assert (len(house.requests), house.reader.reads) == (30, reads + 1)


# --- the hint ---


async def test_the_first_answer_without_a_key_names_it_once(house: Stages) -> None:
    answers = [
        await post(house, changed(UNPAID, "roomId", number), key="k" if number == 0 else None) for number in range(4)
    ]
    assert [answer.headers.get("link") for answer in answers] == [
        None,
        '</docs#submitBookingEngineReservation>; rel="help"; title="Idempotency-Key"',
        None,
        None,
    ]
    assert (await house.client.get("/docs")).status_code == 200
