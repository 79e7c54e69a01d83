"""Kafka's topics are lost while the store stays: it is noticed and said, nothing is made twice, and work goes on."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from sqlalchemy import select

from forwarder.assembly.backend import Backend, open_backend
from forwarder.assembly.parts import topic_check
from forwarder.settings.environment import Environment
from forwarder.settings.reading import settings_of
from forwarder.store.audit import AuditFilter
from forwarder.store.database import Database
from forwarder.store.submissions.port import Arrival
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.tables import reservations
from forwarder.topics.port import LogGap, Message, partition_of
from tests.support.backends import Backend as BackendName
from tests.support.backends import only
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, Site, Typed, booking, deploy
from tests.support.worker.works import NOW, submission


async def test_the_topic_lacks_what_the_store_took_from_it(data_dir: Path) -> None:
    async with open_backend(settings_of(Environment(data_dir=data_dir, partitions=1))) as backend:
        await backend.create_topics()
        recorder, check = Recorder(backend.engine), topic_check(backend)
        await recorder.renew("w1", seconds=30.0)

        async def taken_in(number: int, offset: int) -> None:
            deadline = NOW + timedelta(days=1)
            arriving = Arrival(submission(number), 0, deadline, held=True, offset=offset, timestamp_ms=0)
            await recorder.ingest("w1", [arriving], now=NOW)

        assert await check.lost() is None
        async with backend.log.publisher() as publisher:
            await publisher.publish(backend.settings.topics.requests, [Message(b"k", b"{}")])
        await taken_in(1, offset=0)
        assert await check.lost() is None
        await taken_in(2, offset=1)  # of the topic that there was before
        lost = await check.lost()
        assert lost is not None
        assert (lost.beyond, lost.taken_in_until) == (1, NOW)
        assert lost.kept_from is not None
        await check.accept(backend.audit)
        assert await check.lost() is None
        (entry,) = await backend.trail.entries(AuditFilter(action="topics.accept_loss"), before=None, limit=9)
        assert entry.target == backend.settings.topics.requests
        await taken_in(3, offset=7)
        assert await check.lost() is not None


async def test_what_the_topic_lost_before_it_was_received_is_kept_until_somebody_accepts_it(data_dir: Path) -> None:
    async with open_backend(settings_of(Environment(data_dir=data_dir, partitions=1))) as backend:
        await backend.create_topics()
        topics, check = backend.settings.topics, topic_check(backend)
        await ingested(backend, 1, offset=4)
        await ingested(backend, 2, offset=6)
        for _ in range(2):  # by a process that was killed before it committed
            await check.note(LogGap(topics.requests, 0, position=5, resumed_at=15))
        await check.note(LogGap(topics.results, 3, position=9, resumed_at=0))
        # A restart does not forget it.
        again = topic_check(backend)
        assert (await again.in_words())["missing"] == 10
        assert not await again.in_step(topics.results)
        lost = await again.lost()
        assert lost is not None
        requests, results = lost.gaps
        assert (requests.missing, requests.since) == (10, NOW)
        assert requests.known == [submission(2).request_id]
        assert (results.topic, results.missing, results.known) == (topics.results, None, ())
        await again.accept(backend.audit)
        assert await again.lost() is None
        assert await again.in_step(topics.results)


async def test_another_message_where_the_newest_was_ingested_is_a_log_that_was_cut_back(data_dir: Path) -> None:
    async with open_backend(settings_of(Environment(data_dir=data_dir, partitions=1))) as backend:
        await backend.create_topics()
        topic, check = backend.settings.topics.requests, topic_check(backend)
        async with backend.log.publisher() as publisher:
            for number in (1, 2, 3):
                about = (("ce_subject", submission(number).request_id.encode()),)
                await publisher.publish(topic, [Message(b"k", b"{}", about)])
        await ingested(backend, 1, offset=0)
        await ingested(backend, 2, offset=1)
        assert not await check.cut_back({0})
        await ingested(backend, 9, offset=2)  # where the topic has the third
        assert not await check.cut_back({1})  # another worker's
        (gap,) = await check.cut_back({0})
        assert gap == LogGap(topic, 0, position=3, resumed_at=0)
        await check.note(gap)
        assert not await check.cut_back({0})
        await ingested(backend, 3, offset=2)
        await ingested(backend, 8, offset=7)  # beyond the end: that is a topic that was lost
        assert not await check.cut_back({0})


async def test_rows_of_partitions_that_are_gone_are_moved_to_where_their_messages_go_now(data_dir: Path) -> None:
    async with open_backend(settings_of(Environment(data_dir=data_dir, partitions=2))) as backend:
        await backend.create_topics()
        check = topic_check(backend)
        for number in range(1, 6):
            await ingested(backend, number, partition=number)
        lost = await check.lost()
        assert lost is not None
        assert lost.unowned == 4
        assert await check.move_unowned() == 4
        lost = await check.lost()
        assert lost is None or lost.unowned == 0
        found = select(reservations.c.account_id, reservations.c.property_id, reservations.c.partition)
        rows = await Database(backend.engine).read(found)
        moved = [row for row in rows if row.partition != 1]
        assert {row.partition for row in rows} <= {0, 1}
        assert all(row.partition == partition_of(f"{row.account_id}:{row.property_id}".encode(), 2) for row in moved)
        assert await check.move_unowned() == 0


async def test_open_rows_follow_their_keys_to_more_partitions(data_dir: Path) -> None:
    async with open_backend(settings_of(Environment(data_dir=data_dir, partitions=2))) as backend:
        await backend.create_topics()
        check = topic_check(backend)
        for number in range(1, 9):
            await ingested(backend, number, partition=number % 2, offset=number)
        found = select(reservations.c.account_id, reservations.c.property_id, reservations.c.partition)
        before = await Database(backend.engine).read(found)
        moved = await check.move_all(7)
        homes = [partition_of(f"{row.account_id}:{row.property_id}".encode(), 7) for row in before]
        assert moved == sum(row.partition != home for row, home in zip(before, homes, strict=True)) > 0
        assert [row.partition for row in await Database(backend.engine).read(found)] == homes
        assert await check.move_all(7) == 0


async def ingested(backend: Backend, number: int, *, partition: int = 0, offset: int = 0) -> None:
    recorder = Recorder(backend.engine)
    await recorder.renew("w1", seconds=30.0)
    deadline = NOW + timedelta(days=1)
    arriving = Arrival(submission(number), partition, deadline, held=True, offset=offset, timestamp_ms=0)
    await recorder.ingest("w1", [arriving], now=NOW)


@pytest.fixture
async def running(site: Site, backend: BackendName) -> AsyncIterator[Deployment]:
    async with deploy(site) as deployment:
        await deployment.add_account("acme")
        yield deployment


@pytest.mark.slow
@only("distributed")
async def test_topics_are_made_anew_under_a_store_that_stayed(running: Deployment) -> None:
    before = [(await running.submit("acme", booking(each))).json()["data"]["requestId"] for each in range(5)]
    for request_id in before:
        await running.settled("acme", request_id)
    for role in running.roles:
        await asyncio.to_thread(running.processes[role].stop)
    await _make_anew(running)
    await running.start()
    failed = await _failed(running, until=True)
    assert failed == ["topics_in_step_with_store"]
    # Nobody waits for the operator.
    after = (await running.submit("acme", booking(9))).json()["data"]["requestId"]
    assert (await running.settled("acme", after))["status"] == "CONFIRMED"
    made = await running.made()
    assert (made["made"], made["duplicates"]["surplus"]) == (6, 0)
    said = await Typed(running, "recover", "--topics-lost").done()
    assert said.code == 0, said.err
    assert "are lost" in said.out
    assert await _failed(running, until=False) == []


@pytest.mark.slow
@only("distributed")
async def test_records_are_deleted_before_a_worker_received_them(running: Deployment) -> None:
    known = (await running.submit("acme", booking(1))).json()["data"]["requestId"]
    await running.settled("acme", known)
    await asyncio.to_thread(running.processes["worker"].stop)
    for each in range(2, 12):
        assert (await running.submit("acme", booking(each))).status_code == 202
    await _delete_everything(running)
    await running.start()
    assert await _failed(running, until=True) == ["topics_in_step_with_store"]
    after = (await running.submit("acme", booking(20))).json()["data"]["requestId"]
    assert (await running.settled("acme", after))["status"] == "CONFIRMED"
    found = await Typed(running, "status").done()
    assert "messages before they were received" in found.out
    said = await Typed(running, "recover", "--topics-lost", "--json").done()
    assert said.code == 0, said.err
    assert sum(gap["missing"] for gap in json.loads(said.out)["lost"]["gaps"]) == 10
    assert await _failed(running, until=False) == []
    assert (await running.made())["duplicates"]["surplus"] == 0


@pytest.mark.slow
@only("distributed")
async def test_the_requests_topic_comes_back_with_fewer_partitions(running: Deployment) -> None:
    await running.command("account", "pause", "acme")
    waiting = [(await running.submit("acme", booking(each))).json()["data"]["requestId"] for each in range(12)]
    await _ingested(running, len(waiting))
    await _make_anew(running, "--partitions", "1")
    assert "topics_in_step_with_store" in await _failed(running, until=True)
    await running.command("account", "resume", "acme")
    for request_id in waiting:
        assert (await running.settled("acme", request_id))["status"] == "CONFIRMED"
    made = await running.made()
    assert (made["made"], made["duplicates"]["surplus"]) == (12, 0)


@only("distributed")
async def test_the_topics_are_given_more_partitions(running: Deployment) -> None:
    await running.command("account", "pause", "acme")
    waiting = [
        (await running.submit("acme", booking(each, propertyId=each % 6))).json()["data"]["requestId"]
        for each in range(12)
    ]
    await _ingested(running, len(waiting))
    refused = await Typed(running, "topics", "grow", "16", "--yes").done()
    assert refused.code == 1
    steps = [line for line in refused.err.splitlines() if line.startswith("- ")]
    assert [step.partition(" on ")[0] for step in steps if "read" not in step] == [
        "- stop the ingress",
        "- stop the worker",
    ]
    await asyncio.to_thread(running.processes["ingress"].stop)
    await asyncio.to_thread(running.processes["worker"].stop)
    assert (await running.command("topics", "list"))[0]["partitions"] == 4
    grown = await Typed(running, "topics", "grow", "16", "--yes", "--json").done()
    assert grown.code == 0, grown.err
    assert grown.data["moved"] > 0
    assert {each["partitions"] for each in await running.command("topics", "list")} == {16}
    again = await Typed(running, "topics", "grow", "16", "--yes", "--json").done()
    assert (again.data["topics"], again.data["moved"]) == ([], 0)
    await running.start()
    waiting += [
        (await running.submit("acme", booking(each, propertyId=each % 6))).json()["data"]["requestId"]
        for each in range(12, 18)
    ]
    await running.command("account", "resume", "acme")
    for request_id in waiting:
        assert (await running.settled("acme", request_id))["status"] == "CONFIRMED"
    made = await running.made()
    assert (made["made"], made["duplicates"]["surplus"]) == (18, 0)
    assert await _failed(running, until=False) == []


async def _ingested(running: Deployment, count: int) -> None:
    """Return once so many submissions are in the store."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(await running.listed("submissions", "list", "--status", "pending")) < count:
            await asyncio.sleep(0.2)  # it can only be asked


