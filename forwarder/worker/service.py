"""The worker as a whole: its loops, how they start, and how they stop cleanly.

Stopping (SIGTERM): ingest nothing more, start no more pushes, give unstarted rows back, let running pushes finish within the grace
period, record and publish their outcomes, and end the lease. Others take over a killed worker's rows when its lease expires.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from forwarder.process import loops
from forwarder.process.loops import FAULTS, Batcher, Outage, Where, cancel_all, contained, forever
from forwarder.reservation.outcome import Status
from forwarder.store.submissions.port import StoreUnavailable, ThrottleState, Work
from forwarder.tenancy.port import Account, TenancyUnavailable
from forwarder.topics.port import ConsumedMessage, Consumer, LogGap, LogUnavailable, Message
from forwarder.worker.cards import CardKeeper, CardVault
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.dispatch.rate_loans import Loans
from forwarder.worker.dispatch.throttle import Throttles
from forwarder.worker.intake import Commits, Intake
from forwarder.worker.lease import Lease, LeaseWatch, StoreWatch
from forwarder.worker.outcome.policy import after_fault, decide
from forwarder.worker.outcome.recorder import OutboxPublisher, OutcomeRecorder
from forwarder.worker.parts import WorkerParts
from forwarder.worker.push.pipeline import Pusher, PushPipeline
from forwarder.worker.push.run import PushContext, too_late

_log = structlog.get_logger(__name__)

_OUTAGES = (StoreUnavailable, TenancyUnavailable, LogUnavailable)
_LAST_SECONDS: Final = 5.0
_MAX_EXPIRED: Final = 250


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
        settings, clock = parts.settings, parts.clock
        # Other workers may have taken over all queued rows of a lost lease.
        self.lease = Lease(
            parts.recorder, clock, settings.lease_seconds, on_lost=lambda: self._dispatcher.withdraw(lambda _: True)
        )
        self._store_watch = StoreWatch(self.lease, held=self.holds, lacking=parts.lacking)
        self._outbox = OutboxPublisher(parts)
        cards = CardVault(parts.cards.keys, parts.cards.sealing_keys, parts.cards.wrapper)
        self._cards = CardKeeper(parts, cards)
        self._loans = None if parts.lender is None else Loans(parts.lender, clock)
        throttles = self._throttles = Throttles(clock, parts.pms.limits, self._loans)
        self._outcomes = OutcomeRecorder(parts, self._outbox, self.lease, cards, failing=throttles.failing)
        commits = self._commits = Commits(clock)
        intents: Batcher[int, bool] = Batcher(self._mark_pushing, where=Where.INTENTS, max_items=settings.record_batch)
        pusher = Pusher(
            parts,
            cards,
            # Right before the first byte: the machine may have slept, or the database failed over, since the push began.
            may_send=lambda work: self.lease.covers(work) and not self._store_watch.in_doubt(),
            committed=commits.committed,
            intend=intents.submit,
            sure=self._store_watch.sure,
            is_cancelled=lambda work: self._dispatcher.is_cancelled(work),  # noqa: PLW0108 - it is made below
            pace=throttles.of,
        )
        pipeline = PushPipeline(parts, pusher, self._outcomes, self.lease)
        ports = pusher.max_per_create, pusher.target
        self._dispatcher = Dispatcher(clock, pipeline.run, settings.max_held, throttles, *ports)
        if self._loans is not None:
            self._loans.on_lent = self._dispatcher.proceed
        self._sweep = Sweep(parts, self._dispatcher, self.lease, self.holds)
        self._deadlines = DeadlineKeeper(parts, self._dispatcher, self.lease, self._outcomes, self._store_watch.sure)
        self._intake = Intake(parts, self._dispatcher, self.lease, cards, commits, self._store_watch.sure)
        self._intake_outage = Outage(Where.INTAKE, clock)  # its step does not return while it works
        self._consumer: Consumer | None = None
        self._cut_back = False

    def consuming(self) -> bool:
        """True while the requests topic is being read and the lease is held: ready to do its work."""
        return self._consumer is not None and not self._intake.watch.stalled and self.lease.held()

    @property
    def unreadable(self) -> Mapping[int, int]:
        return {} if self._consumer is None else self._consumer.unreadable

    def throttles(self) -> Sequence[ThrottleState]:
        return self._throttles.states(max_accounts=self._parts.settings.max_named_accounts)

    def holds(self) -> Mapping[int, Work]:
        """The rows that it has in memory, by id, each as it was claimed."""
        return {**self._dispatcher.budget.works, **{work.id: work for work in self._deadlines.ending}}

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set, then stops cleanly. Loops go on after outages and faults. Where the store turns out to lack
        what it acknowledged, all work stops, under no lease, until it has that again."""
        while await self._store_in_step(stop):
            await self._work(stop)
            if self.in_step:
                return
            self._begin()

    async def _work(self, stop: asyncio.Event) -> None:
        clock, running = self._parts.clock, list[asyncio.Task[None]]()

        async def take_lease() -> None:
            await self.lease.renew()
            # Once more: a recovery that began meanwhile has seen the lease, or this check sees it.
            self.in_step = not await self._parts.recorder.lacking(now=clock.now())

        await loops.keep_trying(take_lease, name=Where.LEASE, clock=clock, outages=_OUTAGES, contain=True)
        if not self.in_step:
            await self._end_lease()
            return
        steps: dict[Where, Callable[[], Awaitable[None]]] = {
            Where.LEASE: self._keep_lease,
            Where.STORE: self._store_watch.look,
            Where.TOPIC: self._look_at_topic,
            Where.INTAKE: self._consume,
            Where.INTAKE_WATCH: self._intake.watch.look,
            Where.SWEEP: self._sweep.all_accounts,
            Where.REFILL: self._sweep.queues_running_low,
            Where.DEADLINES: lambda: self._deadlines.end_expired(self._sweep.partitions),
            Where.CARDS: self._cards.keep,
            Where.REPUBLISH: self._outbox.republish,
            Where.BREAKERS: self._show_breakers,
            **({} if self._loans is None else {Where.RATE_LOANS: self._loans.exchange}),
        }
        for name, step in steps.items():
            outage = self._intake_outage if name is Where.INTAKE else None
            loop = forever(step, name=name, clock=clock, outages=_OUTAGES, outage=outage)
            running.append(asyncio.create_task(loop, name=name))
        try:
            await loops.first_of(stop.wait(), self._store_watch.behind.wait())
            self.behind = self._store_watch.behind.is_set()
            self.in_step = not self.behind
        finally:
            await cancel_all(running)
            await self._wind_down()

    async def _store_in_step(self, stop: asyncio.Event) -> bool:
        """Waits until the store has all results on the topics, which a restored store lacks; False if `stop` came first."""
        outage, logged = Outage(Where.RECOVERY_CHECK, self._parts.clock), dict[str, int]()
        recorder = self._parts.recorder
        try:
            while not stop.is_set():
                seconds, database = 5.0, recorder.identity.seen
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
                    if lacking != logged:
                        _log.error("store.behind_the_log", **lacking)
                        logged = lacking
                except _OUTAGES as error:
                    seconds = outage.failed(error)
                except FAULTS as error:  # contained: nothing is pushed until the check goes through
                    seconds = outage.faulted(error)
                await loops.first_of(self._parts.clock.sleep(seconds), stop.wait())
            return False
        finally:
            outage.forget_faults()

    async def _look_at_topic(self) -> None:
        """Checks the requests topic for losses. The worker continues after one: the submissions accepted last may be lost."""
        if (losses := self._parts.topic_losses) is not None:
            await losses.move_unowned()
            lost = await losses.in_words()
            if lost and self.topic_whole:
                _log.error("topic.behind_the_store", **lost)
            self.topic_whole = not lost
            self._cut_back = bool(await self._own_cut_back())
        await self._parts.clock.sleep(30.0)

    async def _note_gap(self, gap: LogGap) -> None:
        self.topic_whole = False
        if self._parts.topic_losses is not None:
            await self._parts.topic_losses.note(gap)

    async def _show_breakers(self) -> None:
        self._throttles.show(max_accounts=self._parts.settings.max_named_accounts)
        await self._parts.clock.sleep(5.0)

    async def _keep_lease(self) -> None:
        await self._parts.clock.sleep(self.lease.interval_seconds)
        if not await self.lease.keep():
            await self.lease.renew()

    async def _consume(self) -> None:
        topic, group = self._parts.topics.requests, self._parts.settings.group
        self._intake.watch.doing = "join"
        opening = self._parts.log.consumer(topic, group=group, on_partitions=self._on_partitions, on_gap=self._note_gap)
        try:
            async with opening as consumer:
                self._consumer = consumer
                try:
                    while True:
                        await self._intake.ingest_next(consumer)
                        if self._cut_back:
                            await self._receive_again(consumer)
                        self._intake.watch.went_on()
                        self._intake_outage.over()
                finally:
                    self._consumer = None
                    await self._commits.leave()
        except FAULTS:
            await self._on_partitions(frozenset())  # others may have joined meanwhile
            raise

    async def _own_cut_back(self) -> Sequence[LogGap]:
        owned, losses = self._dispatcher.partitions, self._parts.topic_losses
        return await losses.cut_back(owned) if losses is not None and owned else ()

    async def _receive_again(self, consumer: Consumer) -> None:
        """What was written where the log was cut back was never received: begins there again. What was ingested is recognised."""
        self._cut_back = False
        if not (gaps := await self._own_cut_back()):
            return  # an operator has accepted it meanwhile
        await self._commits.leave()
        begin = [ConsumedMessage(gap.topic, gap.partition, gap.resumed_at - 1, 0, Message(b"", b"")) for gap in gaps]
        await consumer.commit(begin)
        for gap in gaps:
            await self._note_gap(gap)
        raise LogUnavailable(
            "The requests topic was cut back and has grown again: its last messages are received again."
        )

    async def _on_partitions(self, partitions: frozenset[int]) -> None:
        """Gives back unstarted rows of lost partitions: of all when a rebalance begins, as the new assignment is unknown."""
        before, self._dispatcher.partitions = self._dispatcher.partitions, partitions
        try:
            lost = partial(self._dispatcher.withdraw, lambda work: work.partition not in partitions)
            given_up = await self.lease.give_back_queued(lost)
        except StoreUnavailable as error:
            _log.warning("rows.not_released", error=str(error))
            given_up = None
        if partitions != before or given_up:  # in an outage it loses all partitions repeatedly: log that once
            _log.info("partitions.assigned", partitions=sorted(partitions), given_up=given_up)
        self._dispatcher.refill_wanted.set()
        if not partitions:
            await self._commits.leave()

    async def _mark_pushing(self, work_ids: Sequence[int]) -> Sequence[bool]:
        ours: Collection[int] = ()
        with suppress(StoreUnavailable):
            ours = await self._parts.recorder.mark_pushing(self.lease.worker_id, work_ids)
        return [work_id in ours for work_id in work_ids]

    async def _wind_down(self) -> None:
        keep = forever(self._keep_lease, name=Where.LEASE, clock=self._parts.clock, outages=_OUTAGES)
        keeping = asyncio.create_task(keep)
        unstarted, broken_off = await self._dispatcher.stop(self._parts.settings.grace_seconds)
        if unstarted:
            try:
                await self.lease.give_back(unstarted)
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
        """Lets others take over what is left. Not where a push was broken off: it may reach its PMS until the lease ends."""
        try:
            await self.lease.end()
        except StoreUnavailable as error:
            _log.warning("lease.not_ended", error=str(error))


