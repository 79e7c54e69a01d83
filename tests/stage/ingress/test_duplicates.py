"""Who sends a submission again without our header gets the earlier one: at the door where this process accepted that, else by the
worker's word."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import httpx
import pytest
from pydantic_core import to_json

from forwarder.ingress.message import IngressSettings
from forwarder.process.clock import iso
from forwarder.reservation.outcome import Cancellation, CancellationStatus, Status
from forwarder.store.lists.port import SimilarSubmission
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.topics.codec import decode_submission, encode_conflict, encode_duplicate
from forwarder.topics.port import Message
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, CARD, GENERAL, changed
from tests.support.stages.contract_stages import contract_stages
from tests.support.stages.http_stages import (
    BOOKING_ENGINE_PATH,
    BULK_PATH,
    GENERAL_PATH,
    OTHER_ACCOUNT,
    OTHER_WORKSPACE,
    RESULTS,
    Stages,
    stages,
)

WINDOW = 300
PAID = BOOKING_ENGINE
UNPAID = changed(BOOKING_ENGINE, "transactionId", ABSENT)
AT_ONCE = {"Prefer": "respond-async"}


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    """With the accounts' usual duplicate window."""
    async with contract_stages() as opened:
        set_windows(opened)
        yield opened


def set_windows(house: Stages, seconds: int = WINDOW) -> None:
    accounts = house.directory.accounts.items()
    house.directory.accounts = {name: replace(account, duplicate_window_seconds=seconds) for name, account in accounts}


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
    first = await ingested(house)
    again = await post(house)
    assert not is_repetition(first, first)
    assert is_repetition(again, first)
    assert again.headers["location"] == first.headers["location"]
    assert again.json()["data"]["acceptedAt"] == first.json()["data"]["acceptedAt"]
    assert len(house.requests) == 1


async def ingested(house: Stages, body: dict[str, Any] = UNPAID, status: Status = Status.PENDING) -> httpx.Response:
    """The answer to a submission that a worker has ingested."""
    answer = await post(house, body)
    house.ingest(house.requests[-1], status)
    return answer


_SAME = {
    "names in other letters": ("guest.name", "  ana   RUIZ "),
    "an address in other letters": ("guest.email", "Ana.Ruiz@EXAMPLE.com"),
    "a number as a text": ("propertyId", "1001"),
    "a phone number with blanks": ("guest.phone", "34600 111222"),
    "a phone number as a person writes it": ("guest.phone", "+34 600-111222"),
    "a price with more zeros": ("totalPrice", 480.50),
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
    "other notes": ("notes", "Early arrival"),
    "a card": ("cardDetails", CARD),
    "a street": ("guest.address.line1", "Calle Menor 2"),
    "a promotion": ("promotionCode", "WINTER-9"),
    "a pet": ("numberOfPets", 1),
}
_SIMILAR = _OTHER.keys() - {"another day", "another property", "another guest", "another address"}


@pytest.mark.parametrize("change", _SAME.values(), ids=_SAME)
async def test_how_it_is_written_does_not_matter(house: Stages, change: tuple[str, Any]) -> None:
    first = await ingested(house)
    assert is_repetition(await post(house, changed(UNPAID, *change)), first)


@pytest.mark.parametrize("name", _OTHER)
async def test_what_asks_for_something_else_is_another(house: Stages, name: str) -> None:
    """And says so where it is for the same stay and guest."""
    first = await ingested(house)
    again = await post(house, changed(UNPAID, *_OTHER[name]))
    assert not is_repetition(again, first)
    assert len(house.requests) == 2
    similar = [request_id(first)] if name in _SIMILAR else None
    assert again.json()["data"].get("similarTo") == similar
    assert [each["code"] for each in again.json().get("warnings", ())] == (["similar_submission"] if similar else [])


async def test_before_a_worker_ingests_it_what_is_sent_again_is_not_told_as_another(house: Stages) -> None:
    """It is not known here what the worker will say, but it is no reservation of its own that anyone should cancel."""
    await post(house)
    again = (await post(house)).json()
    (kept,) = await bulk(house, item(UNPAID))
    assert not {"similarTo", "warnings"} & (again["data"].keys() | again.keys() | kept.keys())
    other = (await post(house, changed(UNPAID, "notes", "Late"))).json()
    assert [each["code"] for each in other["warnings"]] == ["similar_submission"]


