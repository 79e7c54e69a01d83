"""`reservation_forwarder_client` against the stages themselves: what is submitted, followed, listed and cancelled through it."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import date
from decimal import Decimal
from typing import cast

import pytest

from forwarder.reservation import problems as catalogue
from forwarder.reservation.outcome import Status as Outcome
from reservation_forwarder_client import (
    AsyncForwarderClient,
    BookingEngineItem,
    BookingEngineReservation,
    Confirmed,
    GeneralItem,
    GeneralReservation,
    Item,
    NotFound,
    OutcomeTimeout,
    Problem,
    Refused,
    Rejected,
    Status,
    Submission,
)
from tests.support.memory.clock import settle
from tests.support.stages import bodies
from tests.support.stages.client_of_stages import client_of
from tests.support.stages.http_stages import Stages, stages

BOOKING_ENGINE = cast("BookingEngineReservation", bodies.BOOKING_ENGINE)
GENERAL = cast("GeneralReservation", bodies.GENERAL)


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


@pytest.fixture
async def client(house: Stages) -> AsyncIterator[AsyncForwarderClient]:
    async with client_of(house) as built:
        yield built


async def test_a_submission_is_accepted_and_then_followed_to_its_record(
    house: Stages, client: AsyncForwarderClient
) -> None:
    accepted = await client.submit(BOOKING_ENGINE)
    assert (accepted.status, accepted.settled, accepted.accepted_at) == ("PENDING", False, house.clock.now())
    assert (await client.submission(accepted.request_id)).record is None
    await house.settle(await house.requested(), Outcome.CONFIRMED, pms_reservation_id="P1")
    result = await client.wait(accepted.request_id)
    assert result.confirmed
    assert result.outcome == Confirmed(await client.reservation(result.reservation_id or 0))
    assert result.record is not None
    assert result.reservation_id is not None
    assert result.record == await client.reservation(result.reservation_id)
    assert (result.record.pms_reservation_id, result.record.total_price) == ("P1", Decimal("480.5"))
    assert (result.record.arrival_date, result.record.nights) == (date(2027, 6, 1), 4)


async def test_one_who_waits_is_told_the_record(house: Stages, client: AsyncForwarderClient) -> None:
    asked = asyncio.create_task(client.submit_general(GENERAL, wait=5))
    await house.settle(await house.requested(), Outcome.CONFIRMED, pms_reservation_id="P1")
    result = await asked
    assert (result.status, result.reservation_id) == (Status.CONFIRMED, 1)
    assert result.record == await client.reservation(1)


async def test_a_rejection_is_an_answer_and_not_an_error(house: Stages, client: AsyncForwarderClient) -> None:
    asked = asyncio.create_task(client.submit(BOOKING_ENGINE, wait=5))
    message = await house.requested()
    request_id = house.published()["requestId"]
    problem = catalogue.ROOM_UNAVAILABLE.problem("The room is taken.", request_id).as_json()
    await house.settle(message, Outcome.REJECTED, problem=problem)
    result = await asked
    assert (result.request_id, result.status) == (request_id, Status.REJECTED)
    assert result.problem is not None
    assert (result.problem.code, result.problem.detail) == ("room_unavailable", "The room is taken.")
    assert result.problem == (await client.submission(request_id)).problem
    assert isinstance(result.outcome, Rejected)
    assert result.outcome.problem.code == "room_unavailable"


async def test_what_is_not_accepted_is_refused_with_every_fault(client: AsyncForwarderClient) -> None:
    with pytest.raises(Refused) as refused:
        await client.submit({**BOOKING_ENGINE, "currency": "EURO", "numberOfGuests": -1})
    assert refused.value.code == "validation_failed"
    assert {fault.pointer for fault in refused.value.problem.errors} == {"/currency", "/numberOfGuests"}
    assert "/currency" in str(refused.value)
    assert (refused.value.http_request_id or "").startswith("req_")


async def test_a_key_makes_two_calls_one_submission_and_is_not_for_another(
    house: Stages, client: AsyncForwarderClient
) -> None:
    first = await client.submit(BOOKING_ENGINE, idempotency_key='order "42" \\ a')
    again = await client.submit(BOOKING_ENGINE, idempotency_key='order "42" \\ a')
    assert again.request_id == first.request_id
    assert (first.idempotent_replayed, again.idempotent_replayed) == (False, True)
    assert first.idempotency_key == 'order "42" \\ a'
    with pytest.raises(Refused) as refused:
        await client.submit({**BOOKING_ENGINE, "notes": "other"}, idempotency_key='order "42" \\ a')
    assert refused.value.code == "idempotency_key_reused"
    assert (await client.submit(BOOKING_ENGINE)).request_id != first.request_id


async def test_days_and_decimals_are_written_as_the_contract_has_them(
    house: Stages, client: AsyncForwarderClient
) -> None:
    first, last = date(2027, 6, 1), date(2027, 6, 5)
    await client.submit(
        {**BOOKING_ENGINE, "arrivalDate": first, "departureDate": last, "totalPrice": Decimal("480.10")}
    )
    sent = house.published()["reservation"]
    assert (sent["arrivalDate"], sent["departureDate"], sent["totalPrice"]) == ("2027-06-01", "2027-06-05", 480.1)


async def test_a_deadline_and_an_account_of_its_own_go_with_the_call(
    house: Stages, client: AsyncForwarderClient
) -> None:
    other = client.for_account("alpha-2")
    result = await other.submit(BOOKING_ENGINE, deadline=300)
    published = house.published()
    assert (published["deadlineSeconds"], published["integrationAccountId"]) == (300, "alpha-2")
    with pytest.raises(NotFound, match="submission_not_found"):
        await client.submission(result.request_id)
    assert (await other.submission(result.request_id)).status == "PENDING"


async def test_every_reservation_comes_once_page_after_page(house: Stages, client: AsyncForwarderClient) -> None:
    for _ in range(5):
        await client.submit_general(GENERAL, wait=0)
        house.ingest(house.requests[-1])
    assert [one.id async for one in client.reservations(page_size=2)] == [1, 2, 3, 4, 5]
    pages = [page async for page in client.pages(page_size=2)]
    assert [len(page.reservations) for page in pages] == [2, 2, 1]
    assert (pages[0].limit, pages[0].cursors.previous, pages[-1].cursors.next) == (2, "", "")
    rest = [page async for page in client.pages(page_size=2, cursor=pages[0].cursors.next)]
    assert rest == pages[1:]


async def test_a_cancellation_is_accepted_and_shown(house: Stages, client: AsyncForwarderClient) -> None:
    accepted = await client.submit(BOOKING_ENGINE)
    cancelling = await client.cancel(accepted.request_id, "The guest is ill.")
    assert (cancelling.request_id, cancelling.status) == (accepted.request_id, "PENDING")
    assert cancelling.cancellation is not None
    assert cancelling.cancellation.status == "REQUESTED"
    with pytest.raises(Refused, match="submission_not_found"):
        await client.cancel(7)


async def test_a_cancellation_that_is_done_tells_the_record(house: Stages, client: AsyncForwarderClient) -> None:
    accepted = await client.submit(BOOKING_ENGINE)
    submitted = await house.requested()
    asked = asyncio.create_task(client.cancel(accepted.request_id, wait=5))
    await house.requested(2)
    await house.settle(submitted, Outcome.CANCELLED, cancelled_at="2027-01-01T00:00:00.000Z")
    result = await asked
    assert result.status == Status.CANCELLED
    assert result.record is not None
    assert result.record.cancelled_at == house.clock.now()


async def test_many_are_submitted_in_bulks_and_told_of_one_by_one(house: Stages, client: AsyncForwarderClient) -> None:
    wrong: BookingEngineReservation = {**BOOKING_ENGINE, "currency": "EURO"}
    items: list[Item] = [
        BookingEngineItem(BOOKING_ENGINE, idempotency_key="order-1"),
        BookingEngineItem(wrong),
        GeneralItem(GENERAL, deadline=300),
    ]
    first, refused, last = [result async for result in client.submit_many(items, bulk_size=2)]
    assert isinstance(first, Submission)
    assert isinstance(last, Submission)
    assert isinstance(refused, Problem)
    assert (refused.code, [fault.pointer for fault in refused.errors]) == (
        "validation_failed",
        ["/currency"],
    )
    assert first.idempotency_key == "order-1"
    assert last.idempotency_key
    assert (len(house.requests), house.published()["deadlineSeconds"]) == (2, 300)
    alone = await client.submit(BOOKING_ENGINE, idempotency_key="order-1")
    assert alone.request_id == first.request_id


async def test_a_dry_run_tells_what_would_be_sent_and_makes_nothing(
    house: Stages, client: AsyncForwarderClient
) -> None:
    tried = await client.dry_run({**BOOKING_ENGINE, "cardDetails": {"cardNumber": "4111111111111111"}})
    assert (tried.account_kind, tried.account_paused, tried.refusals) == ("generic", False, ())
    assert tried.would_send is not None
    assert "4111111111111111" not in str(tried)
    assert [request["path"] for request in tried.would_send["requests"]]
    assert tried.warnings == ()
    with pytest.raises(Refused, match="validation_failed"):
        await client.dry_run_general(cast("GeneralReservation", {}))
    assert house.requests == []


async def test_one_who_waits_in_vain_is_told_how_it_stands(house: Stages, client: AsyncForwarderClient) -> None:
    accepted = await client.submit(BOOKING_ENGINE)
    waiting = asyncio.create_task(client.wait(accepted.request_id, timeout_seconds=7))
    for _ in range(20):
        await settle()
        await house.clock.advance(1)
    with pytest.raises(OutcomeTimeout, match="no outcome after 7 seconds") as raised:
        await waiting
    assert (raised.value.submission.status, raised.value.submission.outcome) == ("PENDING", None)
    assert house.clock.monotonic() >= 7


def test_it_needs_httpx_and_nothing_of_the_service() -> None:
    """What is imported is looked at in a process that has imported nothing else."""
    code = "import sys, httpx; before = set(sys.modules); import reservation_forwarder_client; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "reservation_forwarder_client.async_client" in loaded
    ours = {name for name in loaded if name.startswith("reservation_forwarder_client")}
    assert {name.partition(".")[0] for name in loaded - ours} <= set(sys.stdlib_module_names)