@dataclass(eq=False, repr=False)
class Sweep:
    """Claims due rows into account queues, and frees the rows of dead workers. Looks into the store every `sweep_seconds`, and
    at once for a queue that runs low. `in_memory`: the rows this worker has."""

    parts: WorkerParts
    dispatcher: Dispatcher
    lease: Lease
    in_memory: Callable[[], Collection[int]]

    def __post_init__(self) -> None:
        monotonic = self.parts.clock.monotonic
        self._watch, self._pauses = LeaseWatch(self.parts.clock), loops.Pauses[str](monotonic)
        self._looked_for_strays = monotonic()

    @property
    def partitions(self) -> frozenset[int]:
        return self.dispatcher.partitions or frozenset()

    async def all_accounts(self) -> None:
        """Frees what dead workers held, fills every account's queue with due rows, then waits. Raises `StoreUnavailable`."""
        recorder, clock, lease = self.parts.recorder, self.parts.clock, self.lease
        if lease.held():
            await lease.give_back_unpushed()
            now = clock.monotonic()
            if now - self._looked_for_strays >= lease.interval_seconds:
                await lease.abandon_strays(self.in_memory)
                self._looked_for_strays = now
            await recorder.take_over(self._watch.stopped(await recorder.heartbeats()), now=clock.now())
            due = await recorder.accounts_due(self.partitions, now=clock.now()) if self.partitions else ()
            await self._fill({*due, *self.dispatcher.queues})
        await clock.sleep(self.parts.settings.sweep_seconds)

    async def queues_running_low(self) -> None:
        """Waits until a queue runs low while the store has more for it, and fills it. Raises `StoreUnavailable`."""
        await self.dispatcher.refill_wanted.wait()
        self.dispatcher.refill_wanted.clear()
        await self._fill(self.dispatcher.running_low())

    async def _fill(self, account_ids: Iterable[str]) -> None:
        """Fills the queues of these accounts. One that raises is left alone for longer each time; the others are filled."""
        for account_id in account_ids:
            if self._pauses.resting(account_id):
                continue
            try:
                if (account := await self.parts.directory.account(account_id)) is not None:
                    await self._fill_one(account)
            except _OUTAGES:
                raise
            except FAULTS as error:  # as said
                contained(Where.ACCOUNT, error, account_id=account_id)
                self._pauses.faulted(account_id)
            else:
                self._pauses.works(account_id)

    async def _fill_one(self, account: Account) -> None:
        dispatcher, recorder = self.dispatcher, self.parts.recorder
        if given_up := dispatcher.configure(account):
            await self.lease.give_back(given_up)
        if not self.partitions or not self.lease.held():
            return
        with dispatcher.reserving() as reserve:
            if not (limit := reserve(account, 500)):
                return
            now, target, partitions = self.parts.clock.now(), dispatcher.target(account), self.partitions
            works = await self.lease.claim(
                lambda worker_id: recorder.claim(worker_id, account.id, partitions, now=now, limit=limit, target=target)
            )
            if not works:
                dispatcher.close_if_idle(account.id)
                return
            for work_id in dispatcher.offer(account, works):
                self.lease.note_unpushed(work_id)
            dispatcher.note_more(account, more=len(works) == limit)


