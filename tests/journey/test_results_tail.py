"""`forwarder results tail` and `forwarder listen`, beside whoever writes the topic: what they print and post, where they begin, and
how they end."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from standardwebhooks import Webhook

from forwarder.assembly.backend import open_log
from forwarder.settings import Settings
from forwarder.topics.port import Log, Message, Publisher
from tests.support.backends import slow_on
from tests.support.deployment.deployment import Site
from tests.support.deployment.following import begin, ended, next_line
from tests.support.deployment.site import settings_of
from tests.support.network.receiver import receiver
from tools.contracts.messages import other_messages, result_messages
from tools.servers.server_process import free_ports

EVENTS = {one.kind.split(".")[1]: one.example for one in (*result_messages(), *other_messages())}
TAIL = ("results", "tail")
PLAIN = ("confirmed", "rejected", "failed", "in_doubt")


@dataclass(frozen=True, slots=True)
class Topic:
    """The site's results topic, open for writing."""

    site: Site
    settings: Settings
    publisher: Publisher

    async def publish(self, *messages: Message) -> None:
        await self.publisher.publish(self.settings.topics.results, messages)

    async def tail(self, *arguments: str) -> list[str]:
        """The lines of a tail that ends by itself, all being well."""
        code, out, err = await ended(begin(self.site, *arguments, command=TAIL))
        assert (code, err) == (0, "")
        return out.splitlines()

    async def events(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in await self.tail("--json", *arguments)]


@pytest.fixture
async def topic(site: Site) -> AsyncIterator[Topic]:
    async with _opened(site) as opened:
        yield opened


@asynccontextmanager
async def _opened(site: Site) -> AsyncIterator[Topic]:
    settings = settings_of(site)
    async with open_log(settings.backend, partitions=4) as log:
        await _create(log, settings)
        async with log.publisher() as publisher:
            yield Topic(site, settings, publisher)


async def _create(log: Log, settings: Settings) -> None:
    async with log.admin() as admin:
        await admin.create({settings.topics.results: 4})


def types(events: Sequence[dict[str, Any]]) -> list[str]:
    return [event["type"].split(".")[1] for event in events]


async def test_what_is_there_is_printed_and_no_more_is_waited_for(topic: Topic) -> None:
    await topic.publish(*(EVENTS[each] for each in PLAIN))
    everything, some = await asyncio.gather(topic.tail("--no-follow"), topic.events("--from", "1h", "-n", "2"))
    assert [line.split()[1].split(".")[1] for line in everything] == [*PLAIN]
    assert types(some) == [*PLAIN[:2]]
    assert [event["data"] for event in some] == [json.loads(EVENTS[each].value) for each in PLAIN[:2]]


@slow_on("distributed")
async def test_it_follows_passes_over_what_it_cannot_read_and_ends_when_it_is_told(topic: Topic) -> None:
    await topic.publish(EVENTS["confirmed"])
    following = begin(topic.site, "--from", "beginning", "--json", command=TAIL)
    assert json.loads(await next_line(following))["type"] == "reservation.confirmed.v1"
    broken = Message(EVENTS["failed"].key, b"\x1b not JSON", EVENTS["failed"].headers)
    await topic.publish(broken, EVENTS["rejected"])
    assert json.loads(await next_line(following))["type"] == "reservation.rejected.v1"
    following.process.send_signal(signal.SIGINT)
    code, rest, err = await ended(following)
    assert (code, rest) == (0, "")
    assert f"{topic.settings.topics.results}, partition" in err
    assert "not JSON; skipped" in err
    assert "\x1b" not in err


@slow_on("distributed")
async def test_it_ends_in_silence_when_nobody_reads_any_more(topic: Topic) -> None:
    await topic.publish(EVENTS["confirmed"])
    following = begin(topic.site, "--from", "beginning", command=TAIL)
    assert "reservation.confirmed.v1" in await next_line(following)
    following.out.close()
    await topic.publish(EVENTS["failed"])
    assert await ended(following) == (0, "", "")


@slow_on("distributed")
async def test_without_the_topic_it_says_what_makes_it(site: Site) -> None:
    code, out, err = await ended(begin(site, command=TAIL))
    assert (code, out) == (1, "")
    assert "forwarder topics create" in err


@slow_on("distributed")
async def test_what_is_listened_for_is_posted_signed_and_in_order_and_the_answer_is_shown(topic: Topic) -> None:
    broken = Message(EVENTS["failed"].key, b"not JSON", EVENTS["failed"].headers)
    await topic.publish(EVENTS["confirmed"], EVENTS["duplicate"], broken, EVENTS["failed"], EVENTS["rejected"])
    wanted = ("--from", "beginning", "--type", "confirmed", "--type", "rejected", "--workspace", "seaside")
    async with receiver() as program:
        listening = begin(topic.site, "--forward-to", program.url, *wanted, command=["listen"])
        secret = (await next_line(listening)).split()[-1]
        lines = [await next_line(listening) for _ in range(2)]
        listening.process.send_signal(signal.SIGINT)
        code, rest, err = await ended(listening)
    posted = [Webhook(secret).verify(each.body, each.headers) for each in program.answered]
    assert [each["type"] for each in posted] == ["reservation.confirmed.v1", "reservation.rejected.v1"]
    assert [each["data"] for each in posted] == [json.loads(EVENTS[each].value) for each in ("confirmed", "rejected")]
    assert [(line.split()[0], line.split()[3]) for line in lines] == [(each["type"], "204") for each in posted]
    assert (code, rest) == (0, "")
    assert "skipped" in err


@slow_on("distributed")
async def test_a_program_that_is_not_there_is_told_of_and_waited_for(topic: Topic) -> None:
    await topic.publish(EVENTS["confirmed"])
    (port,) = free_ports(1)
    arguments = ("--forward-to", f"http://127.0.0.1:{port}/in", "--from", "beginning")
    listening = begin(topic.site, *arguments, command=["listen"])
    assert "whsec_" in await next_line(listening)
    assert "connect" in await next_line(listening)
    listening.process.send_signal(signal.SIGINT)
    code, _, _ = await ended(listening)
    assert code == 0
