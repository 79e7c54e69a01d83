"""One case: accounts of its own, load, faults that are counted, and the verdict when all is quiet again.

A case says when to hit, what to do and what to expect:

    async def test_the_worker_killed(case: Case) -> None:
        async with case.load() as load:
            for _ in range(case.times(short=2, long=20)):
                await case.made_more(case.some(20, 200))
                await case.kill("worker")
        await case.verdict()
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from tests.fault.campaign.form import Form
from tests.fault.campaign.judge import ALL_CONFIRMED, Evidence, Expected, judge
from tests.fault.campaign.load import Load, Then
from tests.fault.campaign.reading import Poller, whole
from tests.fault.campaign.report import Report, Row
from tests.fault.campaign.service import RATES as RATES_OF_PMSS
from tests.fault.campaign.service import Service, put_accounts
from tests.support.deployment.deployment import PATIENCE_SECONDS, Typed

COUNTS = {"short": 120, "long": 2_000}
"""Submissions of a case, at the least."""
FIRST_MADE = {"short": 20, "long": 40}
"""Bookings after which a case may hit."""
RATES = {"short": 150.0, "long": 60.0}
"""Submissions a second. Many faults take minutes: what flows meanwhile is to be read whole again by the judge. Short ones find two
or three pushes under way at any time."""
RATES_AFTERWARDS = {"short": 20.0, "long": 60.0}
"""Once there are enough, for as long as the fault takes: something is under way all the same."""
KINDS = ("generic", "generic", "booking-sync", "website-builder")
"""Of the case's accounts: PMSs that take a key, and one that can only be searched."""

_PATIENCE = {"short": PATIENCE_SECONDS, "long": 5 * PATIENCE_SECONDS}
"""Seconds without a sign of life. After many faults a row may be minutes from its next try."""

_LOOK_SECONDS = 0.05
_SHOWN_AT_MOST = 5
_JUDGE_SECONDS = 0.5
"""Between two looks at everything: each reads every page and every topic."""
_case_numbers = count(1)


