"""The client's retries: what it sends again, under which key, after which pauses, and what it raises in the end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, date, datetime
from typing import Any

import httpx
import pytest

from forwarder.query.routes import PageRequest, read_page_request
from forwarder.store.lists.port import DEFAULT_FILTERS
from reservation_forwarder_client import (
    AsyncForwarderClient,
    BookingEngineItem,
    ForwarderError,
    RateLimited,
    Refused,
    RetryPolicy,
    Unavailable,
    Unexpected,
)
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock, settle
from tests.support.stages.scripted_service import ScriptedService, Step, problem
from tools.contracts.answers import response_examples

EXAMPLES = response_examples()
PART: Any = {"guest": "Ana Ruiz"}
REQUEST_ID = EXAMPLES["submissionAccepted"]["data"]["requestId"]
ACCEPTED = httpx.Response(202, json=EXAMPLES["submissionAccepted"])
PENDING = httpx.Response(200, json=EXAMPLES["submissionUntaken"])
CONFIRMED = httpx.Response(200, json=EXAMPLES["submissionConfirmed"])
AWAY = problem(503, "log_unavailable", {"Retry-After": "1"})
NO_CONNECTION = httpx.ConnectError("refused")
NO_ANSWER = httpx.ReadTimeout("nothing came")
UNREADABLE = httpx.DecodingError("not gzip")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def passing(clock: ManualClock, call: Awaitable[Any], seconds: int = 200) -> Any:
    """What `call` comes to, while time passes."""
    task = asyncio.ensure_future(call)
    for _ in range(seconds * 10):
        await settle()
        if task.done():
            break
        await clock.advance(0.1)
    assert task.done()
    return await task


@pytest.mark.parametrize(
    "trouble",
    [
        NO_CONNECTION,
        NO_ANSWER,
        AWAY,
        problem(429, "rate_limited", {"Retry-After": "1"}),
        httpx.Response(502),
        httpx.Response(504),
    ],
    ids=["no connection", "no answer", "503", "429", "502", "504"],
)
async def test_trouble_that_passes_is_waited_out_under_one_key(clock: ManualClock, trouble: Step) -> None:
    service = ScriptedService(clock, trouble, trouble, ACCEPTED)
    async with service.client() as client:
        result = await passing(clock, client.submit(PART))
    assert (result.request_id, len(service.requests)) == (REQUEST_ID, 3)
    assert {request.headers["idempotency-key"] for request in service.requests} == {f'"{result.idempotency_key}"'}
    assert {request.content for request in service.requests} == {b'{"guest":"Ana Ruiz"}'}


async def test_each_submission_has_a_key_of_its_own(clock: ManualClock) -> None:
    service = ScriptedService(clock, ACCEPTED)
    async with service.client() as client:
        await client.submit(PART)
        await client.submit(PART)
    assert len({request.headers["idempotency-key"] for request in service.requests}) == 2


@pytest.mark.parametrize(
    "trouble",
    [httpx.Response(202, content=b""), httpx.Response(302), AWAY, problem(422, "no"), NO_ANSWER, UNREADABLE],
)
async def test_a_second_call_with_the_same_object_has_the_key_of_the_one_that_failed(
    clock: ManualClock, trouble: Step
) -> None:
    service = ScriptedService(clock, trouble, ACCEPTED)
    async with service.client(RetryPolicy(total_seconds=0)) as client:
        with pytest.raises(ForwarderError) as raised:
            await client.submit(PART)
        again = await client.submit(PART)
        another = await client.submit(PART)
    assert raised.value.idempotency_key == again.idempotency_key != another.idempotency_key
    first, second, third = [request.headers["idempotency-key"] for request in service.requests]
    assert first == second != third


async def test_a_call_that_timed_out_is_made_again_under_its_key_even_while_its_error_is_handled(
    clock: ManualClock,
) -> None:
    service = ScriptedService(clock, 60.0, ACCEPTED)
    async with service.client() as client:
        call = asyncio.create_task(client.submit(PART))
        await settle()
        call.cancel()
        try:
            await call
        except asyncio.CancelledError:  # it refers to the frames of the call, and so keeps them
            await client.submit(PART)
    first, second = [request.headers["idempotency-key"] for request in service.requests]
    assert first == second


async def test_an_account_named_again_has_the_keys_of_its_calls_that_failed(clock: ManualClock) -> None:
    service = ScriptedService(clock, AWAY, AWAY, ACCEPTED)
    async with service.client(RetryPolicy(total_seconds=0)) as client:
        for _ in range(2):
            with pytest.raises(ForwarderError):
                await client.for_account("alpha-2").submit(PART)
        await client.submit(PART)
        await client.for_account("alpha-2").submit(PART)
    first, second, other, last = [request.headers["idempotency-key"] for request in service.requests]
    assert first == second == last != other


async def test_another_or_a_changed_object_has_a_key_of_its_own(clock: ManualClock) -> None:
    service = ScriptedService(clock, AWAY, ACCEPTED)
    async with service.client(RetryPolicy(total_seconds=0)) as client:
        reservation: Any = {**PART}
        with pytest.raises(ForwarderError):
            await client.submit(reservation)
        await client.submit(dict(reservation))  # type: ignore[arg-type]
        reservation["guest"] = "Another"
        await client.submit(reservation)
    assert len({request.headers["idempotency-key"] for request in service.requests}) == 3


async def test_it_comes_again_no_sooner_than_it_is_told(clock: ManualClock) -> None:
    service = ScriptedService(clock, problem(429, "rate_limited", {"Retry-After": "7"}), PENDING)
    async with service.client() as client:
        await passing(clock, client.submission(REQUEST_ID))
    first, second = service.times
    assert 7 <= second - first <= 7 + RetryPolicy().first_seconds + 0.1


async def test_a_date_tells_it_as_well(clock: ManualClock) -> None:
    service = ScriptedService(clock, problem(503, "x", {"Retry-After": "Fri, 01 Jan 2027 00:00:09 GMT"}), PENDING)
    async with service.client() as client:
        await passing(clock, client.submission(REQUEST_ID))
    assert 9 <= service.times[1] <= 10


async def test_an_outage_longer_than_its_patience_is_raised_with_the_key(clock: ManualClock) -> None:
    service = ScriptedService(clock, AWAY)
    async with service.client(RetryPolicy(total_seconds=20)) as client:
        with pytest.raises(Unavailable, match="log_unavailable") as raised:
            await passing(clock, client.submit(PART, idempotency_key="order-42"))
    assert raised.value.idempotency_key == "order-42"
    assert raised.value.problem is not None
    assert raised.value.retry_after == 1
    assert 3 <= len(service.requests) <= 20
    assert max(service.times) <= 20


async def test_where_nothing_answers_there_is_no_problem_to_tell(clock: ManualClock) -> None:
    service = ScriptedService(clock, NO_CONNECTION)
    async with service.client(RetryPolicy(total_seconds=5)) as client:
        with pytest.raises(Unavailable, match="ConnectError") as raised:
            await passing(clock, client.submission(REQUEST_ID))
    assert raised.value.problem is None
    assert len(service.requests) > 3


async def test_an_answer_that_never_ends_is_none() -> None:
    class Dripping(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                await asyncio.sleep(0)
                yield b" "

    async with AsyncForwarderClient(
        "http://forwarder.test",
        token="token",
        workspace="alpha",
        account="alpha-1",
        timeout_seconds=0.01,
        transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=Dripping())),
        retry_policy=RetryPolicy(total_seconds=0),
    ) as client:
        with pytest.raises(Unavailable):
            await client.submission(REQUEST_ID)


async def test_a_limit_longer_than_its_patience_is_raised_at_once(clock: ManualClock) -> None:
    service = ScriptedService(clock, problem(429, "rate_limited", {"Retry-After": "3600"}))
    async with service.client() as client:
        with pytest.raises(RateLimited) as raised:
            await client.submission(REQUEST_ID)
    assert (raised.value.retry_after, raised.value.code, len(service.requests)) == (3600, "rate_limited", 1)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
async def test_a_refusal_is_not_sent_again(clock: ManualClock, status: int) -> None:
    service = ScriptedService(clock, problem(status, "no"))
    async with service.client() as client:
        with pytest.raises(Refused) as raised:
            await client.submit(PART)
    assert (raised.value.problem.status, raised.value.code, len(service.requests)) == (status, "no", 1)


async def test_a_cancellation_that_failed_is_an_outcome_and_no_outage(clock: ManualClock) -> None:
    failed = problem(503, "cancellation_failed", {"Retry-After": "1"}, requestId=REQUEST_ID)
    service = ScriptedService(clock, failed)
    async with service.client() as client:
        with pytest.raises(Unavailable, match="cancellation_failed"):
            await client.cancel(REQUEST_ID, wait=10)
    assert len(service.requests) == 1


async def test_a_fault_of_the_service_is_not_sent_again(clock: ManualClock) -> None:
    service = ScriptedService(clock, problem(500, "internal_error", reference="0123"))
    async with service.client() as client:
        with pytest.raises(Unavailable) as raised:
            await client.submit(PART)
    assert raised.value.problem is not None
    assert (raised.value.problem.reference, len(service.requests)) == ("0123", 1)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>welcome</html>"),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"data": {"status": "PENDING"}}),
        httpx.Response(200, json={"data": {"requestId": "rsv_x", "status": "PENDING", "attempts": 7}}),
        httpx.Response(302, headers={"Location": "http://login.test"}),
    ],
    ids=["a page", "an array", "a member less", "another type", "a redirect"],
)
async def test_what_is_no_answer_of_the_service_is_said_to_be_none(clock: ManualClock, answer: httpx.Response) -> None:
    async with ScriptedService(clock, answer).client() as client:
        with pytest.raises(Unexpected):
            await client.submission(REQUEST_ID)


async def test_a_proxys_own_page_is_a_problem_without_a_code(clock: ManualClock) -> None:
    async with ScriptedService(clock, httpx.Response(403, text="<html>no</html>")).client() as client:
        with pytest.raises(Refused, match="403 Forbidden") as raised:
            await client.submission(REQUEST_ID)
    assert (raised.value.code, raised.value.problem.type) == ("", "about:blank")


async def test_a_service_that_waits_is_asked_again_at_once(clock: ManualClock) -> None:
    service = ScriptedService(clock, 30.0, PENDING, 12.0, CONFIRMED)
    async with service.client() as client:
        result = await passing(clock, client.wait(REQUEST_ID, timeout_seconds=60))
    assert result.confirmed
    assert [request.headers["prefer"] for request in service.requests] == ["wait=30", "wait=30"]
    assert service.times[1] - service.times[0] == pytest.approx(30)


async def test_a_service_that_does_not_wait_is_asked_after_pauses_that_grow(clock: ManualClock) -> None:
    service = ScriptedService(clock, *[PENDING] * 9, CONFIRMED)
    async with service.client() as client:
        assert (await passing(clock, client.wait(REQUEST_ID, timeout_seconds=60))).confirmed
    pauses = [later - sooner for sooner, later in zip(service.times, service.times[1:], strict=False)]
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 2, 2, 2, 2, 2])


@for_each(("tries", "most"), [(1, 0.5), (2, 1.0), (4, 4.0), (5, 6.0), (99, 6.0)])
def test_pauses_are_drawn_from_a_range_that_doubles_up_to_a_bound(tries: int, most: float) -> None:
    retry_policy = RetryPolicy(first_seconds=0.5, max_seconds=6.0)
    assert (retry_policy.pause(tries, 0.0), retry_policy.pause(tries, 1.0)) == (0.0, most)
    assert retry_policy.pause(tries, 0.5, 30) == 30 + most / 2


async def test_neither_token_nor_guest_is_in_what_is_raised(clock: ManualClock) -> None:
    async with ScriptedService(clock, NO_CONNECTION).client(RetryPolicy(total_seconds=0)) as client:
        with pytest.raises(Unavailable) as raised:
            await client.submit(PART)
    assert "token" not in str(raised.value)
    assert "Ana" not in str(raised.value)


async def test_filters_are_asked_for_by_the_names_of_the_contract(clock: ManualClock) -> None:
    empty = {"data": [], "meta": {"limit": 50, "cursors": {"previous": "", "current": "1", "next": ""}}}
    service = ScriptedService(clock, httpx.Response(200, json=empty))
    async with service.client() as client:
        found = client.reservations(
            page_size=50,
            status=["CONFIRMED", "CANCELLED"],
            property_id=1001,
            arrival_from=date(2027, 6, 1),
            departure_to=date(2027, 6, 30),
            updated_since=datetime(2027, 1, 15, 9, 30, tzinfo=UTC),
            order="desc",
        )
        assert [one async for one in found] == []
    asked = dict(service.requests[0].url.params)
    assert asked == {
        "limit": "50",
        "status": "CONFIRMED,CANCELLED",
        "propertyId": "1001",
        "arrivalFrom": "2027-06-01",
        "departureTo": "2027-06-30",
        "updatedSince": "2027-01-15T09:30:00+00:00",
        "order": "desc",
    }
    # As the service reads them.
    read = read_page_request({name: [value] for name, value in asked.items()})
    assert isinstance(read, PageRequest)
    assert (read.order, read.limit, read.filters == DEFAULT_FILTERS) == ("desc", 50, False)


async def test_a_bulk_that_is_answered_with_another_number_of_results_is_unexpected(clock: ManualClock) -> None:
    one = {"data": {"accepted": 1, "refused": 0, "results": [EXAMPLES["submissionAccepted"]["data"]]}}
    async with ScriptedService(clock, httpx.Response(200, json=one)).client() as client:
        with pytest.raises(Unexpected, match="2 items"):
            _ = [result async for result in client.submit_many([BookingEngineItem(PART), BookingEngineItem(PART)])]


@pytest.mark.parametrize("result", [5, None, [], {"problem": None}, {"problem": 5}, {}], ids=str)
async def test_a_bulk_whose_results_are_none_keeps_its_items(clock: ManualClock, result: Any) -> None:
    service = ScriptedService(clock, httpx.Response(207, json={"data": {"results": [result]}}))
    async with service.client() as client:
        with pytest.raises(Unexpected) as raised:
            await anext(client.submit_many([BookingEngineItem(PART)]))
    assert [bool(item.idempotency_key) for item in raised.value.items] == [True]


async def test_a_bulk_is_sent_again_under_the_same_keys(clock: ManualClock) -> None:
    one = {"data": {"accepted": 1, "refused": 0, "results": [EXAMPLES["submissionAccepted"]["data"]]}}
    service = ScriptedService(clock, AWAY, httpx.Response(200, json=one))
    async with service.client() as client:

        async def submitted() -> list[Any]:
            return [result async for result in client.submit_many([BookingEngineItem(PART)])]

        (result,) = await passing(clock, submitted())
    assert (result.request_id, len(service.requests)) == (REQUEST_ID, 2)
    assert service.requests[0].content == service.requests[1].content
    assert result.idempotency_key.encode() in service.requests[0].content
