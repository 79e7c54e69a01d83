"""Deadlines kept, whatever else goes on: neither a paused account, nor a PMS that is down, nor a long queue holds up the answer.

What is to be cancelled and was surely not sent has its deadline brought forward, and ends here as well.
"""

import asyncio
from collections.abc import Collection

from forwarder.process.clock import Clock
from forwarder.reservation.outcome import Status
from forwarder.store.submissions.port import Recorder
from forwarder.store.submissions.work import Work
from forwarder.tenancy.port import Directory, TenancyUnavailable
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.policy import decide
from forwarder.worker.outcome.recorder import DecidedOutcome, OutcomeRecorder
from forwarder.worker.push.result import PushResult, too_late

_CLAIM = 250


class DeadlineKeeper:
    """Ends what was not made by its deadline: FAILED, or IN_DOUBT where an earlier push may have been made, or CANCELLED where it
    is not to be made any more; and cancellations that were not carried out by theirs."""

    def __init__(
        self,
        recorder: Recorder,
        directory: Directory,
        lanes: Dispatcher,
        lease: Lease,
        settlement: OutcomeRecorder,
        clock: Clock,
        *,
        interval_seconds: float,
        settle_seconds: float,
    ) -> None:
        self._recorder = recorder
        self._directory = directory
        self._lanes = lanes
        self._lease = lease
        self._settlement = settlement
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._settle_seconds = settle_seconds
        self.ending: Collection[int] = ()
        """The rows that it has just now."""

    async def end_expired(self, partitions: Collection[int]) -> None:
        """End what has expired in these partitions, a batch at a time; wait when that was all. Raises `StoreUnavailable`."""
        now = self._clock.now()
        waiting = self._lanes.withdraw(lambda work: work.status is not Status.IN_DOUBT and work.deadline_at <= now)
        if waiting:
            await self._lease.give_back(waiting)
        expired = await self._lease.claim(
            lambda worker_id: self._recorder.claim_expired(worker_id, partitions, now=now, limit=_CLAIM)
        )
        self.ending = {work.id for work in expired}
        await asyncio.gather(*(self._end(work) for work in expired))
        self.ending = ()
        if len(expired) < _CLAIM:
            await self._clock.sleep(self._interval_seconds)

    async def _end(self, work: Work) -> None:
        kind = await self._kind_of(work.submission.account_id)
        pushed = PushResult(too_late(), work.attempts, work.possibly_sent, sent_safeguards=work.sent_safeguards)
        decided = decide(work, pushed, now=self._clock.now(), settle_seconds=self._settle_seconds, luck=0.0)
        await self._settlement.record(DecidedOutcome(work, kind, decided))

    async def _kind_of(self, account_id: str) -> str:
        """For the metrics; who cannot tell holds up nothing."""
        try:
            account = await self._directory.account(account_id)
        except TenancyUnavailable:
            account = None
        return "unknown" if account is None else account.kind