@pytest.mark.parametrize("change", [{"cvv": "999"}, {"expiryMonth": "11"}, {"cardNumber": "4111111111111129"}])
async def test_another_card_that_looks_the_same_is_another(house: Stages, change: dict[str, str]) -> None:
    first = await ingested(house, changed(UNPAID, "cardDetails", CARD))
    assert is_repetition(await post(house, changed(UNPAID, "cardDetails", CARD)), first)
    assert not is_repetition(await post(house, changed(UNPAID, "cardDetails", {**CARD, **change})), first)


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
    set_windows(house, 0)
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
    """However the phone number is written; what else differs is said not to be taken over."""
    first = await post(house, PAID)
    house.ingest(house.requests[0], Status.CONFIRMED)
    await house.clock.advance(100 * 24 * 3600)
    assert is_repetition(await post(house, PAID), first)
    again = await post(house, changed(PAID, "guest.phone", "0034 600 111 223"))
    assert is_repetition(again, first)
    (warning,) = again.json()["warnings"]
    assert warning["code"] == "sent_again"
    assert "not taken over" in warning["detail"]


@pytest.mark.parametrize("transaction", ["tx-1", "0", "CASH"])
async def test_a_transaction_may_pay_for_several(house: Stages, transaction: str) -> None:
    paid = changed(UNPAID, "transactionId", transaction)
    for number, change in enumerate([("roomId", "A-8"), ("totalPrice", 1), ("guest.firstName", "Eva")], 1):
        first = await ingested(house, paid)
        assert not is_repetition(await post(house, changed(paid, *change)), first)
        house.ingest(house.requests[-1])
        assert len(house.requests) == 1 + number


async def test_two_keys_are_two(house: Stages) -> None:
    answers = [await post(house, PAID, key=f"order-{number}") for number in range(2)]
    assert len({request_id(answer) for answer in answers}) == 2
    assert [decode_submission(each).natural.keyed for each in house.requests] == [True, True]  # type: ignore[union-attr]


async def test_what_is_not_in_the_store_is_the_workers_to_decide(house: Stages) -> None:
    """Of what was accepted here nobody knows whether the log still has it, or whether it was cancelled elsewhere."""
    first, again = await post(house), await post(house)
    assert not is_repetition(again, first)
    assert len(house.requests) == 2


async def test_what_was_cancelled_here_is_not_what_is_sent_again(house: Stages) -> None:
    """Though the store does not show its cancellation yet."""
    first = await ingested(house, status=Status.CONFIRMED)
    await house.clock.advance(1)
    await house.client.post(f"/api/v1/vrs/reservations/{request_id(first)}/cancel")
    await house.clock.advance(1)
    again = await post(house, Prefer="wait=0")
    assert not is_repetition(again, first)


async def cancel(house: Stages, submission: httpx.Response | str) -> None:
    named = submission if isinstance(submission, str) else request_id(submission)
    told = await house.client.post(f"/api/v1/vrs/reservations/{named}/cancel", headers=AT_ONCE)
    assert told.status_code == 202, told.text


async def test_a_cancellation_is_remembered_as_long_as_its_submission(house: Stages) -> None:
    """However far behind the workers are."""
    first = await ingested(house)
    other = await post(house, changed(UNPAID, "propertyId", 2002))
    await house.clock.advance(1)
    await cancel(house, first)
    await house.clock.advance(3_600)
    await cancel(house, other)
    assert not is_repetition(await post(house), first)


async def test_when_there_are_too_many_cancellations_the_worker_decides() -> None:
    """None is forgotten alone: a cancelled submission would answer the next one like it."""
    async with stages(IngressSettings(max_keys_remembered=6)) as house:
        set_windows(house)
        first, other = await ingested(house), await ingested(house, PAID)
        await house.clock.advance(1)
        assert is_repetition(await post(house, PAID), other)
        await cancel(house, first)
        await house.clock.advance(1)
        for _ in range(6):
            await cancel(house, house.ids.issue("alpha-1", house.clock.now()))
        assert not is_repetition(await post(house, PAID), other)
        assert not is_repetition(await post(house), first)


