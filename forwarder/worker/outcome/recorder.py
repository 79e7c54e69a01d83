"""Outcomes, recorded in group commits: many rows a transaction, each with its event."""

from collections import Counter as Counting
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

import structlog
from prometheus_client import Counter, Histogram

from forwarder.observability import metrics
from forwarder.operations.completion import describe
from forwarder.operations.dead_letter_messages import DeadLetterWriter
from forwarder.process.batching import Batcher
from forwarder.process.clock import Clock
from forwarder.process.loops import keep_trying
from forwarder.reservation.outcome import Status
from forwarder.store.submissions.port import Recorder, StoreUnavailable
from forwarder.store.submissions.work import Ended, Postponed
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.outbox_publisher import OutboxPublisher
from forwarder.worker.parts import WorkerSettings
from forwarder.worker.push_context import PushContext, PushResult

_log = structlog.get_logger(__name__)


class OutcomeRecorder:
    """Records what was decided; through an outage of the store for as long as the lease that it was decided under lasts.

    Each push is released and logged, once, when that is dealt with: it is recorded, with a dead letter where it is FAILED; or the
    row was no longer this worker's, or a bug kept it from being recorded.
    """

    def __init__(
        self,
        recorder: Recorder,
        outbox: OutboxPublisher,
        letters: DeadLetterWriter,
        lease: Lease,
        clock: Clock,
        settings: WorkerSettings,
    ) -> None:
        self._recorder = recorder
        self._outbox = outbox
        self._letters = letters
        self._lease = lease
        self._clock = clock
        self._batches: Batcher[PushContext, bool] = Batcher(
            self._record, max_items=settings.record_batch, pause_seconds=settings.pause_seconds
        )

    def enqueue(self, push: PushContext) -> None:
        """Have its decision recorded with the next batch."""
        self._add_dead_letter(push)
        self._batches.post(push)

    async def record(self, push: PushContext) -> bool:
        """As `enqueue`; returns whether it was recorded. Raises what a bug raised."""
        self._add_dead_letter(push)
        return await self._batches.submit(push)

    async def drain(self) -> None:
        """Return once everything enqueued so far was dealt with."""
        await self._batches.drain()

    async def _record(self, batch: Sequence[PushContext]) -> Sequence[bool]:
        # The store decides which of these are still ours; those of an earlier lease are known to be lost.
        worker_id = self._lease.worker_id
        ours = [push.decision for push in batch if push.work.leased_by == worker_id]
        finals = [decision for decision in ours if isinstance(decision, Ended)]
        postponed = [decision for decision in ours if isinstance(decision, Postponed)]
        recorded: set[int] = set()

        async def step() -> None:
            events = await self._recorder.record(worker_id, finals, postponed)
            recorded.update(events, (decision.work_id for decision in postponed))
            self._outbox.publish_soon(list(events.values()))

        try:
            await keep_trying(step, name="outcomes", clock=self._clock, outages=(StoreUnavailable,))
        except Exception:
            _log.exception("outcomes.not_recorded", count=len(batch))
            recorded.clear()
            raise
        finally:
            for push in batch:
                push.release()
                self._log(push, recorded=push.work.id in recorded)
        _count([push for push in batch if push.work.id in recorded])
        return [push.work.id in recorded for push in batch]

    def _add_dead_letter(self, push: PushContext) -> None:
        final = push.decision
        if isinstance(final, Ended) and final.status is Status.FAILED:
            push.decision = replace(final, dead_letter=self._letters.failed(push.work, final))

    def _log(self, push: PushContext, *, recorded: bool) -> None:
        """The one wide line about a push, with all that was learnt."""
        account, work, result, decision = push.account, push.work, push.result, push.decision
        if not isinstance(result, PushResult):
            return
        outcome, reason, _ = describe(result.outcome)
        last = result.attempts[-1] if result.attempts else None
        _log.info(
            "push.recorded",
            request_id=work.submission.request_id,
            reservation_id=work.id,
            account_id=account.id,
            workspace_id=account.workspace_id,
            kind=account.kind,
            status=str(decision.status if isinstance(decision, Ended) else work.status),
            outcome=outcome,
            reason=reason,
            attempts=len(result.attempts),
            duration_ms=None if last is None else last.duration_ms,
            age_ms=round((self._clock.now() - work.submission.accepted_at).total_seconds() * 1000),
            recorded=recorded,
            traceparent=work.submission.traceparent,
        )


def _count(recorded: Iterable[PushContext]) -> None:
    ended: Counting[Counter] = Counting()
    for push in recorded:
        final, kind = push.decision, push.account.kind
        if not isinstance(final, Ended):
            continue
        cancellation = final.event.data.get("cancellation")
        if cancellation is not None:
            metrics.CANCELLATIONS.labels(kind, cancellation["status"]).inc()
            continue
        outcomes, seconds = _outcomes(kind, final.status)
        ended[outcomes] += 1
        seconds.observe(max((final.updated_at - push.work.submission.accepted_at).total_seconds(), 0.0))
    for outcomes, count in ended.items():
        outcomes.inc(count)


@cache
def _outcomes(kind: str, status: Status) -> tuple[Counter, Histogram]:
    """What counts them, kept: to look it up by its labels costs more than to count."""
    return metrics.OUTCOMES.labels(kind, status), metrics.OUTCOME_SECONDS.labels(status)
