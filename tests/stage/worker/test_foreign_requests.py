"""What becomes of messages on the requests topic that no ingress wrote: set aside, counted, and the next one is worked on."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic_core import to_json
from structlog.testing import capture_logs

from forwarder.observability.metrics import registry
from forwarder.store.submissions.port import Arrival, CancellationArrival, NotedOn, Unstorable, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.topics.codec import encode_cancellation
from forwarder.topics.port import MAX_MESSAGE_BYTES, Message
from tests.support.worker.worker_bench import TOPICS, Bench, cancellation, fresh, message_of, open_bench


@pytest.fixture
async def bench(data_dir: Path) -> AsyncIterator[Bench]:
    async with open_bench(data_dir) as opened:
        yield opened


GOOD = message_of(fresh(1))
ASKED = encode_cancellation(cancellation(1))
FOREIGN = {
    "as large as the log takes": Message(b"k", b"x" * (MAX_MESSAGE_BYTES - 1)),
    "all headers": Message(b"k", b"", tuple((f"header-{each}", b"v" * 40) for each in range(15_000))),
    "accepted at the end of time": replace(
        GOOD, value=GOOD.value.replace(b'"acceptedAt":"20', b'"acceptedAt":"9999-12-31T23:59:59Z","was":"20')
    ),
    "a cancellation asked for before the beginning of time": replace(
        ASKED, value=ASKED.value.replace(b'"requestedAt":"20', b'"requestedAt":"0001-01-01T00:00:00+12:00","was":"20')
    ),
    "a property's name of a whole page": message_of(fresh(3, propertyId="p" * 3000)),
    "no number": replace(GOOD, value=GOOD.value.replace(b'"reservation":{', b'"reservation":{"later":NaN,')),
    "nesting": replace(GOOD, value=b"[" * 200_000),
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN.keys())
async def test_it_is_set_aside_and_those_around_it_are_made(bench: Bench, foreign: Message) -> None:
    before, after = message_of(fresh(101)), message_of(fresh(102))
    await bench.publisher.publish(TOPICS.requests, [before, foreign, after])
    async with bench.worker():
        await bench.rows("CONFIRMED", 2)
        (letter,) = await bench.read(TOPICS.dead_letters, 1)
        await bench.taken_in()
    assert foreign.value.startswith(letter.message.value)


async def test_each_is_counted_and_logged_with_its_place(bench: Bench) -> None:
    def counted() -> float:
        return registry().get_sample_value("forwarder_taken_in_total", {"result": "undecodable"}) or 0.0

    before = counted()
    await bench.publisher.publish(TOPICS.requests, [Message(b"k", b"no JSON")])
    with capture_logs() as logs:
        async with bench.worker():
            (letter,) = await bench.read(TOPICS.dead_letters, 1)
            await bench.taken_in()
    headers = {name: value.decode() for name, value in letter.message.headers}
    (logged,) = [each for each in logs if each["event"] == "message.undecodable"]
    place = (str(logged["partition"]), str(logged["offset"]))
    assert place == (headers["dlt-original-partition"], headers["dlt-original-offset"])
    assert counted() - before == 1.0


class _Refusing(Recorder):
    """A store that cannot hold one submission, nor one cancellation, and says so of all that come with it."""

    refused: ClassVar[set[str]] = {fresh(3).request_id, cancellation(13).request_id}

    async def ingest(self, worker_id: str, arrivals: Sequence[Arrival], **more: Any) -> Sequence[Work]:
        self._refuse(arrival.submission.request_id for arrival in arrivals)
        return await super().ingest(worker_id, arrivals, **more)

    async def request_cancellations(
        self, arrivals: Sequence[CancellationArrival], *, now: datetime
    ) -> Mapping[str, NotedOn]:
        self._refuse(arrival.request.request_id for arrival in arrivals)
        return await super().request_cancellations(arrivals, now=now)

    def _refuse(self, request_ids: Iterable[str]) -> None:
        if self.refused.intersection(request_ids):
            raise Unstorable("DataError")


async def test_what_the_store_cannot_hold_is_set_aside_and_holds_up_nothing(bench: Bench) -> None:
    await bench.submit(*(fresh(number) for number in range(1, 8)))
    await bench.cancel(*(cancellation(number) for number in range(11, 16)))
    async with bench.worker(recorder=_Refusing(bench.engine)):
        await bench.rows("CONFIRMED", 6)
        letters = await bench.read(TOPICS.dead_letters, 2)
        await bench.taken_in()
    asked, sent = encode_cancellation(cancellation(13)), message_of(fresh(3))
    assert {letter.message.key for letter in letters} == {asked.key, sent.key}
    assert {dict(letter.message.headers)["dlt-failure-class"] for letter in letters} == {b"undecodable"}


async def test_it_can_be_said_of_a_message_what_the_ingress_would_not_write(bench: Bench) -> None:
    """Later versions add fields: what is more than is known is no fault."""
    more = replace(GOOD, value=to_json({"later": [1, 2]})[:-1] + b"," + GOOD.value[1:])
    await bench.publisher.publish(TOPICS.requests, [more])
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
