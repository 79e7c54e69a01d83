"""Records outcomes in group commits: many rows a transaction, each with its event in the outbox."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

import structlog
from prometheus_client import Counter, Histogram
from structlog.typing import FilteringBoundLogger

from forwarder.observability import metrics
from forwarder.observability.logging import tells_usual
from forwarder.observability.tracing import trace_id_of
from forwarder.process.clock import Clock
from forwarder.process.containment import FAULTS, Blame, Fault, Where, contained
from forwarder.process.loops import Batcher, keep_trying
from forwarder.reservation.outcome import Status, describe
from forwarder.store.submissions.port import Ended, Postponed, StoreUnavailable
from forwarder.worker.cards import CardVault
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.outbox import DeadLetterWriter, OutboxPublisher
from forwarder.worker.outcome.policy import after_fault
from forwarder.worker.parts import WorkerSettings
from forwarder.worker.push_context import PushContext

if TYPE_CHECKING:
    from forwarder.store.submissions.recorder import Recorder

_log = structlog.get_logger(__name__)


class OutcomeRecorder:
    """Records decisions; retries through an outage of the store until the decision's lease expires.

    Releases and logs each push once, when its decision is recorded (with a dead letter if FAILED) or the row is no longer this
    worker's. If a decision cannot be recorded as it is, the row is set aside: IN_DOUBT if it may have been made, else FAILED.
    `failing`: the reason why an account's pushes are paused.
    """

    def __init__(
        self,
        recorder: "Recorder",
        outbox: OutboxPublisher,
        letters: DeadLetterWriter,
        lease: Lease,
        clock: Clock,
        settings: WorkerSettings,
        cards: CardVault,
        failing: Callable[[str], str | None] = lambda _account_id: None,
    ) -> None:
        self._recorder = recorder
        self._failing = failing
        self._outbox = outbox
        self._cards = cards
        self._letters = letters
        self._lease = lease
        self._clock = clock
        self._push_seconds = settings.push_seconds
        self._batches: Batcher[PushContext, bool] = Batcher(
            self._record,
            where=Where.OUTCOMES,
            max_items=settings.record_batch,
            pause_seconds=settings.pause_seconds,
            set_aside=self._set_aside,
            blame=Blame(Where.OUTCOMES, clock.sleep),
        )

    def enqueue(self, push: PushContext) -> None:
        """Have its decision recorded with the next batch."""
        self._add_dead_letter(push)
        self._batches.post(push)

    async def record(self, push: PushContext) -> bool:
        """Like `enqueue`; returns whether it was recorded."""
        self._add_dead_letter(push)
        return await self._batches.submit(push)

    async def drain(self) -> None:
        """Return once everything enqueued so far was dealt with."""
        await self._batches.drain()

    async def _record(self, batch: Sequence[PushContext]) -> Sequence[bool]:
        # The store decides which of these are still ours; rows of an earlier lease are known to be lost.
        worker_id = self._lease.worker_id
        ours = [push.decision for push in batch if push.work.leased_by == worker_id]
        finals = [decision for decision in ours if isinstance(decision, Ended)]
        postponed = [decision for decision in ours if isinstance(decision, Postponed)]
        recorded: set[int] = set()

        async def step() -> None:
            events = await self._recorder.record(worker_id, finals, postponed)
            recorded.update(events, (decision.work.id for decision in postponed))
            self._outbox.publish_soon(list(events.values()))

        if ours:  # else nothing depends on whether the store can be written to
            await keep_trying(step, name=Where.OUTCOMES, clock=self._clock, outages=(StoreUnavailable,))
        await self._conclude(batch, recorded)
        return [push.work.id in recorded for push in batch]

    async def _set_aside(self, push: PushContext, fault: Fault) -> bool:
        """Records a replacement without any content from the PMS, which may be the cause."""
        push.decision = after_fault(push, fault, now=self._clock.now(), push_seconds=self._push_seconds, last=True)
        try:
            self._add_dead_letter(push)
            [recorded] = await self._record([push])
        except FAULTS:
            await self._conclude([push], ())  # it is taken over when the lease expires
            raise
        return recorded

    async def _conclude(self, batch: Sequence[PushContext], recorded: Collection[int]) -> None:
        """Releases, logs and counts the pushes. Contains faults, because the outcomes are recorded already."""
        now, log = self._clock.now(), _log.bind()  # once per batch: binding costs as much as logging
        for push in batch:
            push.release()
        try:
            for push in batch:
                _log_push(log, push, now, recorded=push.work.id in recorded)
            done = [push for push in batch if push.work.id in recorded]
            ended = [
                push.work.submission.request_id
                for push in done
                if push.work.submission.card
                and isinstance(push.decision, Ended)
                and push.decision.status is not Status.IN_DOUBT
            ]
            if ended:
                try:
                    await self._cards.destroy(ended)
                except StoreUnavailable as error:
                    _log.warning("cards.not_destroyed", count=len(ended), error=str(error))  # the keeper does it
            for push in done:
                _count(push)
        except FAULTS as error:  # as said
            contained(Where.OUTCOMES, error, count=len(batch))

    def _add_dead_letter(self, push: PushContext) -> None:
        final = push.decision
        if isinstance(final, Ended) and final.status is Status.FAILED:
            push.decision = replace(
                final, dead_letter=self._letters.failed(push.work, final, self._failing(push.account.id))
            )


def _log_push(log: FilteringBoundLogger, push: PushContext, now: datetime, *, recorded: bool) -> None:
    """The one wide line about a push, with all that was learnt."""
    account, work, decision = push.account, push.work, push.decision
    if push.outcome is None or push.error is not None:
        return
    if recorded and isinstance(decision, Ended) and decision.doubles:
        metrics.DOUBLES.labels(account.metric_kind).inc()
        log.error(
            "reservation.doubled",
            request_id=work.submission.request_id,
            account_id=account.id,
            pms_reservation_id=decision.pms_reservation_id,
            others=list(decision.doubles),
        )
    usual = recorded and isinstance(decision, Ended) and decision.status is Status.CONFIRMED
    if usual and len(push.attempts) == 1 and not tells_usual(work.submission.request_id):
        return
    outcome, reason, _ = describe(push.outcome)
    last = push.attempts[-1] if push.attempts else None
    log.info(
        "push.recorded",
        request_id=work.submission.request_id,
        reservation_id=work.record_id,
        account_id=account.id,
        workspace_id=account.workspace_id,
        kind=account.kind,
        status=str(decision.status if isinstance(decision, Ended) else work.status),
        outcome=outcome,
        reason=reason,
        attempts=len(push.attempts),
        duration_ms=None if last is None else last.duration_ms,
        age_ms=round((now - work.submission.accepted_at).total_seconds() * 1000),
        recorded=recorded,
        trace_id=work.submission.trace and trace_id_of(work.submission.trace),
    )


def _count(push: PushContext) -> None:
    final, kind = push.decision, push.account.kind
    if not isinstance(final, Ended):
        return
    cancellation = final.event.data.get("cancellation")
    if cancellation is not None:
        metrics.CANCELLATIONS.labels(kind, cancellation["status"]).inc()
        return
    age = (final.updated_at - push.work.submission.accepted_at).total_seconds()
    outcomes, seconds = _outcomes(kind, final.status)
    outcomes.inc()
    seconds.observe(max(age, 0.0))


@cache
def _outcomes(kind: str, status: Status) -> tuple[Counter, Histogram]:
    """The metrics by their labels, cached: looking them up costs more than counting."""
    return metrics.OUTCOMES.labels(kind, status), metrics.OUTCOME_SECONDS.labels(status)
