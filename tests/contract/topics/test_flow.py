"""What operators are shown of the log, on every backend: how much went through, and the messages of a topic."""

import secrets
from datetime import timedelta

from forwarder.operate.deployment.throughput import Flow
from forwarder.operate.deployment.topics import browse
from forwarder.process.clock import SystemClock
from forwarder.reservation.outcome import Status
from forwarder.topics.codec import encode_result
from forwarder.topics.port import Log, Message, Topics
from tests.support.backends import slow_on
from tests.support.store.stored import final
from tests.support.worker.works import work


@slow_on("distributed")
async def test_what_went_through_is_counted_from_the_log_itself(log: Log) -> None:
    topics, clock = Topics(f"flow-{secrets.token_hex(4)}."), SystemClock()
    flow = Flow(log, topics, clock)
    assert (await flow.read()).results.last_minute == 0  # before there are topics, too
    async with log.admin() as admin:
        await admin.create(dict.fromkeys(topics.all(), 2))
    events = [final(work(number, account="acc")).event for number in range(3)]
    failed = final(work(9, account="other"), status=Status.FAILED).event
    async with log.publisher() as publisher:
        await publisher.publish(topics.requests, [Message(b"acc:1", b"{}"), Message(b"acc:2", b"{}")])
        await publisher.publish(topics.results, [encode_result(each) for each in (*events, failed)])

    seen = await flow.read()
    assert (seen.accepted.last_minute, seen.results.last_minute, seen.dead_letters.last_minute) == (2, 4, 0)
    assert {name: dict(each.kinds) for name, each in seen.outcomes.items()} == {
        "acc": {"confirmed": 3},
        "other": {"failed": 1},
    }
    found, whole = await browse(log, topics.results, since=clock.now() - timedelta(minutes=5), limit=3)
    assert (len(found), whole) == (3, True)
    assert "Gonzalez" not in str(found)
    later, _ = await browse(log, topics.results, since=clock.now() + timedelta(minutes=5), limit=3)
    assert later == []
