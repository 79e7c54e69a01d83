"""What one delivered reservation costs the worker and PostgreSQL, in CPU time: `python -m bench.cost_of_delivery`.

This process is the worker, with its own log on real Kafka, its store in a real PostgreSQL and the lean PMS beside it. So many
submissions of about 900 bytes stand on the log before it starts. CPU time, not wall time: other work of the machine hardly shows.

`--rate 100000` gives the account a rate, for which the worker borrows tokens from PostgreSQL, and says what that costs of a
delivery: the loans that were made, each at what one costs by itself. Two runs, without and with, differ by more than that on a busy
machine. The rate is higher than the flow, so that nothing waits for it.
"""

import argparse
import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import uvloop
from sqlalchemy.ext.asyncio import AsyncEngine

from bench.bodies import reservation
from bench.flows import PARTITIONS
from bench.processes import Role, local_url, port_of, running
from bench.shares import DELIVERY, Shares
from forwarder.ingress.message import NewSubmission, SubmissionBuilder, Terms
from forwarder.ingress.responses import Losses
from forwarder.observability import metrics
from forwarder.observability.logging import configure_logging
from forwarder.pms.directory import open_directory
from forwarder.pms.rehearsal import Previews
from forwarder.process.clock import SystemClock
from forwarder.process.loading import collect_rarely
from forwarder.process.shares import Loan, LoanRequest, SharedBucket
from forwarder.reservation.checks.fields import plausibility, read_request
from forwarder.reservation.submission import RequestIds
from forwarder.store.deployment import SqlLender
from forwarder.store.engine import open_engine
from forwarder.store.migrate import migrate
from forwarder.store.submissions.card_keys import CardKeys
from forwarder.store.submissions.recorder import Recorder
from forwarder.tenancy.access import Caller
from forwarder.tenancy.port import Account
from forwarder.tenancy.sealing import CardSealer, Keyring, Secret, with_credential
from forwarder.tenancy.sql.secrets import SealingKeys
from forwarder.topics.codec import MessageSigner
from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.port import Message, Publisher, Topics
from forwarder.worker.cards import CardParts
from forwarder.worker.parts import WorkerParts, WorkerSettings
from forwarder.worker.service import Worker
from tools.servers.postgres.databases import new_database
from tools.servers.real_servers import RealServers

_SECRET = "a secret of this benchmark alone"  # noqa: S105 - as it says
_ACCOUNT, _WORKSPACE = "bench-generic", "bench"
_OWNER = Account(_ACCOUNT, _WORKSPACE, "generic", "http://pms.test", "")
_IDS = RequestIds(b"0123456789abcdef")
_SIGNER = MessageSigner(b"0123456789abcdef")
_AT_ONCE = 1_000
_LOOK_SECONDS = 0.02
_LOANS = 1_000
_TICKS = os.sysconf("SC_CLK_TCK")


class OneAccount:
    """A directory of one account."""

    def __init__(self, account: Account) -> None:
        self._account = account

    async def key(self, token: str) -> None:
        raise AssertionError("a worker authenticates nobody")

    async def account(self, account_id: str, workspace_id: str | None = None) -> Account | None:
        return self._account if account_id == self._account.id else None


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used up so far. CPU in seconds: of this process, of its main thread, of all of PostgreSQL's processes."""

    process: float
    main_thread: float
    postgres: float

    @classmethod
    def now(cls, postmaster: int) -> "Usage":
        return cls(time.process_time(), time.thread_time(), _cpu_of_server(postmaster))


