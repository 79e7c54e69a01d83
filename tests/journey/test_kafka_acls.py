"""Every stage as a Kafka user of its own, with the ACLs that `forwarder topics acls` prints and no other: all of it works, and what
else it could reach is refused."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.kafka.security import KafkaSecurity, acls
from forwarder.topics.port import LogUnavailable, Message, Topics
from tests.support.backends import missing, only
from tests.support.deployment.deployment import Deployment, Site, Typed, booking, deploy
from tests.support.network.receiver import receiver
from tools.servers.kafka.guarded import GuardedKafka, guarded_kafka, password_of
from tools.servers.ladder import Unavailable
from tools.servers.real_servers import RealServers

TOPICS = Topics()
STAGES = tuple(acls(TOPICS, "", ""))
ALL = set(TOPICS.all())
MAY_READ: Mapping[str, set[str]] = {
    "ingress": {TOPICS.results},
    "worker": ALL,
    "query": {TOPICS.results},
    "notifier": {TOPICS.results},
    "operator": ALL,
}
MAY_WRITE: Mapping[str, set[str]] = {
    "ingress": {TOPICS.requests},
    "worker": {TOPICS.results, TOPICS.dead_letters},
    "query": set(),
    "notifier": set(),
    "operator": {TOPICS.requests, TOPICS.results},
}


@pytest.fixture
async def kafka(real_servers: RealServers) -> AsyncIterator[GuardedKafka]:
    try:
        started = await asyncio.to_thread(guarded_kafka, real_servers.reaper, STAGES)
    except Unavailable as reason:
        missing(reason)
    yield started
    await asyncio.to_thread(started.cluster.kill)


def _as(stage: str) -> Mapping[str, str]:
    return {"FORWARDER_KAFKA_SASL_USERNAME": stage, "FORWARDER_KAFKA_SASL_PASSWORD": password_of(stage)}


@only("distributed")
@pytest.mark.slow
async def test_each_stage_does_its_work_with_its_own_acls_and_nothing_else(site: Site, kafka: GuardedKafka) -> None:
    guarded = {
        "FORWARDER_KAFKA_BOOTSTRAP_SERVERS": kafka.address,
        "FORWARDER_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "FORWARDER_KAFKA_SASL_MECHANISM": "PLAIN",
        "FORWARDER_TOPIC_PREFIX": "",
        **_as("operator"),
    }
    site = Site(site.backend, site.directory, {**site.settings, **guarded}, site.reaper)
    for each in await Deployment(site).command("topics", "acls", "--user", "User:{stage}"):
        for resource in ("topic", "group"):
            await kafka.allow(each["user"], each["operation"], resource, each[f"{resource}s"])
    own = {stage: _as(stage) for stage in STAGES if stage != "operator"}
    own["notifier"] = {**own["notifier"], "FORWARDER_WEBHOOK_PRIVATE_ADDRESSES": "true"}
    async with deploy(site, own=own) as running:
        running.add("notifier")
        await running.start()
        await running.add_account("generic")
        await _journey(running)
        await _operated(running)
        for stage in STAGES:
            await _is_held_to_its_topics(kafka, stage)
        await running.stop()
        logs = {role: "".join(each.read_text() for each in Path(site.directory).glob(f"{role}*.log")) for role in own}
        assert [role for role, log in logs.items() if "AuthorizationFailed" in log] == []


async def _journey(running: Deployment) -> None:
    """What callers do, with outcomes that they wait for at the ingress and at the query stage, one that fails, and a webhook."""
    async with receiver() as customer:
        hooks, headers = f"{running.url('notifier')}/api/v1/vrs/webhooks", running.headers("generic")
        added = await running.client.post(hooks, json={"url": customer.url}, headers=headers)
        assert added.status_code == 201, added.text
        made = await running.submit("generic", booking(1), Prefer="wait=60")
        assert made.status_code == 201, made.text
        request_id = made.json()["data"]["requestId"]
        await customer.has_answered(f"{request_id}.1")
        cancelled = await running.cancel("generic", request_id, Prefer="wait=60")
        assert cancelled.status_code == 200, cancelled.text
        await running.client.put(f"{running.url('simulate')}/generic/faults", json={"mode": "down"})
        failing = await running.submit("generic", booking(2), **{"Forward-Deadline": "3"})
        waiting = f"{running.url('query')}/api/v1/vrs/submissions/{failing.json()['data']['requestId']}"
        failed = await running.client.get(waiting, headers={**headers, "Prefer": "wait=60"})
        assert failed.json()["data"]["status"] == "FAILED", failed.text
        await running.client.delete(f"{running.url('simulate')}/generic/faults")


async def _operated(running: Deployment) -> None:
    """What operators type that asks the brokers."""
    assert {each["topic"] for each in await running.command("topics", "list")} == ALL
    status = await Typed(running, "status", "--json").done()  # a dead letter is trouble enough for another exit code
    assert {each["name"] for each in json.loads(status.out)["log"]["topics"]} == ALL, status.out
    (letter,) = await running.command("dead-letters", "list")
    assert (await running.command("dead-letters", "replay", letter["id"]))["putBack"] == 1
    await running.all_settled("generic", 2)
    scanned = await running.command("scan", "--pan")
    assert (scanned["complete"], scanned["hits"]) == (True, 0), scanned["found"]
    refused = await Typed(running, "recover", "--from-snapshot", "--dry-run").done()
    assert "are at work on this store" in refused.err, refused.err


async def _is_held_to_its_topics(kafka: GuardedKafka, stage: str) -> None:
    security = KafkaSecurity("SASL_PLAINTEXT", "PLAIN", stage, password_of(stage))
    log = KafkaLog(kafka.address, security=security, publish_timeout_seconds=10.0)
    async with asyncio.timeout(300):
        assert {topic for topic in ALL if await _reads(log, topic)} == MAY_READ[stage], stage
        assert {topic for topic in ALL if await _writes(log, topic)} == MAY_WRITE[stage], stage


async def _reads(log: KafkaLog, topic: str) -> bool:
    """Each topic holds something by now."""
    try:
        async with log.tail(topic, from_beginning=True) as tail:
            while not await tail.receive(max_messages=1, wait_seconds=1.0):
                pass
    except LogUnavailable as error:
        return _unless_refused(error)
    return True


async def _writes(log: KafkaLog, topic: str) -> bool:
    try:
        async with log.publisher() as publisher:
            await publisher.publish(topic, [Message(b"k", b"{}")])
    except LogUnavailable as error:
        return _unless_refused(error)
    return True


def _unless_refused(error: LogUnavailable) -> bool:
    if "AuthorizationFailed" not in str(error):
        raise error
    return False