class Case:
    """What a test of the campaign works with. `random` is drawn from the seed and the case's name alone."""

    def __init__(self, name: str, service: Service, form: Form, report: Report) -> None:
        self._name = name
        self._form = form
        self._report = report
        self._faults: Counter[str] = Counter()
        self._load: Load | None = None
        self._poller: Poller | None = None
        self.service = service
        self.deployment = service.deployment
        self.random = form.random_for(name)
        self.rates = RATES_OF_PMSS
        number = next(_case_numbers)
        self.accounts = {f"case{number}-{place}-{kind}": kind for place, kind in enumerate(KINDS, 1)}

    def note(self, text: str) -> None:
        """Something that was measured, to be shown with the table."""
        self._report.notes.append(f"{self._name}: {text}.")

    def times(self, *, short: int, long: int) -> int:
        """How often to hit, by the campaign's length."""
        return self._form.times(short=short, long=long)

    def draw(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return self.random.randint(low, high)

    def some(self, low: int, high: int) -> int:
        """How many to wait for until the next hit: from `low` to `high`, for a change a third as many."""
        return self.draw(low, high) // self.times(short=3, long=1)

    @asynccontextmanager
    async def load(
        self,
        *,
        count: int | None = None,
        rate: float | None = None,
        then: Then | None = None,
        role: str = "ingress",
        bulk_writers: int = 0,
        held_back: Callable[[], bool] = lambda: False,
    ) -> AsyncIterator[Load]:
        """Reservations flow to `role` while the block runs, and go on until there were `count`, or as many as the campaign's length
        asks for; someone polls the first account's pages meanwhile. The block is entered when the first few were made."""
        await put_accounts(self.deployment, self.accounts, self.rates)
        length = self._form.length
        rate, afterwards = (RATES[length], RATES_AFTERWARDS[length]) if rate is None else (rate, rate)
        self._load = load = Load(
            self.deployment,
            self.accounts,
            self.random,
            count=COUNTS[length] if count is None else count,
            rate=rate,
            rate_afterwards=afterwards,
            then=then,
            role=role,
            bulk_writers=bulk_writers,
            held_back=held_back,
        )
        self._poller = Poller(self.deployment, next(iter(self.accounts)))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run())
            polling = tasks.create_task(self._poller.poll())
            await self.made_more(FIRST_MADE[length])
            yield load
            load.finish()
            await load.over.wait()
            polling.cancel()

    async def hit(self, fault: str, act: Callable[[], object]) -> None:
        """Do what blocks, such as a kill, in a thread; it counts as one fault."""
        self.injected(fault)
        await asyncio.to_thread(act)

    async def wait(self, act: Callable[[], object]) -> None:
        """Do what blocks, such as a start, in a thread; it is no fault."""
        await asyncio.to_thread(act)

    def injected(self, fault: str) -> None:
        """Count a fault that was injected otherwise."""
        self._faults[fault] += 1

    async def kill(self, role: str) -> None:
        """kill -9 of a process of ours, which is started again at once."""
        process = self.deployment.processes[role]
        await self.hit(f"kill -9 of {role}", process.kill)
        await self.deployment.start()

    async def order_faults(self, account: str, **order: Any) -> None:
        """From now on the account's PMS fails so, by the simulator's terms."""
        self.injected(f"PMS: {order['mode']}")
        answer = await self.deployment.client.put(self._faults_of(account), json=order)
        answer.raise_for_status()

    async def lift_faults(self, account: str) -> None:
        """The account's PMS is well again."""
        (await self.deployment.client.delete(self._faults_of(account))).raise_for_status()

    def _faults_of(self, account: str) -> str:
        return f"{self.deployment.url('simulate')}/{account}/faults"

    @property
    def not_made(self) -> int:
        """How many submissions were accepted, less the bookings that were made."""
        return (0 if self._load is None else self._load.accepted) - self.service.bookings.made(self.accounts)

    async def made_more(self, count: int) -> None:
        """Return when the case's PMSs made so many more bookings than when this was called."""
        bookings = self.service.bookings
        wanted = bookings.made(self.accounts) + count
        async with asyncio.timeout(_PATIENCE[self._form.length]):
            while bookings.made(self.accounts) < wanted:
                await asyncio.sleep(_LOOK_SECONDS)

    async def verdict(self, expected: Expected = ALL_CONFIRMED) -> Evidence:
        """Wait until all is quiet, or nothing came for long; judge, report. Fails with everything that was found."""
        clock = asyncio.get_running_loop().time
        began = moved = clock()
        evidence = await self._evidence()
        known = evidence.known
        while not evidence.is_quiet(expected) and clock() < moved + _PATIENCE[self._form.length]:
            await asyncio.sleep(_JUDGE_SECONDS)
            evidence = await self._evidence()
            if evidence.known != known:
                known, moved = evidence.known, clock()
        findings = judge(evidence, expected)
        self._report.rows.append(Row.of(self._name, self._faults, evidence, clock() - began, held=not findings))
        if not self._faults:
            findings.append("no fault was injected")
        if findings:
            odd = [each for each, status in evidence.statuses.items() if status not in expected.statuses]
            for request_id in [*odd, *evidence.made_twice][:_SHOWN_AT_MOST]:
                findings.append((await Typed(self.deployment, "submissions", "show", request_id).done()).out)
            pytest.fail("\n".join([f"{self._name} ({self._form}):", *findings]), pytrace=False)
        return evidence

    async def _evidence(self) -> Evidence:
        assert self._load is not None
        assert self._poller is not None
        service, load = self.service, self._load
        await service.ledger.read_on()
        pages = {account: await whole(self.deployment, account) for account in self.accounts}
        await self._poller.catch_up()
        logged = {request_id for account in self.accounts for request_id in service.ledger.submitted[account]}
        made: Counter[str] = Counter()
        for account in self.accounts:
            made.update(service.bookings.of(account))
        return Evidence(
            submissions=load.submissions,
            answers=load.answers,
            unknown=load.unknown,
            logged=logged,
            pages=pages,
            polled={next(iter(self.accounts)): self._poller.seen},
            made=made,
            events={request_id: service.ledger.events.get(request_id, ()) for request_id in logged},
        )
