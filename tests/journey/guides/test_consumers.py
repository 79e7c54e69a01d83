"""examples/consumers, on a real Kafka: each handles an event once, whatever comes twice, is unknown or of test mode, and goes on
where it was after a restart."""

import asyncio
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest

from forwarder.assembly.backend import open_log
from forwarder.topics.port import Message
from tests.support.contracts.environments import environment
from tests.support.contracts.node_program import installed
from tests.support.deployment.deployment import PATIENCE_SECONDS, Site
from tests.support.deployment.site import settings_of
from tools.contracts.messages import result_messages
from tools.servers.ladder import Unavailable

EXAMPLES = Path(__file__).parents[3] / "examples" / "consumers"
EVENTS = {one.kind.split(".")[1]: one.example for one in result_messages()}
BUILD_SECONDS = 280


async def _program(language: str, directory: Path) -> Sequence[str]:
    """The command that runs the example of that name; skips where what it needs cannot be had."""
    try:
        return await _PROGRAMS[language](directory)
    except Unavailable as reason:
        pytest.skip(str(reason))


async def _aiokafka(directory: Path) -> Sequence[str]:
    return [sys.executable, str(EXAMPLES / "python" / "consumer.py")]


async def _faststream(directory: Path) -> Sequence[str]:
    folder = EXAMPLES / "faststream"
    made = await asyncio.to_thread(environment, "faststream-consumer", folder / "requirements.txt")
    return [str(made / "bin" / "python"), "-W", "error", str(folder / "consumer.py")]


async def _kafkajs(directory: Path) -> Sequence[str]:
    files = {path.name: path.read_text(encoding="utf-8") for path in (EXAMPLES / "node").iterdir() if path.is_file()}
    made = await asyncio.to_thread(installed, "kafkajs-consumer", files)
    return ["node", str(made / "consumer.mjs")]


async def _franz_go(directory: Path) -> Sequence[str]:
    go = shutil.which("go")
    if go is None:
        raise Unavailable("no go in PATH")
    built = directory / "consumer"
    building = await asyncio.create_subprocess_exec(
        go, "build", "-o", str(built), ".", cwd=EXAMPLES / "go", stderr=asyncio.subprocess.PIPE
    )
    _, said = await asyncio.wait_for(building.communicate(), BUILD_SECONDS)
    if building.returncode != 0:
        raise Unavailable(f"go could not build it: {said.decode()[-300:]}")
    return [str(built)]


_PROGRAMS: Mapping[str, Callable[[Path], Awaitable[Sequence[str]]]] = {
    "python": _aiokafka,
    "faststream": _faststream,
    "node": _kafkajs,
    "go": _franz_go,
}


def test_every_example_is_run_here() -> None:
    assert _PROGRAMS.keys() == {path.name for path in EXAMPLES.iterdir()}


@asynccontextmanager
async def running(
    program: Sequence[str], environment: Mapping[str, str], faults: Path | None = None
) -> AsyncIterator[asyncio.StreamReader]:
    """The program, until it is told to end; what it prints. What it says of faults goes to the file, if there is one."""
    with (faults or Path(os.devnull)).open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *program,
            env={**os.environ, **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=None if faults is None else file,
        )
    assert process.stdout is not None
    try:
        yield process.stdout
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE_SECONDS) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line(printed: asyncio.StreamReader) -> list[str]:
    return (await asyncio.wait_for(printed.readline(), PATIENCE_SECONDS)).decode().split()


def changed(message: Message, kind: str | None = None, event_id: str | None = None, **fields: str) -> Message:
    """The event, of another type or id, with `fields` in front of its value's."""
    new = {"ce_type": kind, "ce_id": event_id}
    headers = tuple((name, (new.get(name) or value.decode()).encode()) for name, value in message.headers)
    more = "".join(f'"{name}":{value},' for name, value in fields.items())
    return replace(message, value=b"{" + more.encode() + message.value[1:], headers=headers)


@pytest.mark.slow
@pytest.mark.parametrize("language", _PROGRAMS)
@pytest.mark.parametrize("backend", ["distributed"], indirect=True)  # the embedded log has no Kafka to consume from
async def test_a_consumer_handles_each_event_once(site: Site, tmp_path: Path, language: str) -> None:
    program = await _program(language, tmp_path)
    settings = settings_of(site)
    topic = settings.topics.results
    known = {
        "KAFKA": site.settings["FORWARDER_KAFKA_BOOTSTRAP_SERVERS"],
        "TOPIC": topic,
        "GROUP": topic,  # of this test alone: another language's members would not agree with these
        "DATABASE": str(tmp_path / "bookings.db"),
        "HANDLED": str(tmp_path / "handled.txt"),
    }
    confirmed = changed(EVENTS["confirmed"], event_id="rsv_a.2", addedLater="[1]")
    older = changed(EVENTS["in_doubt"], event_id="rsv_a.1")
    unknown = changed(EVENTS["confirmed"], kind="reservation.moved.v1", event_id="rsv_b.1")
    simulated = changed(EVENTS["confirmed"], event_id="rsv_c.1", test="true")
    last = changed(EVENTS["confirmed"], event_id="rsv_d.1")
    async with open_log(settings.backend, partitions=1) as log:
        async with log.admin() as admin:
            await admin.create({topic: 1})
        async with log.publisher() as publisher:
            await publisher.publish(topic, [confirmed, confirmed, older, unknown, simulated, last])
            async with running(program, known) as printed:
                first, second = await line(printed), await line(printed)
            await publisher.publish(topic, [last, confirmed, changed(EVENTS["rejected"], event_id="rsv_e.1")])
            async with running(program, known) as printed:
                third = await line(printed)
    assert [each[0].split(".")[1] for each in (first, second, third)] == ["confirmed", "confirmed", "rejected"]
    assert third[-1] == "room_unavailable"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["distributed"], indirect=True)
async def test_what_faststream_could_not_handle_it_tries_again(site: Site, tmp_path: Path) -> None:
    program = await _program("faststream", tmp_path)
    settings = settings_of(site)
    topic, path, faults = settings.topics.results, tmp_path / "bookings.db", tmp_path / "faults.txt"
    known = {
        "KAFKA": site.settings["FORWARDER_KAFKA_BOOTSTRAP_SERVERS"],
        "TOPIC": topic,
        "GROUP": topic,  # of this test alone: another language's members would not agree with these
        "DATABASE": str(path),
    }
    async with open_log(settings.backend, partitions=1) as log:
        async with log.admin() as admin:
            await admin.create({topic: 1})
        async with log.publisher() as publisher, running(program, known, faults) as printed:
            await publisher.publish(topic, [changed(EVENTS["confirmed"], event_id="rsv_a.1")])
            assert (await line(printed))[1] == "rsv_a"
            with closing(sqlite3.connect(path, isolation_level=None)) as database:
                database.execute("begin exclusive")
                later = [changed(EVENTS["confirmed"], event_id=f"rsv_{name}.1") for name in "bc"]
                await publisher.publish(topic, later)
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while "locked" not in faults.read_text():
                        await asyncio.sleep(0.05)
                database.execute("rollback")
            assert [(await line(printed))[1] for _ in range(2)] == ["rsv_b", "rsv_c"]
