"""Enforces deadlines: neither a paused account, nor a PMS that is down, nor a long queue delays an outcome.

A cancellation brings forward the deadline of a submission that was surely not sent, so that it ends here as well.
"""

import asyncio
from collections.abc import Collection

from forwarder.process.containment import FAULTS, Where, contained
from forwarder.reservation.outcome import Status
from forwarder.store.submissions.port import Ended, Postponed, Work
from forwarder.tenancy.port import Account, TenancyUnavailable
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.contained import after_fault
from forwarder.worker.outcome.policy import decide
from forwarder.worker.outcome.recorder import OutcomeRecorder
from forwarder.worker.parts import WorkerParts
from forwarder.worker.push_context import PushContext, PushResult, too_late

_CLAIM = 250


class DeadlineKeeper:
    """Ends submissions that were not made by their deadline: FAILED, or IN_DOUBT if an earlier push may have made them, or
    CANCELLED if cancelled; and cancellations that were not carried out by theirs."""

    def __init__(self, parts: WorkerParts, dispatcher: Dispatcher, lease: Lease, outcomes: OutcomeRecorder) -> None:
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
        """End what has expired in these partitions, a batch at a time; wait when that was all. Raises `StoreUnavailable`."""
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
            await self._outcomes.record(PushContext(account, work, decision=self._decide(work)))
        except FAULTS as error:  # as said
            contained(Where.DEADLINES, error, request_id=work.submission.request_id)

    def _decide(self, work: Work) -> Ended | Postponed:
        now = self._clock.now()
        result = PushResult(too_late(), work.attempts, work.evidence)
        try:
            return decide(work, result, now=now, jitter=0.0)
        except FAULTS as error:  # it is ended all the same
            fault = contained(Where.DEADLINES, error, request_id=work.submission.request_id)
            return after_fault(work, fault, came=None, now=now, push_seconds=self._settings.push_seconds, last=True)

    async def _account_of(self, work: Work) -> Account:
        """The account, for the metrics; one of unknown kind if it cannot be read, so that an outage does not delay the outcome."""
        account_id, workspace_id = work.submission.account_id, work.submission.workspace_id
        try:
            account = await self._directory.account(account_id)
        except TenancyUnavailable:
            account = None
        return account or Account(account_id, workspace_id, "unknown", "", "")
