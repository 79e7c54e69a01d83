"""The worker as a whole: its loops, how they start, and how they stop cleanly.

Stopping (SIGTERM): take in nothing more, start no more pushes, give unstarted rows back, let what is under way finish within the
grace period, record and announce it, and give up the lease. What is killed instead is taken over when its lease runs out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog

from forwarder.observability import metrics
from forwarder.operations.dead_letter_messages import DeadLetterWriter
from forwarder.pms.port import PmsDirectory
from forwarder.process.batching import Batcher
from forwarder.process.clock import Clock
from forwarder.process.loops import forever, keep_trying
from forwarder.process.waiting import break_off
from forwarder.store.submissions.port import Recorder, StoreUnavailable
from forwarder.tenancy.port import Directory, TenancyUnavailable, Unsealer
from forwarder.topics.port import Consumer, Log, LogUnavailable, Publisher, Topics
from forwarder.worker.dispatch.batching import CreateBatching
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.dispatch.throttle import Throttles
from forwarder.worker.intake.consumer import Intake
from forwarder.worker.intake.sweep import Sweep
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.deadlines import DeadlineKeeper
from forwarder.worker.outcome.outbox_publisher import OutboxPublisher
from forwarder.worker.outcome.recorder import OutcomeRecorder
from forwarder.worker.push.delivery import PushPipeline
from forwarder.worker.push.pusher import Pusher
from forwarder.worker.settings import WorkerSettings

_log = structlog.get_logger(__name__)

_OUTAGES = (StoreUnavailable, TenancyUnavailable, LogUnavailable)
_LAG_SECONDS = 5.0
_LAST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What the worker works with."""

    log: Log
    topics: Topics
    publisher: Publisher
    recorder: Recorder
    directory: Directory
    unsealer: Unsealer
    pms: PmsDirectory
    clock: Clock
    settings: WorkerSettings


