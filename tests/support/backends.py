"""The backends that the suites run on, by name.

A suite that runs on both takes the fixture `backend`, whose values are "embedded" and "distributed"; one that is about
a single one is marked `@only("distributed")`. Where a real server cannot be had, the distributed half is skipped with
the reason, or fails under `FORWARDER_TEST_REQUIRE=real`. `tools.servers.real_servers` says how servers are found.

`python -m tests.support.backends` starts Kafka and PostgreSQL for use outside pytest, prints the settings that reach
them, and keeps them until it is interrupted, terminated, or its standard input ends.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Literal, NoReturn

import pytest

from tools.servers.ladder import Unavailable
from tools.servers.postgres.databases import new_database
from tools.servers.real_servers import RealServers

Backend = Literal["embedded", "distributed"]
BACKENDS: tuple[Backend, ...] = ("embedded", "distributed")
REQUIRE = "FORWARDER_TEST_REQUIRE"


def only(backend: Backend) -> pytest.MarkDecorator:
    """Marks a test, or a module by `pytestmark`, that is about one backend."""
    return pytest.mark.parametrize("backend", [backend], indirect=True)


def slow_on(backend: Backend) -> pytest.MarkDecorator:
    """Marks a test that `make test` runs on the other backend alone, `make test-all` on both: a long way, of which each part is
    shown on both otherwise."""
    each = [pytest.param(one, marks=pytest.mark.slow) if one == backend else one for one in BACKENDS]
    return pytest.mark.parametrize("backend", each, indirect=True)


def missing(reason: Unavailable) -> NoReturn:
    """Skip the test, or fail it where the real servers are required (`FORWARDER_TEST_REQUIRE=real`)."""
    if os.environ.get(REQUIRE) == "real":
        pytest.fail(f"a real server is required and cannot be had: {reason}", pytrace=False)
    pytest.skip(str(reason))


def main() -> int:
    """Serve until told to stop. Exit code 1 where a server cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.backends", description="Kafka and PostgreSQL.")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="Kafka brokers, where they run locally")
    arguments = parser.parse_args()
    with RealServers(brokers=arguments.brokers) as servers:
        try:
            asyncio.run(_announce_and_wait(servers))
        except Unavailable as reason:
            print(f"cannot start: {reason}", file=sys.stderr)
            return 1
    return 0


async def _announce_and_wait(servers: RealServers) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    kafka, postgres = await asyncio.gather(
        asyncio.to_thread(servers.kafka.address), asyncio.to_thread(servers.postgres.address)
    )
    print(f"export FORWARDER_KAFKA_BOOTSTRAP_SERVERS={kafka}")
    async with new_database(postgres) as url:
        print(f"export FORWARDER_DATABASE_URL={url}", flush=True)
        _watch_input(loop, stop)
        await stop.wait()


def _watch_input(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Set `stop` when standard input ends.

    A shell gives its background jobs /dev/null, which has ended from the start.
    """
    if os.fstat(sys.stdin.fileno()).st_rdev == Path(os.devnull).stat().st_rdev:
        return

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            loop.remove_reader(sys.stdin.fileno())
            stop.set()

    loop.add_reader(sys.stdin.fileno(), read)


if __name__ == "__main__":
    sys.exit(main())
