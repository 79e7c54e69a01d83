"""The client that blocks takes the same steps as the asynchronous one; here is that it takes them, and offers the same."""

import inspect
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from reservation_forwarder_client import (
    AsyncForwarderClient,
    AsyncWebhooks,
    Confirmed,
    ForwarderClient,
    GeneralItem,
    OutcomeTimeout,
    RetryPolicy,
    Submission,
    Unavailable,
    Webhooks,
)
from tests.support.stages.scripted_service import problem
from tools.contracts.answers import response_examples

EXAMPLES = response_examples()
REQUEST_ID = EXAMPLES["submissionAccepted"]["data"]["requestId"]
RESERVATION: Any = {"propertyId": 1}
AWAY = problem(503, "log_unavailable", {"Retry-After": "2"})


class PassingClock:
    """Time passes when somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2027, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Dripping(httpx.SyncByteStream):
    """A body that comes in single bytes, one a second, and never ends."""

    def __init__(self, clock: PassingClock) -> None:
        self.clock = clock

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.clock.sleep(1.0)
            yield b" "


class Service:
    """Answers one after the other, the last one for ever."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.clock = PassingClock()

    def client(self) -> ForwarderClient:
        return ForwarderClient(
            "http://forwarder.test",
            token="token",
            workspace="alpha",
            account="alpha-1",
            transport=httpx.MockTransport(self._answer),
            clock=self.clock,
            retry_policy=RetryPolicy(total_seconds=20),
        )

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def accepted(**headers: str) -> httpx.Response:
    return httpx.Response(202, json=EXAMPLES["submissionAccepted"], headers=headers)


def test_trouble_is_waited_out_under_one_key_and_the_answer_is_told_with_its_headers() -> None:
    answer = accepted(**{"Request-Id": "req_1", "Idempotent-Replayed": "true", "Duplicate-Of": REQUEST_ID})
    service = Service(httpx.ConnectError("refused"), AWAY, answer)
    with service.client() as client:
        told = client.submit_general(RESERVATION)
    assert (told.request_id, told.http_request_id) == (REQUEST_ID, "req_1")
    assert (told.idempotent_replayed, told.duplicate_of) == (True, REQUEST_ID)
    assert [request.headers["idempotency-key"] for request in service.requests] == [f'"{told.idempotency_key}"'] * 3
    assert 2 <= service.clock.seconds <= 3


def test_an_outage_longer_than_its_patience_is_raised_with_the_key_and_the_requests_name() -> None:
    away = problem(503, "log_unavailable", {"Request-Id": "req_2"})
    with Service(away).client() as client, pytest.raises(Unavailable) as raised:
        client.submit(RESERVATION, idempotency_key="order-42")
    assert (raised.value.idempotency_key, raised.value.http_request_id) == ("order-42", "req_2")


def test_a_call_that_was_broken_off_is_made_again_under_its_key_even_while_its_error_is_handled() -> None:
    service = Service(RuntimeError("of a transport"), accepted())
    with service.client() as client:
        try:
            client.submit(RESERVATION)
        except RuntimeError:  # it refers to the frames of the call, and so keeps them
            client.submit(RESERVATION)
    first, second = [request.headers["idempotency-key"] for request in service.requests]
    assert first == second


def test_an_outcome_is_waited_for_and_no_longer_than_that() -> None:
    pending = httpx.Response(200, json=EXAMPLES["submissionUntaken"])
    confirmed = httpx.Response(200, json=EXAMPLES["submissionConfirmed"])
    service = Service(pending, pending, confirmed)
    with service.client() as client:
        assert isinstance(client.wait(REQUEST_ID, timeout_seconds=60).outcome, Confirmed)
    service = Service(pending)
    with service.client() as client, pytest.raises(OutcomeTimeout) as raised:
        client.wait(REQUEST_ID, timeout_seconds=9)
    assert raised.value.submission.request_id == REQUEST_ID
    assert service.clock.seconds == pytest.approx(9)


def test_an_outcome_may_be_waited_for_without_a_limit() -> None:
    service = Service(
        httpx.Response(200, json=EXAMPLES["submissionUntaken"]),
        httpx.Response(200, json=EXAMPLES["submissionConfirmed"]),
    )
    with service.client() as client:
        assert client.wait(REQUEST_ID, timeout_seconds=math.inf).confirmed


def test_an_answer_that_never_ends_is_none() -> None:
    clock = PassingClock()
    with (
        ForwarderClient(
            "http://forwarder.test",
            token="token",
            workspace="alpha",
            account="alpha-1",
            transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=Dripping(clock))),
            clock=clock,
            retry_policy=RetryPolicy(total_seconds=0),
        ) as client,
        pytest.raises(Unavailable),
    ):
        client.submission(REQUEST_ID)


def test_pages_follow_one_another() -> None:
    def page(following: str) -> httpx.Response:
        cursors = {"previous": "", "current": "1", "next": following}
        data = [EXAMPLES["reservationMade"]["data"]]
        return httpx.Response(200, json={"data": data, "meta": {"limit": 1, "cursors": cursors}})

    service = Service(page("2"), page(""))
    with service.client() as client:
        assert len(list(client.reservations(page_size=1, status="CONFIRMED"))) == 2
    assert [request.url.params.get("cursor") for request in service.requests] == [None, "2"]


def test_bulks_cancellations_and_another_account() -> None:
    data = EXAMPLES["submissionAccepted"]["data"]
    bulk = httpx.Response(200, json={"data": {"accepted": 1, "refused": 0, "results": [data]}})
    cancelling = httpx.Response(202, json=EXAMPLES["cancellationAccepted"])
    service = Service(bulk, bulk, cancelling)
    with service.client() as client:
        told = list(client.submit_many([GeneralItem(RESERVATION, "a"), GeneralItem(RESERVATION, "b")], bulk_size=1))
        assert [one.idempotency_key for one in told if isinstance(one, Submission)] == ["a", "b"]
        cancelled = client.for_account("alpha-2").cancel(REQUEST_ID, "The guest is ill.")
    assert cancelled.cancellation is not None
    accounts = [request.headers["integrationaccountid"] for request in service.requests]
    assert accounts == ["alpha-1", "alpha-1", "alpha-2"]


def test_both_clients_offer_the_same() -> None:
    def offered(client: type[Any]) -> dict[str, list[tuple[str, Any, Any]]]:
        methods: dict[str, Callable[..., Any]] = {
            name: one for name, one in vars(client).items() if inspect.isfunction(one) and not name.startswith("_")
        }
        return {
            name: [(each.name, each.annotation, each.default) for each in inspect.signature(one).parameters.values()]
            for name, one in methods.items()
        }

    assert offered(ForwarderClient) == offered(AsyncForwarderClient)
    assert offered(Webhooks) == offered(AsyncWebhooks)
