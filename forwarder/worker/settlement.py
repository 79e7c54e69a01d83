"""Outcomes, recorded in group commits: many rows a transaction, each with its event."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from prometheus_client import Counter, Histogram

from forwarder.reservation.outcome import Status
from forwarder.reservation.value import value
from forwarder.runtime import metrics
from forwarder.runtime.batching import Batcher
from forwarder.runtime.clock import Clock
from forwarder.runtime.loops import keep_trying
from forwarder.store.port import Recorder, StoreUnavailable
from forwarder.store.work import Final, Postponed, Work
from forwarder.worker.announcer import Announcer
from forwarder.worker.dead_letters import DeadLetters
from forwarder.worker.lease import Lease
from forwarder.worker.settings import WorkerSettings


@value(frozen=True, slots=True)
class Settled:
    """A row and what is to be recorded of it, under the lease that it is held by."""

    work: Work
    kind: str
    verdict: Final | Postponed


class Settlement:
    """Records verdicts; through an outage of the store for as long as the lease that they were made under lasts."""

    def __init__(
        self,
        recorder: Recorder,
        announcer: Announcer,
        letters: DeadLetters,
        lease: Lease,
        clock: Clock,
        settings: WorkerSettings,
    ) -> None:
        self._recorder = recorder
        self._announcer = announcer
        self._letters = letters
        self._lease = lease
        self._clock = clock
        self._batches: Batcher[Settled, bool] = Batcher(
            self._record, at_most=settings.record_batch, pause_seconds=settings.pause_seconds
        )

    async def record(self, settled: Settled) -> bool:
        """True once the verdict is durable, with a dead letter where it is FAILED; False when the row was no longer this
        worker's."""
        final = settled.verdict
        if isinstance(final, Final) and final.status is Status.FAILED:
            settled = replace(settled, verdict=replace(final, letter=self._letters.failed(settled.work, final)))
        return await self._batches.submit(settled)

    async def drain(self) -> None:
        """Return once every verdict handed in so far was dealt with."""
        await self._batches.drain()

    async def _record(self, batch: Sequence[Settled]) -> Sequence[bool]:
        # The store's own fence decides what is still ours; a lease of before is known to be lost.
        worker_id = self._lease.worker_id
        ours = [settled.verdict for settled in batch if settled.work.held_by == worker_id]
        finals = [verdict for verdict in ours if isinstance(verdict, Final)]
        postponed = [verdict for verdict in ours if isinstance(verdict, Postponed)]
        recorded: set[int] = {verdict.work_id for verdict in postponed}

        async def step() -> None:
            events = await self._recorder.record(worker_id, finals, postponed)
            recorded.update(events)
            self._announcer.announce(list(events.values()))

        await keep_trying(step, name="settlement", clock=self._clock, outages=(StoreUnavailable,))
        for settled in batch:
            if settled.verdict.work_id in recorded:
                self._count(settled)
        return [settled.verdict.work_id in recorded for settled in batch]

    def _count(self, settled: Settled) -> None:
        if not isinstance(settled.verdict, Final):
            return
        cancellation = settled.verdict.event.data.get("cancellation")
        if cancellation is not None:
            metrics.CANCELLATIONS.labels(settled.kind, cancellation["status"]).inc()
        else:
            status = settled.verdict.status.value
            accepted = settled.work.submission.accepted_at
            outcomes, seconds = _outcomes(settled.kind, status)
            outcomes.inc()
            seconds.observe(max((settled.verdict.updated_at - accepted).total_seconds(), 0.0))


@cache
def _outcomes(kind: str, status: str) -> tuple[Counter, Histogram]:
    """What counts them, kept: to look it up by its labels costs more than to count."""
    return metrics.OUTCOMES.labels(kind, status), metrics.OUTCOME_SECONDS.labels(status)
