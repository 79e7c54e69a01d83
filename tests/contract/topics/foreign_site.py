"""Everything that reads a topic, at work on one log and one store, beside which anybody may write to the topics."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.http.parameters import Wait
from forwarder.ingress.responses import Receipt, receipt_response
from forwarder.notifier.posting import NotifierParts, NotifierSettings
from forwarder.notifier.service import Notifier
from forwarder.notifier.webhooks import Webhooks
from forwarder.observability.metrics import registry
from forwarder.process.clock import SystemClock
from forwarder.reservation.outcome import Status
from forwarder.reservation.submission import Submission
from forwarder.store.delivery_queue import Deliveries
from forwarder.store.engine import open_engine
from forwarder.store.lists.overview import Overview
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.recorder import Recorder
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.endpoints import Endpoints
from forwarder.topics.codec import MessageSigner
from forwarder.topics.outcomes import OutcomeEvent, OutcomeListener
from forwarder.topics.port import Log, Message, Publisher, Topics
from forwarder.worker.parts import WorkerParts
from forwarder.worker.service import Worker
from tests.support.log.signers import TRUSTING
from tests.support.memory.webhooks import MemorySender, public_targets
from tests.support.sealing import keyring_of
from tests.support.store.audited import audit_on
from tests.support.worker.cards import card_parts
from tests.support.worker.worker_bench import SECRET, SETTINGS, Accounts, Pms, fresh, message_of

URL = "https://hook.example/"
PATIENCE_SECONDS = 90.0
WORKSPACE = "demo"


class ForeignSite:
    """`published` counts what went to the requests topic."""

    def __init__(
        self,
        publisher: Publisher,
        topics: Topics,
        engine: AsyncEngine,
        outcomes: OutcomeListener,
        signer: MessageSigner,
    ) -> None:
        self.publisher = publisher
        self.topics = topics
        self.reader = Reader(engine)
        self.overview = Overview(engine)
        self.outcomes = outcomes
        self.sender = MemorySender()
        self.running: list[asyncio.Task[None]] = []
        self.published = 0
        self._signer = signer
        self._number = 1000
        self._read_before = _read()

    @property
    def read(self) -> int:
        """How many messages the worker has read, whatever it made of them."""
        return _read() - self._read_before

    async def write(self, *, requests: Sequence[Message], results: Sequence[Message]) -> None:
        """As anybody can."""
        await self.publisher.publish(self.topics.requests, requests)
        await self.publisher.publish(self.topics.results, results)
        self.published += len(requests)

    async def goes_on(self, *, requests: Sequence[Message] = (), results: Sequence[Message] = ()) -> None:
        """Write these; fail unless a reservation that comes after them is made, its caller is told, and its customer as well."""
        sent = self._submission()
        async with asyncio.timeout(PATIENCE_SECONDS), AsyncExitStack() as stack:
            expected = await stack.enter_async_context(self.outcomes.expecting(sent.request_id))
            assert expected is not None
            # Somebody waits for each of these as well, and is to be answered whatever it tells.
            foreign = {f"{sent.request_id}-{place}": message for place, message in enumerate(results)}
            waiting = [await stack.enter_async_context(self.outcomes.expecting(about)) for about in foreign]
            await self.write(requests=requests, results=[_about(*each) for each in foreign.items()])
            await self.write(requests=[self._signer.signed(message_of(sent))], results=())
            told = await expected.within(PATIENCE_SECONDS - 2, _for_ever)
            self._look()
            assert isinstance(told, OutcomeEvent)
            assert told.status is Status.CONFIRMED
            while f"{sent.request_id}.1" not in self.sender.to(URL):
                self._look()
                await asyncio.sleep(0.005)
            for one in waiting:
                assert one is not None
                if isinstance(settled := await one.within(0.0, _for_ever), OutcomeEvent):
                    receipt_response(Receipt(sent.request_id, "", settled), Wait(1.0), "", 1)
        stored = await self.reader.submission("acc", sent.request_id)
        assert stored is not None
        assert stored.status is Status.CONFIRMED

    def _submission(self) -> Submission:
        """A new one."""
        self._number += 1
        return fresh(self._number)

    def _look(self) -> None:
        for task in self.running:
            if task.done():
                task.result()


async def _for_ever() -> None:
    """For a caller who stays."""
    await asyncio.Event().wait()


def _about(request_id: str, message: Message) -> Message:
    """`message`, about that submission, if it is about one."""
    told = tuple((name, request_id.encode() if name == "ce_subject" else value) for name, value in message.headers)
    return replace(message, headers=told)


def _read() -> int:
    results = ("taken_in", "cancellation", "undecodable", "forged")
    counts = (registry().get_sample_value("forwarder_taken_in_total", {"result": result}) for result in results)
    return sum(int(count or 0) for count in counts)


@asynccontextmanager
async def foreign_site(
    log: Log, topics: Topics, database: str | Path, signer: MessageSigner = TRUSTING
) -> AsyncIterator[ForeignSite]:
    """A worker, a notifier and a waiter at work; stopped at the end, where they raise what ended them before. `signer`: what the
    worker tells signed messages by; by default all pass."""
    engine, clock, stop = open_engine(database), SystemClock(), asyncio.Event()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.dispose)
        async with log.admin() as admin:
            await admin.create(dict.fromkeys(topics.all(), 2))
        publisher = await stack.enter_async_context(log.publisher())
        outcomes = OutcomeListener(await stack.enter_async_context(log.tail(topics.results)), clock)
        site = ForeignSite(publisher, topics, engine, outcomes, signer)
        unsealer, recorder, pms = keyring_of(SECRET), Recorder(engine), Pms()
        worker = WorkerParts(
            log,
            topics,
            publisher,
            recorder,
            Accounts(),
            unsealer,
            pms,
            clock,
            replace(SETTINGS, group=topics.requests),
            signer,
            card_parts(engine),
        )
        endpoints = Endpoints(engine)
        settings = NotifierSettings(
            group=topics.results, sweep_seconds=0.05, intake_wait_seconds=0.05, idle_seconds=0.0
        )
        queue = Deliveries(engine)
        notifier = NotifierParts(log, topics, queue, endpoints, unsealer, site.sender, clock, settings)
        await TenancyAdmin(engine).add_workspace(WORKSPACE)
        hooks = Webhooks(
            endpoints,
            Deliveries(engine),
            keyring_of(SECRET),
            public_targets(),
            clock,
            audit_on(engine, clock),
        )
        await hooks.add(WORKSPACE, URL)
        site.running = [
            asyncio.create_task(Worker(worker).run(stop)),
            asyncio.create_task(Notifier(notifier).run(stop)),
        ]
        waiting = asyncio.create_task(outcomes.run())
        await asyncio.sleep(0)  # it has begun: before that nobody can wait
        try:
            yield site
        finally:
            stop.set()
            waiting.cancel()
            await asyncio.wait([*site.running, waiting])
        for task in site.running:
            task.result()
