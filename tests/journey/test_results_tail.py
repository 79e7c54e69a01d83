"""`forwarder results tail`, beside whoever writes the topic: what it prints, where it begins, and how it ends."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO, Any

import pytest

from forwarder.assembly.backend import open_log
from forwarder.settings import Settings
from forwarder.topics.port import Log, Message, Publisher
from tests.support.deployment import warm
from tests.support.deployment.deployment import PATIENCE_SECONDS, Site
from tests.support.deployment.site import settings_of
from tools.contracts.messages.messages import result_messages

EVENTS = {one.kind.split(".")[1]: one.example for one in result_messages()}
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
        code, out, err = await ended(begin(self.site, *arguments))
        assert (code, err) == (0, "")
        return out.splitlines()

    async def events(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in await self.tail("--json", *arguments)]


@dataclass(frozen=True, slots=True)
class Tail:
    """A running command, and what it writes."""

    process: warm.WarmProcess
    out: IO[str]
    err: IO[str]


def begin(site: Site, *arguments: str) -> Tail:
    (out, its_out), (err, its_err) = os.pipe(), os.pipe()
    with os.fdopen(its_out, "wb") as to_out, os.fdopen(its_err, "wb") as to_err:
        process = warm.start(["results", "tail", *arguments], {**os.environ, **site.settings}, to_out, to_err)
    return Tail(process, os.fdopen(out), os.fdopen(err))


async def ended(tail: Tail) -> tuple[int, str, str]:
    out = "" if tail.out.closed else await _read(tail.out.read)
    err = await _read(tail.err.read)
    tail.out.close()
    tail.err.close()
    return await asyncio.to_thread(tail.process.wait, PATIENCE_SECONDS), out, err


async def next_line(tail: Tail) -> str:
    return await _read(tail.out.readline)


async def _read(read: Callable[[], str]) -> str:
    return await asyncio.wait_for(asyncio.to_thread(read), PATIENCE_SECONDS)


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


async def test_it_follows_passes_over_what_it_cannot_read_and_ends_when_it_is_told(topic: Topic) -> None:
    await topic.publish(EVENTS["confirmed"])
    following = begin(topic.site, "--from", "beginning", "--json")
    assert json.loads(await next_line(following))["type"] == "reservation.confirmed.v1"
    broken = Message(EVENTS["failed"].key, b"\x1b not JSON", EVENTS["failed"].headers)
    await topic.publish(broken, EVENTS["rejected"])
    assert json.loads(await next_line(following))["type"] == "reservation.rejected.v1"
    following.process.send_signal(signal.SIGINT)
    code, rest, err = await ended(following)
    assert (code, rest) == (0, "")
    assert f"{topic.settings.topics.results}, partition" in err
    assert "not JSON; passed over" in err
    assert "\x1b" not in err


async def test_it_ends_in_silence_when_nobody_reads_any_more(topic: Topic) -> None:
    await topic.publish(EVENTS["confirmed"])
    following = begin(topic.site, "--from", "beginning")
    assert "reservation.confirmed.v1" in await next_line(following)
    following.out.close()
    await topic.publish(EVENTS["failed"])
    assert await ended(following) == (0, "", "")


async def test_without_the_topic_it_says_what_makes_it(site: Site) -> None:
    code, out, err = await ended(begin(site))
    assert (code, out) == (1, "")
    assert "forwarder topics create" in err
