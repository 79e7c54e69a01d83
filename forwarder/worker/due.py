"""Due rows of the store: claimed into the account queues, and ended when their deadline has passed.

Neither a paused account, nor a PMS that is down, nor a long queue delays an outcome. A cancellation brings forward the deadline
of a submission that was surely not sent, so that it ends here as well.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable

from forwarder.process.containment import FAULTS, Pauses, Where, contained
from forwarder.reservation.outcome import Status
from forwarder.store.submissions.port import Ended, Postponed, StoreUnavailable, Work
from forwarder.tenancy.port import Account, TenancyUnavailable
from forwarder.topics.port import LogUnavailable
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.lease import Lease, LeaseWatch
from forwarder.worker.outcome.policy import after_fault, decide
from forwarder.worker.outcome.recorder import OutcomeRecorder
from forwarder.worker.parts import WorkerParts
from forwarder.worker.push_context import PushContext, too_late

_MAX_CLAIMED = 500
_OUTAGES = (StoreUnavailable, TenancyUnavailable, LogUnavailable)

_CLAIM = 250


class Sweep:
    """Claims due rows into account queues, and frees the rows of dead workers. Looks into the store every `sweep_seconds`, and
    at once for a queue that runs low. `in_memory`: the rows this worker has."""

    def __init__(
        self, parts: WorkerParts, dispatcher: Dispatcher, lease: Lease, in_memory: Callable[[], Collection[int]]
    ) -> None:
        self._recorder = parts.recorder
        self._directory = parts.directory
        self._dispatcher = dispatcher
        self._lease = lease
        self._clock = parts.clock
        self._interval_seconds = parts.settings.sweep_seconds
        self._in_memory = in_memory
        self._watch = LeaseWatch(parts.clock)
        self._looked_for_strays = parts.clock.monotonic()
        self._pauses = Pauses[str](parts.clock.monotonic)

    @property
    def partitions(self) -> frozenset[int]:
        """Those whose rows are this worker's to push."""
        return self._dispatcher.partitions or frozenset()

    async def all_accounts(self) -> None:
        """Free what dead workers held, fill every account's queue with due rows, then wait. Raises `StoreUnavailable`."""
        if self._lease.held():
            await self._lease.give_back_unpushed()
            await self._abandon_strays()
            heartbeats = await self._recorder.heartbeats()
            await self._recorder.take_over(self._watch.stopped(heartbeats), now=self._clock.now())
            due = await self._recorder.accounts_due(self.partitions, now=self._clock.now()) if self.partitions else ()
            await self._fill({*due, *self._dispatcher.accounts()})
        await self._clock.sleep(self._interval_seconds)

    async def _abandon_strays(self) -> None:
        now = self._clock.monotonic()
        if now - self._looked_for_strays >= self._lease.interval_seconds:
            await self._lease.abandon_strays(self._in_memory)
            self._looked_for_strays = now

    async def queues_running_low(self) -> None:
        """Wait until a queue runs low while the store has more for it, and fill it. Raises `StoreUnavailable`."""
        await self._dispatcher.refill_wanted.wait()
        self._dispatcher.refill_wanted.clear()
        await self._fill(self._dispatcher.running_low())

    async def _fill(self, account_ids: Iterable[str]) -> None:
        """Fill the queues of these accounts. One that raises is left alone for longer each time; the others are filled."""
        for account_id in account_ids:
            if self._pauses.resting(account_id):
                continue
            try:
                account = await self._directory.account(account_id)
                if account is not None:
                    await self._fill_one(account)
            except _OUTAGES:
                raise
            except FAULTS as error:  # as said
                contained(Where.ACCOUNT, error, account_id=account_id)
                self._pauses.faulted(account_id)
            else:
                self._pauses.works(account_id)

    async def _fill_one(self, account: Account) -> None:
        given_up = self._dispatcher.configure(account)
        if given_up:
            await self._lease.give_back(given_up)
        if not self.partitions or not self._lease.held():
            return
        with self._dispatcher.reserving() as reserve:
            if limit := reserve(account, _MAX_CLAIMED):
                await self._claim(account, limit)

    async def _claim(self, account: Account, limit: int) -> None:
        now, partitions, target = self._clock.now(), self.partitions, self._dispatcher.target(account)
        works = await self._lease.claim(
            lambda worker_id: self._recorder.claim(
                worker_id, account.id, partitions, now=now, limit=limit, target=target
            )
        )
        if works:
            for work_id in self._dispatcher.offer(account, works):
                self._lease.note_unpushed(work_id)
            self._dispatcher.note_more(account, more=len(works) == limit)
        else:
            self._dispatcher.close_if_idle(account.id)


class DeadlineKeeper:
    """Ends submissions that were not made by their deadline: FAILED, or IN_DOUBT if an earlier push may have made them, or
    CANCELLED if cancelled; and cancellations that were not carried out by theirs."""

    def __init__(
        self,
        parts: WorkerParts,
        dispatcher: Dispatcher,
        lease: Lease,
        outcomes: OutcomeRecorder,
        sure: Callable[[], Awaitable[bool]],
    ) -> None:
        self._sure = sure
        self._recorder = parts.recorder
        self._directory = parts.directory
        self._dispatcher = dispatcher
        self._lease = lease
        self._outcomes = outcomes
        self._clock = parts.clock
        self._settings = parts.settings
        self.ending: Collection[int] = ()
        """The ids of the rows that it holds right now."""

    async def end_expired(self, partitions: Collection[int]) -> None:
        """End what has expired in these partitions, a batch at a time; wait when that was all. Raises `StoreUnavailable`. Ends
        nothing while the store is in doubt: it may lack the outcome."""
        if not await self._sure():
            await self._clock.sleep(self._settings.sweep_seconds)
            return
        now = self._clock.now()
        waiting = self._dispatcher.withdraw(lambda work: work.status is not Status.IN_DOUBT and work.deadline_at <= now)
        if waiting:
            await self._lease.give_back(waiting)
        expired = await self._lease.claim(
            lambda worker_id: self._recorder.claim_expired(worker_id, partitions, now=now, limit=_CLAIM)
        )
        self.ending = {work.id for work in expired}
        try:
            await asyncio.gather(*(self._end(work) for work in expired))
        finally:
            self.ending = ()
        if len(expired) < _CLAIM:
            await self._clock.sleep(self._settings.sweep_seconds)

    async def _end(self, work: Work) -> None:
        """Ends one row. Contains faults of this row; a row that cannot be ended stays due, and is retried."""
        try:
            account = await self._account_of(work)
            await self._outcomes.record(PushContext(account, work, decision=self._decide(account, work)))
        except FAULTS as error:  # as said
            contained(Where.DEADLINES, error, request_id=work.submission.request_id)

    def _decide(self, account: Account, work: Work) -> Ended | Postponed:
        now, push = self._clock.now(), PushContext(account, work, outcome=too_late())
        try:
            return decide(push, now=now, jitter=0.0)
        except FAULTS as error:  # it is ended all the same
            fault = contained(Where.DEADLINES, error, request_id=work.submission.request_id)
            return after_fault(push, fault, now=now, push_seconds=self._settings.push_seconds, last=True)

    async def _account_of(self, work: Work) -> Account:
        """The account, for the metrics; one of unknown kind if it cannot be read, so that an outage does not delay the outcome."""
        account_id, workspace_id = work.submission.account_id, work.submission.workspace_id
        try:
            account = await self._directory.account(account_id)
        except TenancyUnavailable:
            account = None
        return account or Account(account_id, workspace_id, "unknown", "", "")