class Worker:
    """One worker. `running` is its whole life."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        settings, clock, recorder = parts.settings, parts.clock, parts.recorder
        self._lease = Lease(recorder, clock, settings.lease_seconds)
        letters = DeadLetterWriter(parts.topics, settings.group)
        self._announcer = OutboxPublisher(recorder, parts.publisher, parts.topics, clock, settings)
        self._settlement = OutcomeRecorder(recorder, self._announcer, letters, self._lease, clock, settings)
        self._intents: Batcher[int, bool] = Batcher(self._mark_pushing, at_most=settings.record_batch)
        gates = Throttles(clock, parts.pms.limits)
        pusher = Pusher(
            parts.pms, parts.unsealer, clock, may_send=self._lease.covers, intend=self._intents.submit, pace=gates.of
        )
        delivery = PushPipeline(pusher, self._settlement, self._lease, clock, settle_seconds=settings.settle_seconds)
        batches = CreateBatching(pusher.max_per_create, delivery.deliver_together)
        self._lanes = Dispatcher(
            clock,
            delivery.deliver,
            held_at_most=settings.held_at_most,
            gates=gates,
            batches=batches,
            safeguards=pusher.safeguards,
        )
        self._sweep = Sweep(
            recorder,
            parts.directory,
            self._lanes,
            self._lease,
            clock,
            settings.sweep_seconds,
            self.holds,
        )
        self._expiry = DeadlineKeeper(
            recorder,
            parts.directory,
            self._lanes,
            self._lease,
            self._settlement,
            clock,
            interval_seconds=settings.sweep_seconds,
            settle_seconds=settings.settle_seconds,
        )
        self._intake = Intake(
            recorder,
            parts.directory,
            self._lanes,
            self._lease,
            parts.publisher,
            letters,
            clock,
            settings,
        )
        self._consuming = False

    def consuming(self) -> bool:
        """True while the requests topic is being read and the lease is held: ready to do its work."""
        return self._consuming and self._lease.held()

    @property
    def worker_id(self) -> str:
        """The id that it holds rows by now."""
        return self._lease.worker_id

    def holds(self) -> Collection[int]:
        """The ids of the rows that it has in memory."""
        return {*self._lanes.held_ids(), *self._expiry.ending}

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then stop cleanly. Raises for bugs only; outages are waited out."""
        await keep_trying(self._take_lease, name="lease", clock=self._parts.clock, outages=_OUTAGES)
        loops = [
            asyncio.create_task(forever(step, name=name, clock=self._parts.clock, outages=_OUTAGES), name=name)
            for name, step in self._loops().items()
        ]
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([stopping, *loops], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                task.result()  # A loop never ends but by a bug: let it be seen.
        finally:
            await break_off([stopping, *loops])
            await self._wind_down()

    def _loops(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {
            "lease": self._keep_lease,
            "intake": self._consume,
            "sweep": self._sweep.all_accounts,
            "refill": self._sweep.lanes_running_low,
            "expiry": self._end_expired,
            "reoffer": self._announcer.reoffer,
        }

    async def _end_expired(self) -> None:
        await self._expiry.end_expired(self._sweep.partitions)

    async def _take_lease(self) -> None:
        await self._lease.renew()

    async def _keep_lease(self) -> None:
        await self._parts.clock.sleep(self._lease.interval_seconds)
        if not await self._lease.keep():
            self._lanes.withdraw(lambda _: True)
            await self._lease.renew()

    async def _consume(self) -> None:
        try:
            await self._consume_until_it_fails()
        except LogUnavailable:
            await self._own(frozenset())  # and others may have joined meanwhile
            raise

    async def _consume_until_it_fails(self) -> None:
        parts = self._parts
        async with parts.log.consumer(
            parts.topics.requests, group=parts.settings.group, on_partitions=self._own
        ) as consumer:
            self._consuming = True
            measured = float("-inf")
            try:
                while True:
                    await self._intake.take_next(consumer)
                    if parts.clock.monotonic() - measured > _LAG_SECONDS:
                        await _measure_lag(consumer)
                        measured = parts.clock.monotonic()
            finally:
                self._consuming = False

    async def _own(self, partitions: frozenset[int]) -> None:
        """Rows that have not started go with their partition: all of them when a rebalance begins, for nobody knows by then whose
        they will be. What it may send once more is claimed when that is known."""
        before, self._lanes.partitions = self._lanes.partitions, partitions
        try:
            given_up = await self._lease.withdraw(
                lambda: self._lanes.withdraw(lambda work: work.partition not in partitions)
            )
        except StoreUnavailable as error:
            _log.warning("rows.not_released", error=str(error))
            given_up = None
        if partitions != before or given_up:  # in an outage it is told of none again and again
            _log.info("partitions.assigned", partitions=sorted(partitions), given_up=given_up)
        self._lanes.hungry.set()

    async def _mark_pushing(self, work_ids: Sequence[int]) -> Sequence[bool]:
        try:
            ours = await self._parts.recorder.mark_pushing(self._lease.worker_id, work_ids)
        except StoreUnavailable:
            return [False] * len(work_ids)
        return [work_id in ours for work_id in work_ids]

    async def _release(self, work_ids: Collection[int]) -> None:
        try:
            await self._lease.give_back(work_ids)
        except StoreUnavailable as error:
            # They wait for the next sweep; or, where there is none any more, for the lease to run out.
            _log.warning("rows.not_released", count=len(work_ids), error=str(error))

    async def _wind_down(self) -> None:
        keeping = asyncio.create_task(
            forever(self._keep_lease, name="lease", clock=self._parts.clock, outages=_OUTAGES)
        )
        unstarted, broken_off = await self._lanes.stop(self._parts.settings.grace_seconds)
        if unstarted:
            await self._release(unstarted)
        await _within(self._settlement.drain(), _LAST_SECONDS)
        await _within(self._announcer.drain(), _LAST_SECONDS)
        await break_off([keeping])
        if not broken_off:
            await self._give_up_lease()
        _log.info("worker.stopped", unstarted=len(unstarted), broken_off=broken_off)

    async def _give_up_lease(self) -> None:
        """Let the others have at once what may be left; not while a push that was broken off may still reach its PMS. That is over
        when the lease runs out."""
        try:
            await self._lease.give_up()
        except StoreUnavailable as error:
            _log.warning("lease.not_given_up", error=str(error))


async def _measure_lag(consumer: Consumer) -> None:
    for lag in await consumer.lag():
        metrics.LAG_MESSAGES.labels(str(lag.partition)).set(lag.messages)


async def _within(work: Awaitable[None], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        _log.warning("worker.not_drained", seconds=seconds)