async def _delete_everything(running: Deployment) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=running.site.settings["FORWARDER_KAFKA_BOOTSTRAP_SERVERS"])
    await admin.start()
    topic = f"{running.site.settings['FORWARDER_TOPIC_PREFIX']}reservations.requests"
    try:
        (described,) = await admin.describe_topics([topic])
        every = [TopicPartition(topic, each["partition"]) for each in described["partitions"]]
        await admin.delete_records({each: RecordsToDelete(before_offset=-1) for each in every})
    finally:
        await admin.close()


async def _make_anew(running: Deployment, *partitions: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=running.site.settings["FORWARDER_KAFKA_BOOTSTRAP_SERVERS"])
    await admin.start()
    prefix = running.site.settings["FORWARDER_TOPIC_PREFIX"]
    try:
        await admin.delete_topics([name for name in await admin.list_topics() if name.startswith(prefix)])
        async with asyncio.timeout(PATIENCE_SECONDS):
            while any(name.startswith(prefix) for name in await admin.list_topics()):
                pass
    finally:
        await admin.close()
    await running.command("topics", "create", *partitions)


async def _failed(running: Deployment, *, until: bool) -> list[str]:
    """The checks that the worker fails, once it does, or does not any more."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            answer = await running.client.get(f"{running.url('worker')}/readyz")
            failed: list[str] = answer.json()["failed"]
            if bool(failed) is until and answer.status_code == 200:
                return failed
            await asyncio.sleep(0.2)  # it can only be asked
