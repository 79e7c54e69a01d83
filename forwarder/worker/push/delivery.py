"""One row from the lane to the record: push, decide, record, and one wide log line at the end."""

import random
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import structlog

from forwarder.operations.completion import describe
from forwarder.process.clock import Clock
from forwarder.store.submissions.work import Ended, Postponed, Work
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.account_queue import Release
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.policy import decide
from forwarder.worker.outcome.recorder import DecidedOutcome, OutcomeRecorder
from forwarder.worker.push.ambiguity import QuietPeriods
from forwarder.worker.push.batch_push import BatchPusher
from forwarder.worker.push.health_signal import NOT_ATTEMPTED, HealthSignal, combined_signal, health_signal
from forwarder.worker.push.pusher import Pusher
from forwarder.worker.push.result import LeaseLost, PushResult
from forwarder.worker.push.safeguards import read_safeguards

_log = structlog.get_logger(__name__)

_AFTER_A_BUG = timedelta(minutes=5)


class PushPipeline:
    """What a lane does with each row."""

    def __init__(
        self, pusher: Pusher, settlement: OutcomeRecorder, lease: Lease, clock: Clock, *, settle_seconds: float
    ) -> None:
        self._pusher = pusher
        self._together = BatchPusher(pusher, clock)
        self._settlement = settlement
        self._lease = lease
        self._clock = clock
        self._settle_seconds = settle_seconds
        self._settling = QuietPeriods(clock, settle_seconds)

    async def deliver(self, account: Account, work: Work, left: Release) -> HealthSignal:
        """Push `work` once; what was found of the PMS. What it came to is recorded from then on; `left` is called when it is."""
        unsettled_seconds = self._settling.seconds_left(work)
        if unsettled_seconds > 0.0:
            self._leave_alone(account, work, unsettled_seconds, left)
            return NOT_ATTEMPTED
        if not self._as_leased(account, work):
            self._give_back(work, left, "options_changed")
            return NOT_ATTEMPTED
        pushed: PushResult | Exception
        try:
            pushed = await self._pusher.push(account, work)
            finding = health_signal(work, pushed)
        except Exception as error:  # noqa: BLE001 - one row is at stake, not the worker
            pushed, finding = error, NOT_ATTEMPTED
        self._conclude(account, work, pushed, left)
        return finding

    async def deliver_together(self, account: Account, works: Sequence[Work], left: Release) -> HealthSignal:
        """As `deliver`, all of `works` in one request."""
        for work in works:
            if not self._as_leased(account, work):
                self._give_back(work, left, "options_changed")
        works = [work for work in works if self._as_leased(account, work)]
        if not works:
            return NOT_ATTEMPTED
        pushed: Sequence[PushResult | Exception]
        try:
            pushed = await self._together.push(account, works)
            pairs = zip(works, pushed, strict=True)
            finding = combined_signal(health_signal(work, each) for work, each in pairs if isinstance(each, PushResult))
        except Exception as error:  # noqa: BLE001 - as above
            pushed, finding = [error] * len(works), NOT_ATTEMPTED
        for work, each in zip(works, pushed, strict=True):
            self._conclude(account, work, each, left)
        return finding

    def _as_leased(self, account: Account, work: Work) -> bool:
        """Whether a push would carry now what the row was leased with: what is recorded of it must be true of what is sent."""
        return self._pusher.safeguards(account) == work.safeguards

    def _give_back(self, work: Work, left: Release, reason: str) -> None:
        _log.warning("reservation.left", request_id=work.submission.request_id, reason=reason)
        self._lease.note_unpushed(work.id)
        left(work)

    def _conclude(self, account: Account, work: Work, pushed: PushResult | Exception, left: Release) -> None:
        if isinstance(pushed, PushResult):
            self._settle(account, work, pushed, left)
        elif isinstance(pushed, LeaseLost):
            self._give_back(work, left, "lease_lost")
        else:
            self._put_aside(account, work, pushed, left)

    def _settle(self, account: Account, work: Work, pushed: PushResult, left: Release) -> None:
        try:
            self._settling.note(work, pushed)
            decided = self._decide(account, work, pushed)
        except Exception as error:  # noqa: BLE001 - as above
            self._put_aside(account, work, error, left)
            return
        recorded = partial(self._recorded, account, work, pushed, decided, left)
        self._settlement.hand_in(DecidedOutcome(work, account.kind, decided, recorded))

    def _recorded(
        self,
        account: Account,
        work: Work,
        pushed: PushResult,
        decided: Ended | Postponed,
        left: Release,
        recorded: bool,  # noqa: FBT001 - as it is called back with
    ) -> None:
        left(work)
        status = decided.status if isinstance(decided, Ended) else work.status
        self._log(account, work, pushed, str(status), recorded=recorded)

    def _decide(self, account: Account, work: Work, pushed: PushResult) -> Ended | Postponed:
        luck, now = random.random(), self._clock.now()  # noqa: S311 - jitter, not a secret
        # Its cancellation may have been asked for meanwhile.
        cancel_by = now + timedelta(seconds=account.deadline_seconds)
        return decide(work, pushed, now=now, settle_seconds=self._settle_seconds, luck=luck, cancel_by=cancel_by)

    def _leave_alone(self, account: Account, work: Work, seconds: float, left: Release) -> None:
        now = self._clock.now()
        later = Postponed(
            work.id,
            work.attempts,
            now,
            now + timedelta(seconds=seconds),
            possibly_sent=True,
            sent_safeguards=work.sent_safeguards,
        )
        self._settlement.hand_in(DecidedOutcome(work, account.kind, later, lambda _: left(work)))

    def _put_aside(self, account: Account, work: Work, bug: Exception, left: Release) -> None:
        """A bug of ours must neither lose a row nor hold it for ever: it is due again, in doubt, and the log says why."""
        _log.error("delivery.failed", request_id=work.submission.request_id, reservation_id=work.id, exc_info=bug)
        now = self._clock.now()
        carried = read_safeguards(work.safeguards or "")
        sent_safeguards = carried.common_with(read_safeguards(work.sent_safeguards)) if work.possibly_sent else carried
        again = Postponed(
            work.id, work.attempts, now, now + _AFTER_A_BUG, possibly_sent=True, sent_safeguards=str(sent_safeguards)
        )
        self._settlement.hand_in(DecidedOutcome(work, account.kind, again, lambda _: left(work)))

    def _log(self, account: Account, work: Work, pushed: PushResult, status: str, *, recorded: bool) -> None:
        outcome, reason, _ = describe(pushed.outcome)
        last = pushed.attempts[-1] if pushed.attempts else None
        _log.info(
            "reservation.settled",
            request_id=work.submission.request_id,
            reservation_id=work.id,
            account_id=account.id,
            workspace_id=account.workspace_id,
            kind=account.kind,
            status=status,
            outcome=outcome,
            reason=reason,
            attempts=len(pushed.attempts),
            duration_ms=None if last is None else last.duration_ms,
            age_ms=round((self._clock.now() - work.submission.accepted_at).total_seconds() * 1000),
            recorded=recorded,
            traceparent=work.submission.traceparent,
        )
