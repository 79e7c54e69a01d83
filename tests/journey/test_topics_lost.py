"""Kafka's topics are lost while the store stays: it is noticed and said, nothing is made twice, and work goes on."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from forwarder.assembly.backend import open_backend
from forwarder.assembly.commands.recovery import topic_check
from forwarder.settings.environment import Environment
from forwarder.settings.reading import settings_of
from forwarder.store.audit.port import AuditFilter
from forwarder.store.submissions.recorder import SqlRecorder
from forwarder.store.submissions.work import Arrival
from forwarder.topics.port import Message
from tests.support.backends import Backend, only
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, Site, Typed, booking, deploy
from tests.support.worker.works import NOW, submission


async def test_the_topic_lacks_what_the_store_took_from_it(tmp_path: Path) -> None:
    async with open_backend(settings_of(Environment(data_dir=tmp_path, partitions=1))) as backend:
        await backend.create_topics()
        recorder, check = SqlRecorder(backend.engine), topic_check(backend)
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


@pytest.fixture
async def running(site: Site, backend: Backend) -> AsyncIterator[Deployment]:
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
    assert "is lost" in said.out
    assert await _failed(running, until=False) == []


async def _make_anew(running: Deployment) -> None:
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
    await running.command("topics", "create")


async def _failed(running: Deployment, *, until: bool) -> list[str]:
    """The checks that the worker fails, once it does, or does not any more."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            answer = await running.client.get(f"{running.url('worker')}/readyz")
            failed: list[str] = answer.json()["failed"]
            if bool(failed) is until and answer.status_code == 200:
                return failed
            await asyncio.sleep(0.2)  # it can only be asked
