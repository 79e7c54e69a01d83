"""The ladder by which the tests come by a real Kafka and a real PostgreSQL.

For each of them the first of these that works: a server named in the environment (`FORWARDER_TEST_KAFKA`,
`FORWARDER_TEST_DATABASE_URL`), a Docker container, a local process. Nothing is started before something asks for it.
Where a test run has several processes, they share the servers: one process has them, and lends them to the others
(`tools.servers.lent_servers`).
"""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock
from typing import Protocol, Self

from tools.servers.containers import KafkaInDocker, PostgresInDocker
from tools.servers.kafka.jars import obstacle as jars_obstacle
from tools.servers.kafka.process import KafkaCluster
from tools.servers.ladder import Plan, Rung, Unavailable, plan
from tools.servers.lent_servers import Borrowed
from tools.servers.postgres.process import PostgresServer, binaries
from tools.servers.reaper import Reaper
from tools.servers.server_process import ServerFailed


@dataclass(frozen=True, slots=True)
class FromEnvironment:
    """A server that somebody else started and named."""

    variable: str

    @property
    def origin(self) -> str:
        return f"the server named by {self.variable}"

    def obstacle(self) -> str | None:
        return None if os.environ.get(self.variable) else f"{self.variable} is not set"

    def start(self, open_until: ExitStack) -> str:
        return os.environ[self.variable]


@dataclass(frozen=True, slots=True)
class LocalKafka:
    """Apache Kafka, fetched by Maven, as processes of this machine."""

    reaper: Reaper
    brokers: int = 1
    short_lived: bool = False

    origin = "local Apache Kafka"

    def obstacle(self) -> str | None:
        return jars_obstacle()

    def start(self, open_until: ExitStack) -> str:
        cluster = KafkaCluster(self.reaper, brokers=self.brokers, short_lived=self.short_lived)
        open_until.callback(cluster.kill)  # nobody wants its data
        _start(cluster)
        return cluster.bootstrap_servers


@dataclass(frozen=True, slots=True)
class LocalPostgres:
    """The PostgreSQL that is installed here, as a process of its own."""

    reaper: Reaper
    durable: bool = True

    origin = "local PostgreSQL"

    def obstacle(self) -> str | None:
        return None if binaries() else "no PostgreSQL is installed (initdb)"

    def start(self, open_until: ExitStack) -> str:
        server = PostgresServer(self.reaper, durable=self.durable)
        open_until.callback(server.stop)
        _start(server)
        return server.url


def _start(server: KafkaCluster | PostgresServer) -> None:
    try:
        server.start()
    except ServerFailed as error:
        raise Unavailable(str(error)) from error


class Shared(Protocol):
    """A server that the tests share, wherever it runs."""

    def address(self) -> str:
        """How to reach it. Raises `Unavailable`, each time alike, where it cannot be had."""

    def planned(self) -> str | None:
        """How it will be had; None where another process says so."""

    def found(self) -> str | None:
        """What came of the plan; None while nothing asked for the server, and where another process says so."""


class RealServer:
    """A real server of this process: started at its first use by the first rung that works, and kept. Threads may share it."""

    def __init__(self, name: str, rungs: Sequence[Rung], open_until: ExitStack) -> None:
        self._name = name
        self._plan: Plan = plan(rungs)
        self._open_until = open_until
        self._turn = Lock()
        self._address: str | None = None
        self._refusal: Unavailable | None = None
        self._took = 0.0

    def address(self) -> str:
        with self._turn:
            if self._refusal is not None:
                raise self._refusal
            if self._address is None:
                self._address = self._start()
            return self._address

    def _start(self) -> str:
        began = time.monotonic()
        try:
            return self._climb()
        except Unavailable as refusal:
            self._refusal = refusal
            raise
        finally:
            self._took = time.monotonic() - began

    def _climb(self) -> str:
        while self._plan.chosen is not None:
            try:
                return self._plan.start(self._open_until)
            except Unavailable as reason:
                self._plan = self._plan.without(reason)
        return self._plan.start(self._open_until)

    def planned(self) -> str | None:
        return f"{self._name}: {self._plan}"

    def found(self) -> str | None:
        if self._refusal is not None:
            return f"{self._name}: not tested, {self._refusal}"
        if self._address is not None:
            return f"{self._name}: {self._plan}, at {self._address}, up in {self._took:.1f} s"
        return None


class RealServers:
    """Both servers of the distributed backend. Open it with `with`: what was started is stopped at the end.

    `lent_by` is where a process lends them that has them. Those that are `for_tests` start quickly and sync nothing to disk; those
    that are not are as one would run them, to be measured.
    """

    def __init__(self, *, brokers: int = 1, for_tests: bool = False, lent_by: str | None = None) -> None:
        self._stack = ExitStack()
        self._brokers = brokers
        self._for_tests = for_tests
        self._lent_by = lent_by

    def __enter__(self) -> Self:
        self.reaper = self._stack.enter_context(Reaper())
        self.kafka: Shared = self._borrowed("kafka") or RealServer("Kafka", self._kafka_rungs(), self._stack)
        self.postgres: Shared = self._borrowed("postgres") or RealServer(
            "PostgreSQL", self._postgres_rungs(), self._stack
        )
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def _borrowed(self, name: str) -> Shared | None:
        return None if self._lent_by is None else Borrowed(self._lent_by, name)

    def _kafka_rungs(self) -> Sequence[Rung]:
        local = LocalKafka(self.reaper, self._brokers, short_lived=self._for_tests)
        return [FromEnvironment("FORWARDER_TEST_KAFKA"), KafkaInDocker(), local]

    def _postgres_rungs(self) -> Sequence[Rung]:
        named = FromEnvironment("FORWARDER_TEST_DATABASE_URL")
        durable = not self._for_tests
        return [named, PostgresInDocker(durable), LocalPostgres(self.reaper, durable)]

    def planned(self) -> list[str]:
        return [line for line in (self.kafka.planned(), self.postgres.planned()) if line is not None]

    def found(self) -> list[str]:
        return [line for line in (self.kafka.found(), self.postgres.found()) if line is not None]
