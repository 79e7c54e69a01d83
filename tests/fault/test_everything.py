"""Everything at once: processes, brokers and databases die, PMSs fail, operators work and callers cancel, all while reservations
flow to a hundred accounts. `make faults COUNT=1000000 ARGS='-k everything'` is the long one."""

import asyncio
import random
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import pytest
import pytest_asyncio

from tests.fault.campaign.cancelling import Cancelling
from tests.fault.campaign.case import Case
from tests.fault.campaign.form import Form
from tests.fault.campaign.judge import Expected
from tests.fault.campaign.load import Load
from tests.fault.campaign.pair import Pair
from tests.fault.campaign.service import RATES, open_service
from tests.fault.conftest import NewCase
from tests.fault.outages.test_pms import MODES
from tests.fault.test_redelivery import set_back
from tests.support.backends import missing
from tests.support.deployment.deployment import Typed
from tests.support.deployment.site import Site, site_settings
from tools.servers.kafka.process import KafkaCluster
from tools.servers.ladder import Unavailable
from tools.servers.postgres.process import PostgresServer
from tools.servers.real_servers import RealServers

COUNTS: Final = {"short": 2_000, "long": 20_000}
_KINDS: Final = ("generic",) * 5 + ("website-builder",) * 3 + ("booking-sync",) * 2
_TENS_OF_ACCOUNTS: Final = 10
"""The simulated booking-sync reads all bookings of an account for each request: many accounts have few each."""
_RATES: Final = {"short": 200.0, "long": 2_000.0}
"""Submissions a second at most: as many as the callers come to, at length."""
_BULK_WRITERS: Final = 8
_AHEAD: Final = 15_000
_ONE_IN_CANCELLED: Final = 40
_QUIET_SECONDS: Final = 0.5
_HASTENED_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 900.0
_SHARE: Final = 0.3
_ENDED: Final = Expected(statuses=frozenset({"CONFIRMED", "CANCELLED"}))
_REDELIVERED_AT_MOST: Final = 50_000
"""Messages that are delivered again all at once: of more, reading them would be all that is done for minutes."""


@pytest_asyncio.fixture(loop_scope="session")
async def pair(real_servers: RealServers) -> AsyncIterator[Pair]:
    try:
        found = Pair(PostgresServer(real_servers.reaper), PostgresServer(real_servers.reaper))
    except Unavailable as reason:
        missing(reason)
    await asyncio.to_thread(found.start)
    yield found
    await asyncio.to_thread(found.stop)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
async def test_everything_at_once(
    kafka_cluster: Callable[[int], KafkaCluster],
    pair: Pair,
    real_servers: RealServers,
    tmp_path: Path,
    new_case: NewCase,
    form: Form,
) -> None:
    cluster = kafka_cluster(3)
    async with AsyncExitStack() as stack:
        database = urlunsplit(urlsplit(pair.url)._replace(scheme="postgresql+asyncpg"))
        settings = site_settings("distributed", tmp_path, cluster.bootstrap_servers, database)
        settings["FORWARDER_LOG_USUAL_SHARE"] = "0.01"
        site = Site("distributed", tmp_path, settings, real_servers.reaper)
        service = await stack.enter_async_context(open_service(site, cluster, pair))
        case = new_case(service)
        case.rates = {**RATES, "generic": None, "website-builder": None}
        case.accounts = {f"a{number}-{kind}": kind for number, kind in enumerate(_KINDS * _TENS_OF_ACCOUNTS)}
        for added in ("second worker", "housekeeping"):
            case.deployment.add(added.rpartition(" ")[2], role=added)
        await case.deployment.start()
        cancelling = Cancelling(case.deployment, one_in=_ONE_IN_CANCELLED)
        count = form.count or COUNTS[form.length]
        flow = case.load(
            count=0,  # its end is the night's
            rate=_RATES[form.length],
            then=cancelling,
            bulk_writers=_BULK_WRITERS,
            held_back=lambda: case.not_made - cancelling.count > _AHEAD,
        )
        async with flow as load:
            night = Night(case, load, cluster, pair, count, time.monotonic() + 60 * form.minutes)
            async with asyncio.TaskGroup() as chains:
                chains.create_task(night.infrastructure())
                chains.create_task(night.pmss())
                chains.create_task(night.operators())
        await service.mend_engines()
        await case.deployment.start()
        await _nothing_pending(case)
        evidence = await case.verdict(_ENDED)
    assert not night.problems
    asked = {request_id for each in cancelling.asked.values() for request_id in each}
    held = {reference for account in case.accounts for reference in service.bookings.held(account)}
    statuses = evidence.statuses
    assert cancelling.answers <= {200, 202, 503}
    assert {request_id for request_id, status in statuses.items() if status == "CANCELLED"} == asked
    assert {request_id for request_id, status in statuses.items() if status == "CONFIRMED"} == held
    case.note(f"{len(asked):,} were cancelled, of them {len(asked - evidence.made.keys()):,} before they were sent")
    case.note(f"operators' commands: {', '.join(f'{times} {name}' for name, times in night.commands.items())}")