async def test_a_cancellation_that_came_to_nothing_leaves_the_earlier_one(house: Stages) -> None:
    """The store has the moment to the millisecond, this process to the microsecond."""
    first = await post(house)
    await house.clock.advance(1.000_4)
    await cancel(house, first)
    failed = Cancellation(CancellationStatus.FAILED, iso(house.clock.now()), None)
    house.ingest(house.requests[0], Status.CONFIRMED, cancellation=failed)
    await house.clock.advance(1)
    assert is_repetition(await post(house), first)
    await cancel(house, first)
    await house.clock.advance(1)
    assert not is_repetition(await post(house), first)


@pytest.mark.parametrize("most", [2, 8])
async def test_at_least_half_of_the_number_are_remembered_and_no_more_than_that_number(most: int) -> None:
    async with stages(IngressSettings(max_keys_remembered=most)) as house:
        set_windows(house)
        bodies = [changed(UNPAID, "propertyId", number) for number in range(most // 2)]
        first, *_ = [await ingested(house, body) for body in bodies]
        assert is_repetition(await post(house, bodies[0]), first)
        alike = [await post(house, changed(UNPAID, "notes", f"Late {number}")) for number in range(20)]
        known = [len(answer.json()["data"]["similarTo"]) for answer in alike[most:]]
        assert most // 2 <= min(known)
        assert max(known) <= most


async def test_without_the_store_the_worker_decides(house: Stages) -> None:
    await ingested(house)
    house.reader.away = True
    assert (await post(house)).status_code == 202
    assert len(house.requests) == 2


async def test_no_store_is_asked_for_what_is_new(house: Stages) -> None:
    for number in range(3):
        await post(house, changed(UNPAID, "propertyId", number))
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
    natural = decode_submission(house.requests[0]).natural
    assert natural is not None
    keys = (natural.key, natural.transaction, natural.same, natural.stay)
    assert [len(each or "") for each in keys] == [20] * 4


# --- an account that refuses what is similar ---


@pytest.fixture
def strict(house: Stages) -> Stages:
    house.directory.accounts = {
        name: replace(account, similar="refuse") for name, account in house.directory.accounts.items()
    }
    return house


def known_to_the_store(message: Message) -> SimilarSubmission:
    submission = decode_submission(message)
    same = None if submission.natural is None else submission.natural.same
    reservation = to_json(dict(submission.reservation))
    return SimilarSubmission(submission.request_id, Status.PENDING, submission.accepted_at, reservation, same)


@pytest.mark.parametrize("ingested", [False, True])
async def test_similar_ones_are_refused_where_the_account_says_so(strict: Stages, ingested: bool) -> None:
    first = await post(strict)
    if ingested:
        strict.ingest(strict.requests[0])
        strict.reader.similar_ones = [known_to_the_store(strict.requests[0])]
    refused = await post(strict, changed(changed(UNPAID, "notes", "Late"), "numberOfPets", 1))
    assert (refused.status_code, refused.json()["code"]) == (409, "similar_submission")
    assert refused.json()["similarTo"] == [request_id(first)]
    assert refused.json()["differing"] == (["/notes", "/numberOfPets"] if ingested else [])
    (item_refused,) = await bulk(strict, item(changed(UNPAID, "notes", "Late")))
    assert item_refused["problem"]["code"] == "similar_submission"
    assert len(strict.requests) == 1
    # What has a key of its own is meant, and what is for another guest is nothing of the kind.
    assert (await post(strict, changed(UNPAID, "notes", "Late"), key="own")).status_code == 202
    strict.reader.similar_ones = []
    assert (await post(strict, changed(UNPAID, "guest.firstName", "Eva"))).status_code == 202


async def test_beside_what_failed_they_are_not_refused_though_this_process_accepted_it(strict: Stages) -> None:
    await ingested(strict, status=Status.FAILED)
    assert (await post(strict, changed(UNPAID, "notes", "Late"))).status_code == 202


async def test_without_a_guest_nothing_is_similar_there(strict: Stages) -> None:
    unnamed = changed(GENERAL, "guest", {"phone": "+34 600 111 222"})
    assert (await strict.client.post(GENERAL_PATH, json=unnamed, headers=AT_ONCE)).status_code == 202
    strict.ingest(strict.requests[0], Status.CONFIRMED)
    strict.reader.similar_ones = [replace(known_to_the_store(strict.requests[0]), status=Status.CONFIRMED)]
    await strict.clock.advance(WINDOW)
    assert (await strict.client.post(GENERAL_PATH, json=unnamed, headers=AT_ONCE)).status_code == 202
    assert len(strict.requests) == 2


async def test_what_another_ingress_accepted_is_not_refused_when_it_is_sent_again(strict: Stages) -> None:
    """The worker recognises it."""
    paid = changed(PAID, "cardDetails", CARD)
    async with contract_stages() as elsewhere:
        set_windows(elsewhere)
        for body in (UNPAID, paid):
            await post(elsewhere, body)
        unpaid_one, paid_one = map(known_to_the_store, elsewhere.requests)
    strict.reader.similar_ones = [unpaid_one]
    assert (await post(strict)).status_code == 202
    refused = await post(strict, changed(UNPAID, "notes", "Late"))
    assert (refused.status_code, refused.json()["differing"]) == (409, ["/notes"])
    # What a transaction pays for is the same whatever its notes, and a card that looks the same is another.
    strict.reader.similar_ones = [paid_one]
    assert (await post(strict, changed(paid, "notes", "Late"))).status_code == 202
    assert len(strict.requests) == 2


async def test_a_cancellation_that_came_to_nothing_leaves_the_refusal(strict: Stages) -> None:
    first = await post(strict)
    await strict.clock.advance(1.000_4)
    await cancel(strict, first)
    requested_at = datetime.fromisoformat(iso(strict.clock.now()))
    cancellation = Cancellation(CancellationStatus.FAILED, iso(requested_at), None)
    strict.ingest(strict.requests[0], Status.CONFIRMED, cancellation=cancellation)
    known = replace(known_to_the_store(strict.requests[0]), status=Status.CONFIRMED, cancel_requested_at=requested_at)
    strict.reader.similar_ones = [replace(known, cancellation_failed=True)]
    await strict.clock.advance(1)
    other = changed(UNPAID, "notes", "Late")
    assert (await post(strict, other)).status_code == 409
    await cancel(strict, first)
    await strict.clock.advance(1)
    assert (await post(strict, other)).status_code == 202


async def test_what_is_sent_again_before_a_worker_ingests_it_is_not_refused_there(strict: Stages) -> None:
    await post(strict)
    assert (await post(strict)).status_code == 202


@pytest.mark.parametrize("ingested", [False, True])
async def test_beside_what_was_cancelled_they_are_not(strict: Stages, ingested: bool) -> None:
    first = await post(strict)
    if ingested:  # and its cancellation is not
        strict.ingest(strict.requests[0])
        strict.reader.similar_ones = [known_to_the_store(strict.requests[0])]
    await strict.clock.advance(1)
    await strict.client.post(f"/api/v1/vrs/reservations/{request_id(first)}/cancel")
    await strict.clock.advance(1)
    assert (await post(strict, changed(UNPAID, "notes", "Late"))).status_code == 202


async def test_without_the_store_nothing_is_accepted_there(strict: Stages) -> None:
    strict.reader.away = True
    assert (await post(strict)).status_code == 503


async def test_a_bulk_that_the_store_fails_in_the_middle_leaves_no_key_under_way(
    strict: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a later submission under the key would count its deadline from the failed one."""

    async def similar(_account_id: str, _stay_key: str) -> list[SimilarSubmission]:
        raise StoreUnavailable("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(strict.reader, "similar", similar)
        assert (await strict.client.post(BULK_PATH, json=[item(), item(idempotencyKey="own")])).status_code == 503
    await strict.clock.advance(60)
    later = await post(strict, key="own")
    assert later.json()["data"]["acceptedAt"] == iso(strict.clock.now())


# --- who waits ---


async def test_who_waits_with_another_body_under_its_key_is_refused(house: Stages) -> None:
    await post(house, key="order")
    other = await waiting(house, changed(UNPAID, "notes", "another body"), key="other")
    submission = decode_submission(await house.requested(2))
    conflict = encode_conflict(submission, iso(house.clock.now()))
    await house.log.publish(
        RESULTS, [encode_conflict(replace(submission, fingerprint="0" * 32), iso(house.clock.now()))]
    )
    await house.clock.advance(1)
    assert not other.done()
    await house.log.publish(RESULTS, [conflict])
    answer = await other
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")


async def test_the_outcome_of_another_body_under_its_key_is_not_its_own(house: Stages) -> None:
    """The other was accepted elsewhere, and its outcome is heard first."""
    waits = await waiting(house, key="order")
    message = await house.requested()
    other = replace(message, value=message.value.replace(b'"fingerprint":"', b'"fingerprint":"0'))
    await house.settle(other, Status.CONFIRMED, pms_reservation_id="pms-1")
    answer = await waits
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")


async def test_a_chain_of_duplicates_is_followed_to_its_end(house: Stages) -> None:
    """X is found to be Y, and then Y to be Z; and one that leads back to itself ends."""
    posted = [await waiting(house, changed(UNPAID, "notes", f"{number}")) for number in range(3)]
    await house.requested(3)
    x, y, z = house.requests
    stored = house.ingest(z)
    await house.log.publish(
        RESULTS, [encode_duplicate(decode_submission(x), decode_submission(y).request_id, iso(house.clock.now()))]
    )
    await house.clock.advance(1)
    await house.repeat(y, stored)
    await house.clock.advance(1)
    await house.settle(z, Status.CONFIRMED, pms_reservation_id="pms-1")
    answers = await asyncio.gather(*posted)
    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert [answer.headers.get("duplicate-of") for answer in answers] == [stored.request_id, stored.request_id, None]


async def waiting(house: Stages, body: dict[str, Any] = UNPAID, **more: str) -> asyncio.Task[httpx.Response]:
    return asyncio.create_task(post(house, body, Prefer="wait=30", **more))


async def test_who_waits_is_told_the_earlier_ones_outcome(house: Stages) -> None:
    first = await waiting(house)
    message = await house.requested()
    house.ingest(message)
    again = await waiting(house)
    await house.clock.advance(1)
    stored = await house.settle(message, Status.CONFIRMED, pms_reservation_id="pms-1")
    answers = await asyncio.gather(first, again)
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["data"] == answers[1].json()["data"]
    assert [each["code"] for each in answers[1].json()["warnings"]] == ["sent_again"]
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
    house.ingest(message)
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


async def test_equal_items_are_as_many_rooms_and_may_repeat_what_came_before(house: Stages) -> None:
    before = await ingested(house, changed(UNPAID, "roomId", "Z"))
    items = [item(), item(), item(changed(UNPAID, "roomId", "Z")), item(idempotencyKey="own"), item()]
    results = await bulk(house, *items)
    assert [each.get("duplicate") for each in results] == [None, None, True, None, None]
    assert results[2]["requestId"] == request_id(before)
    assert len(house.requests) == 5
    for message in house.requests[1:]:
        house.ingest(message)
    again = await bulk(house, *items, item())
    ids = [each["requestId"] for each in results]
    assert [each["requestId"] for each in again][:5] == ids
    assert [each.get("duplicate") for each in again] == [True, True, True, None, True, None]


@pytest.mark.parametrize("rooms", [2, 3, 5])
@pytest.mark.parametrize("operation", ["booking-engine", "general"])
async def test_a_cart_of_equal_rooms_is_all_of_them(house: Stages, operation: str, rooms: int) -> None:
    cart = {"operation": operation, "reservation": PAID if operation == "booking-engine" else GENERAL}
    results = await bulk(house, *[cart] * rooms)
    assert len({each["requestId"] for each in results}) == len(house.requests) == rooms
    found = [decode_submission(each).natural for each in house.requests]
    assert len({each.same for each in found if each is not None}) == rooms


async def test_a_bulk_that_is_sent_again_adds_nothing(house: Stages) -> None:
    items = [item(changed(UNPAID, "roomId", number)) for number in range(30)]
    first = await bulk(house, *items)
    for message in house.requests:
        house.ingest(message)
    reads = house.reader.reads
    again = await bulk(house, *items)
    assert [each["requestId"] for each in again] == [each["requestId"] for each in first]
    assert (len(house.requests), house.reader.reads) == (30, reads + 1)


# --- the hint ---


async def test_the_first_answer_to_an_api_key_without_our_header_names_it_once(house: Stages) -> None:
    answers = [
        await post(house, changed(UNPAID, "roomId", number), key="k" if number == 0 else None) for number in range(4)
    ]
    assert [answer.headers.get("link") for answer in answers] == [
        None,
        '</docs#submitBookingEngineReservation>; rel="help"; title="Idempotency-Key"',
        None,
        None,
    ]
    others = [await post(house, UNPAID, None, **OTHER_WORKSPACE), await post(house, PAID)]
    assert ["link" in answer.headers for answer in others] == [True, False]
    assert (await house.client.get("/docs")).status_code == 200
