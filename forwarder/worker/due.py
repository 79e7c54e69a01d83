"""Due rows of the store: claimed into the account queues, and ended when their deadline has passed.

Neither a paused account, nor a PMS that is down, nor a long queue delays an outcome. A cancellation brings forward the deadline
of a submission that was surely not sent, so that it ends here as well.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass

from forwarder.process.containment import FAULTS, Pauses, Where, contained
from forwarder.reservation.outcome import Status
from forwarder.store.submissions.port import StoreUnavailable, Work
from forwarder.tenancy.port import Account, TenancyUnavailable
from forwarder.topics.port import LogUnavailable
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.lease import Lease, LeaseWatch
from forwarder.worker.outcome.policy import after_fault, decide
from forwarder.worker.outcome.recorder import OutcomeRecorder
from forwarder.worker.parts import WorkerParts
from forwarder.worker.push.run import PushContext, too_late

_MAX_CLAIMED = 500
_MAX_EXPIRED = 250
_OUTAGES = (StoreUnavailable, TenancyUnavailable, LogUnavailable)


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
        self._watch, self._pauses = LeaseWatch(self.parts.clock), Pauses[str](monotonic)
        self._looked_for_strays = monotonic()

    @property
    def partitions(self) -> frozenset[int]:
        return self.dispatcher.partitions or frozenset()

    async def all_accounts(self) -> None:
        """Free what dead workers held, fill every account's queue with due rows, then wait. Raises `StoreUnavailable`."""
        recorder, clock, lease = self.parts.recorder, self.parts.clock, self.lease
        if lease.held():
            await lease.give_back_unpushed()
            now = clock.monotonic()
            if now - self._looked_for_strays >= lease.interval_seconds:
                await lease.abandon_strays(self.in_memory)
                self._looked_for_strays = now
            await recorder.take_over(self._watch.stopped(await recorder.heartbeats()), now=clock.now())
            due = await recorder.accounts_due(self.partitions, now=clock.now()) if self.partitions else ()
            await self._fill({*due, *self.dispatcher.accounts()})
        await clock.sleep(self.parts.settings.sweep_seconds)

    async def queues_running_low(self) -> None:
        """Wait until a queue runs low while the store has more for it, and fill it. Raises `StoreUnavailable`."""
        await self.dispatcher.refill_wanted.wait()
        self.dispatcher.refill_wanted.clear()
        await self._fill(self.dispatcher.running_low())

    async def _fill(self, account_ids: Iterable[str]) -> None:
        """Fill the queues of these accounts. One that raises is left alone for longer each time; the others are filled."""
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
            limit = reserve(account, _MAX_CLAIMED)
            if not limit:
                return
            now, partitions, target = self.parts.clock.now(), self.partitions, dispatcher.target(account)
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
    CANCELLED if cancelled; and cancellations that were not carried out by theirs. `ending`: the rows that it holds right now."""

    parts: WorkerParts
    dispatcher: Dispatcher
    lease: Lease
    outcomes: OutcomeRecorder
    sure: Callable[[], Awaitable[bool]]
    ending: Collection[Work] = ()

    async def end_expired(self, partitions: Collection[int]) -> None:
        """End what has expired in these partitions, a batch at a time; wait when that was all. Raises `StoreUnavailable`. Ends
        nothing while the store is in doubt: it may lack the outcome."""
        if not await self.sure():
            await self.parts.clock.sleep(self.parts.settings.sweep_seconds)
            return
        now, recorder = self.parts.clock.now(), self.parts.recorder
        waiting = self.dispatcher.withdraw(lambda work: work.status is not Status.IN_DOUBT and work.deadline_at <= now)
        if waiting:
            await self.lease.give_back(waiting)
        expired = await self.lease.claim(
            lambda worker_id: recorder.claim_expired(worker_id, partitions, now=now, limit=_MAX_EXPIRED)
        )
        self.ending = expired
        try:
            await asyncio.gather(*(self._end(work) for work in expired))
        finally:
            self.ending = ()
        if len(expired) < _MAX_EXPIRED:
            await self.parts.clock.sleep(self.parts.settings.sweep_seconds)

    async def _end(self, work: Work) -> None:
        """Ends one row. Contains faults of this row; a row that cannot be ended stays due, and is retried."""
        submission, request_id = work.submission, work.submission.request_id
        try:
            try:
                account = await self.parts.directory.account(submission.account_id)
            except TenancyUnavailable:
                account = None
            # One of unknown kind, for the metrics, so that an outage does not delay the outcome.
            account = account or Account(submission.account_id, submission.workspace_id, "unknown", "", "")
            now, push = self.parts.clock.now(), PushContext(account, work, outcome=too_late())
            try:
                decision = decide(push, now=now, jitter=0.0)
            except FAULTS as error:  # it is ended all the same
                fault, seconds = (
                    contained(Where.DEADLINES, error, request_id=request_id),
                    self.parts.settings.push_seconds,
                )
                decision = after_fault(push, fault, now=now, push_seconds=seconds, last=True)
            await self.outcomes.record(PushContext(account, work, decision=decision))
        except FAULTS as error:  # as said
            contained(Where.DEADLINES, error, request_id=request_id)