class Night:
    """Three chains of events that go on until `count` were sent, or until `ends`: each draws from its own part of the seed."""

    def __init__(self, case: Case, load: Load, cluster: KafkaCluster, pair: Pair, count: int, ends: float) -> None:
        self._ends = ends
        self._case, self._load, self._cluster, self._pair, self._count = case, load, cluster, pair, count
        self._processes = case.deployment.processes
        self.commands: Counter[str] = Counter()
        self.problems: list[str] = []

    def _chance(self, chain: str) -> random.Random:
        return random.Random(f"{self._case.random.random()}/{chain}")

    @property
    def _goes_on(self) -> bool:
        return self._load.accepted < self._count and time.monotonic() < self._ends

    async def infrastructure(self) -> None:
        """One thing after the other, with bookings made in between."""
        chance = self._chance("infrastructure")
        faults: Mapping[Callable[[random.Random], Awaitable[None]], int] = {
            self._kill_a_process: 8,
            self._restart_a_process: 3,
            self._stop_a_worker_past_its_lease: 2,
            self._kill_a_broker: 4,
            self._kill_all_brokers: 1,
            self._kill_the_database: 3,
            self._kill_the_standby: 1,
            self._fail_over: 2,
            self._cut_all_connections: 3,
            self._deliver_everything_again: 1,
        }
        while self._goes_on:
            await self._case.made_more(chance.randint(50, self._case.times(short=200, long=8_000)))
            (fault,) = chance.choices(list(faults), list(faults.values()))
            await fault(chance)

    async def pmss(self) -> None:
        """A few accounts' PMSs fail, each in its own way; then they are well, and others fail."""
        chance = self._chance("pmss")
        while self._goes_on:
            ill = chance.sample(list(self._case.accounts), 10)
            for account in ill:
                mode = chance.choice(MODES)
                more = {"retry_after": 1} if mode == "throttle" else {}
                await self._case.order_faults(account, mode=mode, rate=_SHARE, **more)
            await asyncio.sleep(chance.uniform(1.0, 10.0))  # the fault's own length
            await asyncio.gather(*map(self._case.lift_faults, ill))

    async def operators(self) -> None:
        """Commands, one after the other; what is paused is resumed."""
        chance = self._chance("operators")
        while self._goes_on:
            account = chance.choice(list(self._case.accounts))
            work: Sequence[Sequence[str]] = (
                ("account", "set", account, "--rate", str(chance.randint(20, 2_000))),
                ("account", "set", account, "--concurrency", str(chance.randint(1, 50))),
                ("account", "set", account, "--credential", f"rotated-{chance.random()}", "--same-pms"),
                ("submissions", "retry", "--account", account, "--yes"),
                ("submissions", "list", "--account", account),
                ("status",),
            )
            await self._command("account", "pause", account)
            await self._command(*chance.choice(work))
            await self._command("account", "resume", account)
            await asyncio.sleep(chance.uniform(1.0, 12.0))  # operators have other things to do

    async def _command(self, *arguments: str) -> None:
        """Again and again until it is done: while no database can be written to, it says so."""
        name = " ".join(arguments[:2])
        self.commands[name] += 1
        async with asyncio.timeout(_PATIENCE_SECONDS):
            try:
                while (said := await Typed(self._case.deployment, *arguments).done()).code and _is_an_outage(said.err):
                    self.commands["refused in an outage"] += 1
                    await asyncio.sleep(_QUIET_SECONDS)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                self.problems.append(f"{name}: {error}")
            else:
                if said.code and name != "status":  # which says by its code that there are problems
                    self.problems.append(f"{name}: {said.err}")

    async def _kill_a_process(self, chance: random.Random) -> None:
        await self._case.kill(chance.choice(["worker", "second worker", "ingress", "query", "housekeeping"]))

    async def _restart_a_process(self, chance: random.Random) -> None:
        role = chance.choice(["worker", "second worker", "ingress", "query"])
        await self._case.hit(f"{role} restarted", self._processes[role].restart)

    async def _stop_a_worker_past_its_lease(self, chance: random.Random) -> None:
        worker = self._processes[chance.choice(["worker", "second worker"])]
        await self._case.hit("a worker stopped past its lease", worker.pause)
        lease_seconds = float(self._case.deployment.site.settings["FORWARDER_LEASE_SECONDS"])
        await asyncio.sleep(lease_seconds * 1.3)  # the fault's own length
        await self._case.wait(worker.resume)

    async def _kill_a_broker(self, chance: random.Random) -> None:
        broker = chance.choice(self._cluster.brokers)
        await self._case.hit("kill -9 of a broker of three", broker.kill)
        await asyncio.sleep(chance.uniform(0.0, 8.0))  # the fault's own length
        await self._case.wait(broker.start)

    async def _kill_all_brokers(self, _chance: random.Random) -> None:
        await self._case.hit("kill -9 of all three brokers", self._cluster.kill)
        await self._case.wait(self._cluster.start)

    async def _kill_the_database(self, _chance: random.Random) -> None:
        await self._case.hit("kill -9 of PostgreSQL", self._pair.kill)
        await self._case.wait(self._pair.start)

    async def _kill_the_standby(self, chance: random.Random) -> None:
        """Commits wait for it meanwhile."""
        await self._case.hit("kill -9 of the synchronous standby", self._pair.standby.kill)
        await asyncio.sleep(chance.uniform(0.0, 5.0))  # the fault's own length
        await self._case.wait(self._pair.start)

    async def _fail_over(self, _chance: random.Random) -> None:
        await self._case.hit("failover to the standby", self._pair.fail_over)
        await self._case.made_more(100)
        await self._case.wait(self._pair.rebuild)

    async def _cut_all_connections(self, _chance: random.Random) -> None:
        cut = "select pid::text, pg_terminate_backend(pid)::int from pg_stat_activity where application_name like 'forwarder%'"
        await self._case.service.rows(cut)
        self._case.injected("all connections to PostgreSQL cut")

    async def _deliver_everything_again(self, _chance: random.Random) -> None:
        if self._load.sent > _REDELIVERED_AT_MOST:
            return
        workers = [self._processes[role] for role in ("worker", "second worker")]
        await asyncio.gather(*(self._case.wait(each.stop) for each in workers))
        await set_back(self._case)
        self._case.injected("offsets set back to the beginning")
        await self._case.deployment.start()


def _is_an_outage(said: str) -> bool:
    """Commands say so, and what to do; one that says anything else has failed."""
    return "is unavailable" in said


async def _nothing_pending(case: Case) -> None:
    """Before all is read, which takes minutes. What failed often is tried again within the hour: operators hasten it."""
    pending = "select status, count(*) from reservations where status = 'PENDING' group by status"
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while await case.service.rows(pending):
            await Typed(case.deployment, "submissions", "retry", "--status", "PENDING", "--yes").done()
            await asyncio.sleep(_HASTENED_SECONDS)