@dataclass(eq=False, repr=False)
class DeadlineKeeper:
    """Ends submissions that were not made by their deadline: FAILED, or IN_DOUBT if an earlier push may have made them, or
    CANCELLED if cancelled; and cancellations that were not carried out by theirs. A paused account, a PMS that is down or a long
    queue delays none. A cancellation brings forward the deadline of a submission that was surely not sent, which so ends here.
    `ending`: the rows that it holds right now."""

    parts: WorkerParts
    dispatcher: Dispatcher
    lease: Lease
    outcomes: OutcomeRecorder
    sure: Callable[[], Awaitable[bool]]
    ending: Collection[Work] = ()

    async def end_expired(self, partitions: Collection[int]) -> None:
        """Ends what has expired in these partitions, a batch at a time; waits when that was all. Raises `StoreUnavailable`. Ends
        nothing while the store is in doubt: it may lack the outcome."""
        more = False
        if await self.sure():
            now, recorder = self.parts.clock.now(), self.parts.recorder
            expired = lambda work: work.status is not Status.IN_DOUBT and work.deadline_at <= now  # noqa: E731
            if waiting := self.dispatcher.withdraw(expired):
                await self.lease.give_back(waiting)
            claim = partial(recorder.claim_expired, partitions=partitions, now=now, limit=_MAX_EXPIRED)
            self.ending = await self.lease.claim(claim)
            try:
                more = len(self.ending) == _MAX_EXPIRED
                await asyncio.gather(*(self._end(work) for work in self.ending))
            finally:
                self.ending = ()
        if not more:
            await self.parts.clock.sleep(self.parts.settings.sweep_seconds)

    async def _end(self, work: Work) -> None:
        """Ends one row. Contains faults of this row; a row that cannot be ended stays due, and is retried."""
        submission, request_id = work.submission, work.submission.request_id
        try:
            # One of unknown kind, for the metrics, so that an outage does not delay the outcome.
            account = Account(submission.account_id, submission.workspace_id, "unknown", "", "")
            with suppress(TenancyUnavailable):
                account = await self.parts.directory.account(submission.account_id) or account
            now, push = self.parts.clock.now(), PushContext(account, work, outcome=too_late())
            try:
                decision = decide(push, now=now, jitter=0.0)
            except FAULTS as error:  # it is ended all the same
                fault = contained(Where.DEADLINES, error, request_id=request_id)
                seconds = self.parts.settings.push_seconds
                decision = after_fault(push, fault, now=now, push_seconds=seconds, last=True)
            await self.outcomes.record(PushContext(account, work, decision=decision))
        except FAULTS as error:  # as said
            contained(Where.DEADLINES, error, request_id=request_id)
