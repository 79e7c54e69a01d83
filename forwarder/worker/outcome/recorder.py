"""Outcomes, recorded in group commits: many rows a transaction, each with its event."""

from collections import Counter as Counting
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

import structlog
from prometheus_client import Counter, Histogram

from forwarder.observability import metrics
from forwarder.operations.dead_letter_messages import DeadLetterWriter
from forwarder.process.batching import Batcher
from forwarder.process.clock import Clock
from forwarder.process.loops import keep_trying
from forwarder.reservation.outcome import Status
from forwarder.reservation.value import value
from forwarder.store.submissions.port import Recorder, StoreUnavailable
from forwarder.store.submissions.work import Ended, Postponed, Work
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.outbox_publisher import OutboxPublisher
from forwarder.worker.settings import WorkerSettings

_log = structlog.get_logger(__name__)


def _nothing_then(_recorded: bool) -> None:  # noqa: FBT001 - as it is called back with
    pass


@value(frozen=True, slots=True)
class DecidedOutcome:
    """A row and what is to be recorded of it, under the lease that it is held by.

    `then` is called, once, when that is dealt with: with True once the verdict is durable, with a dead letter where it is FAILED;
    with False when the row was no longer this worker's, or a bug kept it from being recorded. It raises nothing.
    """

    work: Work
    kind: str
    verdict: Ended | Postponed
    then: Callable[[bool], None] = _nothing_then


class OutcomeRecorder:
    """Records verdicts; through an outage of the store for as long as the lease that they were made under lasts."""

    def __init__(
        self,
        recorder: Recorder,
        announcer: OutboxPublisher,
        letters: DeadLetterWriter,
        lease: Lease,
        clock: Clock,
        settings: WorkerSettings,
    ) -> None:
        self._recorder = recorder
        self._announcer = announcer
        self._letters = letters
        self._lease = lease
        self._clock = clock
        self._batches: Batcher[DecidedOutcome, bool] = Batcher(
            self._record, at_most=settings.record_batch, pause_seconds=settings.pause_seconds
        )

    def hand_in(self, settled: DecidedOutcome) -> None:
        """Have it recorded with the next batch."""
        self._batches.post(self._with_letter(settled))

    async def record(self, settled: DecidedOutcome) -> bool:
        """As `hand_in`; returns what `then` is told. Raises what a bug raised."""
        return await self._batches.submit(self._with_letter(settled))

    async def drain(self) -> None:
        """Return once every verdict handed in so far was dealt with."""
        await self._batches.drain()

    async def _record(self, batch: Sequence[DecidedOutcome]) -> Sequence[bool]:
        # The store's own fence decides what is still ours; a lease of before is known to be lost.
        worker_id = self._lease.worker_id
        ours = [settled.verdict for settled in batch if settled.work.leased_by == worker_id]
        finals = [verdict for verdict in ours if isinstance(verdict, Ended)]
        postponed = [verdict for verdict in ours if isinstance(verdict, Postponed)]
        recorded: set[int] = set()

        async def step() -> None:
            events = await self._recorder.record(worker_id, finals, postponed)
            recorded.update(events, (verdict.work_id for verdict in postponed))
            self._announcer.announce(list(events.values()))

        try:
            await keep_trying(step, name="settlement", clock=self._clock, outages=(StoreUnavailable,))
        except Exception:
            _log.exception("settlement.failed", count=len(batch))
            recorded.clear()
            raise
        finally:
            told = [settled.verdict.work_id in recorded for settled in batch]
            for settled, is_recorded in zip(batch, told, strict=True):
                settled.then(is_recorded)
        _count([settled for settled, is_recorded in zip(batch, told, strict=True) if is_recorded])
        return told

    def _with_letter(self, settled: DecidedOutcome) -> DecidedOutcome:
        final = settled.verdict
        if not isinstance(final, Ended) or final.status is not Status.FAILED:
            return settled
        return replace(settled, verdict=replace(final, dead_letter=self._letters.failed(settled.work, final)))


def _count(recorded: Iterable[DecidedOutcome]) -> None:
    ended: Counting[Counter] = Counting()
    for settled in recorded:
        final = settled.verdict
        if not isinstance(final, Ended):
            continue
        cancellation = final.event.data.get("cancellation")
        if cancellation is not None:
            metrics.CANCELLATIONS.labels(settled.kind, cancellation["status"]).inc()
            continue
        outcomes, seconds = _outcomes(settled.kind, final.status)
        ended[outcomes] += 1
        seconds.observe(max((final.updated_at - settled.work.submission.accepted_at).total_seconds(), 0.0))
    for outcomes, count in ended.items():
        outcomes.inc(count)


@cache
def _outcomes(kind: str, status: Status) -> tuple[Counter, Histogram]:
    """What counts them, kept: to look it up by its labels costs more than to count."""
    return metrics.OUTCOMES.labels(kind, status), metrics.OUTCOME_SECONDS.labels(status)