def _cpu_of_server(postmaster: int) -> float:
    """CPU seconds of a process, its children, and those of them that have ended."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if path.parent.name == str(postmaster):
            ticks += sum(map(int, fields[11:15]))
        elif fields[1] == str(postmaster):
            ticks += sum(map(int, fields[11:13]))
    return ticks / _TICKS


async def _postmaster(database: asyncpg.Connection) -> int:
    backend: int = await database.fetchval("select pg_backend_pid()")
    stat = await asyncio.to_thread(Path(f"/proc/{backend}/stat").read_text)
    return int(stat.rpartition(")")[2].split()[1])


async def _written(database: asyncpg.Connection) -> tuple[int, int]:
    """Transactions committed in this database, and bytes of the server's write-ahead log, so far."""
    commits: int = await database.fetchval(
        "select xact_commit from pg_stat_database where datname = current_database()"
    )
    wal: int = await database.fetchval("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
    return commits, wal


def _messages(*, recognised: bool) -> Callable[[int], Message]:
    """What the ingress would publish of each reservation. `recognised`: with the keys by which one sent again is found."""
    builder = SubmissionBuilder(_IDS, CardSealer(), Losses(lambda: Previews(SystemClock())))
    caller, terms = Caller(_WORKSPACE, _OWNER, "key-bench"), Terms(None, None, None)

    def message(number: int) -> Message:
        read = read_request("booking-engine", reservation("cost", number))
        assert not isinstance(read, list)
        now = SystemClock().now()
        submission = builder.build(caller, "booking-engine", read, terms, plausibility(now), now)
        assert isinstance(submission, NewSubmission)
        known = submission if recognised else submission._replace(natural=None)
        return known.message(submission.accepted_at)

    return message


async def _publish(publisher: Publisher, topics: Topics, count: int, *, recognised: bool) -> None:
    message = _messages(recognised=recognised)
    for first in range(0, count, _AT_ONCE):
        await publisher.publish(
            topics.requests, [_SIGNER.signed(message(n)) for n in range(first, min(first + _AT_ONCE, count))]
        )


async def _until_announced(count: int, worker: asyncio.Task[None]) -> None:
    """Return once so many results were published. Raises what the worker ended with."""
    while _announced() < count:
        if worker.done():
            worker.result()
        await asyncio.sleep(_LOOK_SECONDS)


def _announced() -> float:
    # Its own samples alone: to go through the whole registry would show in what is measured.
    (family,) = metrics.RESULTS_PUBLISHED.collect()
    return next(sample.value for sample in family.samples if sample.name.endswith("_total"))


def _card_parts(engine: AsyncEngine) -> CardParts:
    async def refresh() -> None:
        """The one secret stays."""

    keyring = Keyring([Secret.from_text(_SECRET)])
    return CardParts(CardKeys(engine), SealingKeys(engine, keyring), keyring, refresh)


class _CountedLender:
    """Counts the loans that it makes."""

    def __init__(self, lender: SqlLender) -> None:
        self._lender = lender
        self.loans = 0

    async def lend(self, requests: Sequence[LoanRequest]) -> Sequence[Loan]:
        self.loans += 1
        return await self._lender.lend(requests)


@asynccontextmanager
async def _worker(
    arguments: argparse.Namespace, kafka: str, engine: AsyncEngine, lender: _CountedLender, pms_url: str
) -> AsyncIterator[asyncio.Task[None]]:
    """A worker at work on what stands on the log; it has stopped cleanly at the end."""
    topics, stop, clock = Topics(f"cost.{secrets.token_hex(4)}."), asyncio.Event(), SystemClock()
    rate, concurrency = arguments.rate, arguments.concurrency
    account = Account(_ACCOUNT, _WORKSPACE, "generic", pms_url, "", concurrency=concurrency, rate_per_second=rate)
    keyring = Keyring([Secret.from_text(_SECRET)])
    account = with_credential(account, "secret", keyring)
    async with AsyncExitStack() as stack:
        log = KafkaLog(kafka)
        async with log.admin() as admin:
            await admin.create(dict.fromkeys(topics.all(), PARTITIONS))
        publisher = await stack.enter_async_context(log.publisher())
        await _publish(publisher, topics, arguments.warm + arguments.count, recognised=not arguments.unrecognised)
        parts = WorkerParts(
            log=log,
            topics=topics,
            publisher=publisher,
            recorder=Recorder(engine),
            directory=OneAccount(account),
            unsealer=keyring,
            pms=await stack.enter_async_context(open_directory(clock)),
            clock=clock,
            settings=WorkerSettings(),
            signer=_SIGNER,
            cards=_card_parts(engine),
            lender=None if rate is None else lender,
        )
        running_worker = asyncio.create_task(Worker(parts).run(stop))
        try:
            yield running_worker
        finally:
            stop.set()
            await running_worker


async def _measure(arguments: argparse.Namespace, servers: RealServers, logs: Path) -> dict[str, object]:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(new_database(servers.postgres.address()))
        plain = url.replace("+asyncpg", "")
        first = _announced()  # by earlier turns
        await migrate(url)
        database = await asyncpg.connect(plain)
        stack.push_async_callback(database.close)
        postmaster, pms_url = await _postmaster(database), local_url()
        command = [sys.executable, "-m", "bench.pms", "--port", port_of(pms_url), "--delay", str(arguments.delay)]
        pms = Role("pms", command, {}, f"{pms_url}/healthz")
        await stack.enter_async_context(running(pms, logs, servers.reaper))
        engine = open_engine(plain)
        stack.push_async_callback(engine.dispose)
        lender = _CountedLender(SqlLender(engine))
        async with _worker(arguments, servers.kafka.address(), engine, lender, pms_url) as worker:
            await _until_announced(first + arguments.warm, worker)
            already, began = _announced(), time.perf_counter()
            before, written, lent = Usage.now(postmaster), await _written(database), lender.loans
            shares = None if arguments.no_profile else Shares(DELIVERY)
            with nullcontext() if shares is None else shares.taken():
                await _until_announced(first + arguments.warm + arguments.count, worker)
                after, seconds = Usage.now(postmaster), time.perf_counter() - began
                lent = lender.loans - lent
        done = first + arguments.warm + arguments.count - already
        told = _told(before, after, done, shares) | _told_written(written, await _written(database), done)
        if arguments.rate is not None:
            loan, delivery = await _of_a_loan(SqlLender(engine), postmaster), told["worker"] + told["postgres"]
            share = sum(loan.values()) * lent / done / (delivery - sum(loan.values()) * lent / done)
            told |= {
                "loans per 1,000": round(lent / done * 1_000, 1),
                "a loan": loan,
                "cost of the rate, per cent": round(share * 100, 1),
            }
        return told | {"per second": round(done / seconds)}


async def _of_a_loan(lender: SqlLender, postmaster: int) -> dict[str, float]:
    """CPU µs of one loan, of this process and of PostgreSQL."""
    request = LoanRequest((SharedBucket("bench#loan", 1e6, 1e6),), 0.0, 1, 1)
    before = Usage.now(postmaster)
    for _ in range(_LOANS):
        await lender.lend([request])
    after = Usage.now(postmaster)
    spent = {"worker": after.process - before.process, "postgres": after.postgres - before.postgres}
    return {name: round(seconds / _LOANS * 1_000_000) for name, seconds in spent.items()}


def _told(before: Usage, after: Usage, count: float, shares: Shares | None) -> dict[str, Any]:
    """CPU µs for each reservation."""

    def each(seconds: float) -> int:
        return round(seconds / count * 1_000_000)

    main = after.main_thread - before.main_thread
    process = after.process - before.process
    parts = {} if shares is None else {part: each(seconds) for part, seconds in shares.of(main).items()}
    return {
        "worker": each(process),
        "postgres": each(after.postgres - before.postgres),
        "main thread": each(main),
        "transport's threads": each(process - main),
        "parts of the main thread": parts,
    }


def _told_written(before: tuple[int, int], after: tuple[int, int], count: float) -> dict[str, object]:
    return {
        "transactions per 1,000": round((after[0] - before[0]) / count * 1_000, 1),
        "wal bytes": round((after[1] - before[1]) / count),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Print one JSON object; CPU in µs for each reservation."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost_of_delivery")
    parser.add_argument("-n", dest="count", type=int, default=10_000, help="reservations measured (%(default)s)")
    parser.add_argument("--warm", type=int, default=2_000, help="reservations before them (%(default)s)")
    parser.add_argument("--concurrency", type=int, default=64, help="pushes in flight (%(default)s)")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer of the PMS (%(default)s)")
    parser.add_argument("--unrecognised", action="store_true", help="without natural keys: nothing is found sent again")
    parser.add_argument("--rate", type=float, help="a rate of the account, in pushes a second, for all workers")
    parser.add_argument("--no-profile", action="store_true", help="leave the parts out, and what sampling costs")
    arguments = parser.parse_args(argv)
    with TemporaryDirectory() as directory, RealServers() as servers:
        logs = Path(directory)
        with (logs / "worker.log").open("w", buffering=1) as log, redirect_stderr(log):
            configure_logging("info", "json")
            collect_rarely()
            told = uvloop.run(_measure(arguments, servers, logs))
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
