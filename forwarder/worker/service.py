"""The worker as a whole: its loops, how they start, and how they stop cleanly.

Stopping (SIGTERM): ingest nothing more, start no more pushes, give unstarted rows back, let running pushes finish within the grace
period, record and publish their outcomes, and end the lease. Other workers take over the rows of a killed worker when its lease
expires.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import structlog

from forwarder.process.containment import FAULTS, Where
from forwarder.process.loops import Batcher, Outage, cancel_all, first_of, forever, keep_trying
from forwarder.store.submissions.port import StoreUnavailable, ThrottleState, Work
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.topics.port import Consumer, LogGap, LogUnavailable
from forwarder.worker.cards import CardKeeper, CardVault
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.dispatch.rate_budget import Loans
from forwarder.worker.dispatch.throttle import Throttles
from forwarder.worker.due import DeadlineKeeper, Sweep
from forwarder.worker.intake import Intake, IntakeWatch
from forwarder.worker.lease import Lease, StoreWatch
from forwarder.worker.outcome.recorder import DeadLetterWriter, OutboxPublisher, OutcomeRecorder
from forwarder.worker.parts import WorkerParts
from forwarder.worker.push.pipeline import PushPipeline
from forwarder.worker.push.pusher import Pusher

_log = structlog.get_logger(__name__)

_OUTAGES = (StoreUnavailable, TenancyUnavailable, LogUnavailable)
_BREAKERS_SECONDS = 5.0
_LAST_SECONDS = 5.0
_RESTORED_SECONDS = 5.0
_TOPIC_SECONDS = 30.0


class Worker:
    """One worker. `run` runs it until it stops.

    `in_step`: whether the store is known to have everything that it acknowledged, and all results on the topics; until then the
    worker neither ingests nor pushes. `behind`: whether the store is known to lack something that the topics record. `topic_whole`:
    whether the requests topic still had the offsets of all ingested messages at the last check."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._begin()
        self.in_step = parts.lacking is None
        self.behind, self.topic_whole = False, True

    def _begin(self) -> None:
        """Starts over with a new lease, and nothing in memory."""
        parts = self._parts
        settings, clock, recorder = parts.settings, parts.clock, parts.recorder
        # Other workers may have taken over all queued rows of a lost lease.
        self._lease = Lease(
            recorder, clock, settings.lease_seconds, on_lost=lambda: self._dispatcher.withdraw(lambda _: True)
        )
        self._store_watch = StoreWatch(recorder, self._lease, clock, held=self.holds, lacking=parts.lacking)
        letters = DeadLetterWriter(parts.topics, settings.group)
        self._outbox = OutboxPublisher(recorder, parts.publisher, parts.signer, parts.topics, clock, settings)
        cards = CardVault(parts.cards.keys, parts.cards.sealing_keys, parts.cards.wrapper)
        self._cards = CardKeeper(parts.cards, cards, parts.log, parts.topics.requests, settings.group, clock)
        self._loans = None if parts.lender is None else Loans(parts.lender, clock)
        throttles = self._throttles = Throttles(clock, parts.pms.limits, self._loans)
        self._outcomes = OutcomeRecorder(
            recorder, self._outbox, letters, self._lease, clock, settings, cards, failing=throttles.failing
        )
        most = settings.record_batch
        self._intents: Batcher[int, bool] = Batcher(self._mark_pushing, where=Where.INTENTS, max_items=most)
        pusher = Pusher(
            *(parts.pms, parts.unsealer, clock, cards, settings, parts.credential_key),
            may_send=self._may_send,
            intend=self._intents.submit,
            sure=self._store_watch.sure,
            is_cancelled=lambda work: self._dispatcher.is_cancelled(work),  # noqa: PLW0108 - it is made below
            pace=throttles.of,
        )
        pipeline = PushPipeline(pusher, self._outcomes, self._lease, clock, recorder, settings.push_seconds)
        self._dispatcher = Dispatcher(
            clock,
            pipeline.run,
            max_held=settings.max_held,
            throttles=throttles,
            max_per_create=pusher.max_per_create,
            target=pusher.target,
        )
        if self._loans is not None:
            self._loans.on_lent = self._dispatcher.proceed
        self._sweep = Sweep(parts, self._dispatcher, self._lease, self.holds)
        self._deadlines = DeadlineKeeper(parts, self._dispatcher, self._lease, self._outcomes, self._store_watch.sure)
        self._watch = IntakeWatch(clock)
        self._intake = Intake(parts, self._dispatcher, self._lease, letters, self._watch, cards, self._store_watch.sure)
        self._outages = {
            Where.INTAKE: Outage(Where.INTAKE, clock)
        }  # of loops whose step does not return while it works
        self._consumer: Consumer | None = None

    def consuming(self) -> bool:
        """True while the requests topic is being read and the lease is held: ready to do its work."""
        return self._consumer is not None and not self._watch.stalled and self._lease.held()

    @property
    def unreadable(self) -> Mapping[int, int]:
        """See `Consumer.unreadable`."""
        return {} if self._consumer is None else self._consumer.unreadable

    @property
    def worker_id(self) -> str:
        return self._lease.worker_id

    def throttles(self) -> Sequence[ThrottleState]:
        return self._throttles.states(max_accounts=self._parts.settings.max_named_accounts)

    def holds(self) -> Mapping[int, Work]:
        """The rows that it has in memory, by id, each as it was claimed."""
        return {**self._dispatcher.holds(), **{work.id: work for work in self._deadlines.ending}}

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set, then stops cleanly. Loops go on after outages and faults. Where the store turns out to lack
        what it acknowledged, all work stops, under no lease, until it has that again."""
        while await self._store_in_step(stop):
            await self._work(stop)
            if self.in_step:
                return
            self._begin()

    async def _work(self, stop: asyncio.Event) -> None:
        await keep_trying(self._take_lease, name=Where.LEASE, clock=self._parts.clock, outages=_OUTAGES, contain=True)
        if not self.in_step:
            await self._end_lease()
            return
        clock, loops = self._parts.clock, list[asyncio.Task[None]]()
        for name, step in self._loops().items():
            loop = forever(step, name=name, clock=clock, outages=_OUTAGES, outage=self._outages.get(name))
            loops.append(asyncio.create_task(loop, name=name))
        try:
            await first_of(stop.wait(), self._store_watch.behind.wait())
            self.behind = self._store_watch.behind.is_set()
            self.in_step = not self.behind
        finally:
            await cancel_all(loops)
            await self._wind_down()

    async def _store_in_step(self, stop: asyncio.Event) -> bool:
        """Waits until the store has all results on the topics, which a restored store lacks; False if `stop` came first."""
        outage, told = Outage(Where.RECOVERY_CHECK, self._parts.clock), dict[str, int]()
        recorder = self._parts.recorder
        try:
            while not stop.is_set():
                seconds, database = _RESTORED_SECONDS, recorder.database
                try:
                    lacking = dict(await recorder.lacking(now=self._parts.clock.now()))
                    if self._parts.lacking is not None:
                        lacking |= await self._parts.lacking()
                    outage.over()
                    self.behind = bool(lacking)
                    if not lacking:
                        self.in_step = True
                        recorder.checked = database
                        return True
                    if lacking != told:
                        _log.error("store.behind_the_log", **lacking)
                        told = lacking
                except _OUTAGES as error:
                    seconds = outage.failed(error)
                except FAULTS as error:  # contained: nothing is pushed until the check goes through
                    seconds = outage.faulted(error)
                await first_of(self._parts.clock.sleep(seconds), stop.wait())
            return False
        finally:
            outage.forget_faults()

    async def _look_at_topic(self) -> None:
        """Checks the requests topic for losses. The worker continues after a loss, because that does no harm; but the submissions
        accepted last may be lost."""
        if self._parts.topic_losses is not None:
            await self._parts.topic_losses.move_unowned()
            lost = await self._parts.topic_losses.in_words()
            if lost and self.topic_whole:
                _log.error("topic.behind_the_store", **lost)
            self.topic_whole = not lost
        await self._parts.clock.sleep(_TOPIC_SECONDS)

    async def _note_gap(self, gap: LogGap) -> None:
        self.topic_whole = False
        if self._parts.topic_losses is not None:
            await self._parts.topic_losses.note(gap)

    def _may_send(self, work: Work) -> bool:
        """Right before the first byte: the machine may have slept, or the database failed over, since the push began."""
        return self._lease.covers(work) and not self._store_watch.in_doubt()

    def _loops(self) -> Mapping[Where, Callable[[], Awaitable[None]]]:
        return {
            Where.LEASE: self._keep_lease,
            Where.STORE: self._store_watch.look,
            Where.TOPIC: self._look_at_topic,
            Where.INTAKE: self._consume,
            Where.INTAKE_WATCH: self._watch.look,
            Where.SWEEP: self._sweep.all_accounts,
            Where.REFILL: self._sweep.queues_running_low,
            Where.DEADLINES: lambda: self._deadlines.end_expired(self._sweep.partitions),
            Where.CARDS: self._cards.keep,
            Where.REPUBLISH: self._outbox.republish,
            Where.BREAKERS: self._show_breakers,
            **({} if self._loans is None else {Where.RATE_LOANS: self._loans.exchange}),
        }

    async def _show_breakers(self) -> None:
        self._throttles.show(max_accounts=self._parts.settings.max_named_accounts)
        await self._parts.clock.sleep(_BREAKERS_SECONDS)

    async def _take_lease(self) -> None:
        """Takes the lease, then checks once more: a recovery that began meanwhile has seen the lease, or this check sees it."""
        await self._lease.renew()
        self.in_step = not await self._parts.recorder.lacking(now=self._parts.clock.now())

    async def _keep_lease(self) -> None:
        await self._parts.clock.sleep(self._lease.interval_seconds)
        if not await self._lease.keep():
            await self._lease.renew()

    async def _consume(self) -> None:
        topic, group = self._parts.topics.requests, self._parts.settings.group
        self._watch.doing = "join"
        try:
            async with self._parts.log.consumer(
                topic, group=group, on_partitions=self._on_partitions, on_gap=self._note_gap
            ) as consumer:
                self._consumer = consumer
                try:
                    while True:
                        await self._intake.ingest_next(consumer)
                        self._watch.went_on()
                        self._outages[Where.INTAKE].over()
                finally:
                    self._consumer = None
        except FAULTS:
            await self._on_partitions(frozenset())  # others may have joined meanwhile
            raise

    async def _on_partitions(self, partitions: frozenset[int]) -> None:
        """Gives back unstarted rows of lost partitions: all of them when a rebalance begins, because the new assignment is not
        known yet. Rows of partitions that stay are claimed again afterwards."""
        before, self._dispatcher.partitions = self._dispatcher.partitions, partitions
        try:
            lost = partial(self._dispatcher.withdraw, lambda work: work.partition not in partitions)
            given_up = await self._lease.give_back_queued(lost)
        except StoreUnavailable as error:
            _log.warning("rows.not_released", error=str(error))
            given_up = None
        if partitions != before or given_up:  # in an outage it loses all partitions repeatedly: log that once
            _log.info("partitions.assigned", partitions=sorted(partitions), given_up=given_up)
        self._dispatcher.refill_wanted.set()

    async def _mark_pushing(self, work_ids: Sequence[int]) -> Sequence[bool]:
        try:
            ours = await self._parts.recorder.mark_pushing(self._lease.worker_id, work_ids)
        except StoreUnavailable:
            return [False] * len(work_ids)
        return [work_id in ours for work_id in work_ids]

    async def _wind_down(self) -> None:
        keep = forever(self._keep_lease, name=Where.LEASE, clock=self._parts.clock, outages=_OUTAGES)
        keeping = asyncio.create_task(keep)
        unstarted, broken_off = await self._dispatcher.stop(self._parts.settings.grace_seconds)
        if unstarted:
            try:
                await self._lease.give_back(unstarted)
            except StoreUnavailable as error:
                _log.warning("rows.not_released", count=len(unstarted), error=str(error))  # until the lease runs out
        for drain in (self._outcomes.drain, self._outbox.drain):
            try:
                async with asyncio.timeout(_LAST_SECONDS):
                    await drain()
            except TimeoutError:
                _log.warning("worker.not_drained", seconds=_LAST_SECONDS)
        await cancel_all([keeping])
        if not broken_off:
            await self._end_lease()
        _log.info("worker.stopped", unstarted=len(unstarted), broken_off=broken_off)

    async def _end_lease(self) -> None:
        """Let other workers take over at once what may be left. Not called where a push was broken off: it may still reach its PMS
        until the lease runs out."""
        try:
            await self._lease.end()
        except StoreUnavailable as error:
            _log.warning("lease.not_ended", error=str(error))
