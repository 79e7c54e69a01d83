"""Records outcomes with their events, many at once; publishes the events from the outbox to the results topic, at least once each,
with a stable id; and writes dead letters.

What was just recorded is published from memory; what a crash or an outage left behind is found in the outbox and published again.
From memory goes only an event whose turn it is: none overtakes an earlier one of its submission. A dead letter goes out just
before its event.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Final

import structlog
from prometheus_client import Counter, Histogram
from pydantic_core import to_json
from structlog.typing import FilteringBoundLogger

from forwarder.observability import metrics
from forwarder.observability.logging import tells_usual
from forwarder.observability.tracing import trace_id_of
from forwarder.process.clock import iso
from forwarder.process.loops import FAULTS, Batcher, Blame, Fault, Where, by_halves, contained, keep_trying, pause_after
from forwarder.reservation.outcome import (
    EXPIRED_REASONS,
    FAILURE_CLASS,
    FORGED,
    INTERNAL_ERROR,
    OTHER,
    UNDECODABLE,
    Status,
    class_of,
    describe,
)
from forwarder.reservation.problems import with_absolute_links
from forwarder.store.submissions.port import DeadLetter, Ended, OutboxEvent, Postponed, StoreUnavailable, Work
from forwarder.tenancy.sealing import GONE
from forwarder.topics.codec import CUT, EVENT_ID, PREFIX, encode_result, encode_submission
from forwarder.topics.port import MAX_MESSAGE_BYTES, ConsumedMessage, LogUnavailable, Message, Topics, too_large
from forwarder.worker.cards import CardVault
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.policy import after_fault
from forwarder.worker.parts import WorkerParts
from forwarder.worker.push.run import PushContext

_log = structlog.get_logger(__name__)

_BATCH: Final = 500
_MAX_IN_MEMORY: Final = 20_000
_KEY_BYTES: Final = 1024


@dataclass(eq=False, repr=False)
class OutcomeRecorder:
    """Records decisions; retries through an outage of the store until the decision's lease expires.

    Releases and logs each push once, when its decision is recorded (with a dead letter if FAILED) or the row is no longer this
    worker's. If a decision cannot be recorded as it is, the row is set aside: IN_DOUBT if it may have been made, else FAILED.
    `failing`: the reason why an account's pushes are paused."""

    parts: WorkerParts
    outbox: "OutboxPublisher"
    lease: Lease
    cards: CardVault
    failing: Callable[[str], str | None] = lambda _account_id: None

    def __post_init__(self) -> None:
        self.recorder, self.clock, self.settings = self.parts.recorder, self.parts.clock, self.parts.settings
        self._letters = DeadLetterWriter(self.parts.topics, self.settings.group)
        self._batches: Batcher[PushContext, bool] = Batcher(
            self._record,
            where=Where.OUTCOMES,
            max_items=self.settings.record_batch,
            pause_seconds=self.settings.pause_seconds,
            set_aside=self._set_aside,
            blame=Blame(Where.OUTCOMES, self.clock.sleep),
        )

    def enqueue(self, push: PushContext) -> None:
        self._add_dead_letter(push)
        self._batches.post(push)

    async def record(self, push: PushContext) -> bool:
        self._add_dead_letter(push)
        return await self._batches.submit(push)

    async def drain(self) -> None:
        await self._batches.drain()

    async def _record(self, batch: Sequence[PushContext]) -> Sequence[bool]:
        # The store decides which of these are still ours; rows of an earlier lease are known to be lost.
        worker_id, recorded = self.lease.worker_id, set[int]()
        ours = [push.decision for push in batch if push.work.leased_by == worker_id]
        finals = [decision for decision in ours if isinstance(decision, Ended)]
        postponed = [decision for decision in ours if isinstance(decision, Postponed)]

        async def step() -> None:
            events = await self.recorder.record(worker_id, finals, postponed)
            recorded.update(events, (decision.work.id for decision in postponed))
            self.outbox.publish_soon(list(events.values()))

        if ours:  # else nothing depends on whether the store can be written to
            await keep_trying(step, name=Where.OUTCOMES, clock=self.clock, outages=(StoreUnavailable,))
        await self._conclude(batch, recorded)
        return [push.work.id in recorded for push in batch]

    async def _set_aside(self, push: PushContext, fault: Fault) -> bool:
        """Records a replacement without any content from the PMS, which may be the cause."""
        now, seconds = self.clock.now(), self.settings.push_seconds
        push.decision = after_fault(push, fault, now=now, push_seconds=seconds, last=True)
        try:
            self._add_dead_letter(push)
            [recorded] = await self._record([push])
        except FAULTS:
            await self._conclude([push], ())  # it is taken over when the lease expires
            raise
        return recorded

    async def _conclude(self, batch: Sequence[PushContext], recorded: Collection[int]) -> None:
        """Releases, logs and counts the pushes. Contains faults, because the outcomes are recorded already."""
        now, log = self.clock.now(), _log.bind()  # once per batch: binding costs as much as logging
        for push in batch:
            push.release()
        try:
            for push in batch:
                _log_push(log, push, now, recorded=push.work.id in recorded)
            finals = [(push, push.decision) for push in batch if push.work.id in recorded]
            ended = [(push, final) for push, final in finals if isinstance(final, Ended)]
            settled = [push.work.submission for push, final in ended if final.status is not Status.IN_DOUBT]
            if carded := [submission.request_id for submission in settled if submission.card]:
                try:
                    await self.cards.keys.destroy(carded)
                except StoreUnavailable as error:
                    _log.warning("cards.not_destroyed", count=len(carded), error=str(error))  # the keeper does it
            for push, final in ended:
                kind, cancellation = push.account.kind, final.event.data.get("cancellation")
                if cancellation is not None:
                    metrics.CANCELLATIONS.labels(kind, cancellation["status"]).inc()
                    continue
                outcomes, seconds = _outcomes(kind, final.status)
                outcomes.inc()
                age = (final.updated_at - push.work.submission.accepted_at).total_seconds()
                seconds.observe(max(age, 0.0))
        except FAULTS as error:  # as said
            contained(Where.OUTCOMES, error, count=len(batch))

    def _add_dead_letter(self, push: PushContext) -> None:
        final = push.decision
        if isinstance(final, Ended) and final.status is Status.FAILED:
            letter = self._letters.failed(push.work, final, self.failing(push.account.id))
            push.decision = replace(final, dead_letter=letter)


def _log_push(log: FilteringBoundLogger, push: PushContext, now: datetime, *, recorded: bool) -> None:
    """The one wide line about a push, with all that was learnt."""
    account, work, submission = push.account, push.work, push.work.submission
    if push.outcome is None or push.error is not None:
        return
    ended = push.decision if isinstance(push.decision, Ended) else None
    if recorded and ended is not None and ended.doubles:
        metrics.DOUBLES.labels(account.metric_kind).inc()
        request_id, made, others = submission.request_id, ended.pms_reservation_id, list(ended.doubles)
        log.error(
            "reservation.doubled", request_id=request_id, account_id=account.id, pms_reservation_id=made, others=others
        )
    usual = recorded and ended is not None and ended.status is Status.CONFIRMED and len(push.attempts) == 1
    if usual and not tells_usual(submission.request_id):
        return
    outcome, reason, _ = describe(push.outcome)
    log.info(
        "push.recorded",
        request_id=submission.request_id,
        reservation_id=work.record_id,
        account_id=account.id,
        workspace_id=account.workspace_id,
        kind=account.kind,
        status=str(work.status if ended is None else ended.status),
        outcome=outcome,
        reason=reason,
        attempts=len(push.attempts),
        duration_ms=push.attempts[-1].duration_ms if push.attempts else None,
        age_ms=round((now - submission.accepted_at).total_seconds() * 1000),
        recorded=recorded,
        trace_id=submission.trace and trace_id_of(submission.trace),
    )


@cache
def _outcomes(kind: str, status: Status) -> tuple[Counter, Histogram]:
    """The metrics by their labels, cached: looking them up costs more than counting."""
    return metrics.OUTCOMES.labels(kind, status), metrics.OUTCOME_SECONDS.labels(status)


@dataclass(eq=False, repr=False)
class OutboxPublisher:
    """Publishes events and then deletes them from the outbox, many at once."""

    parts: WorkerParts

    def __post_init__(self) -> None:
        self.recorder, self.clock, self.settings = self.parts.recorder, self.parts.clock, self.parts.settings
        pause, long_pause = self.settings.pause_seconds, self.settings.delete_pause_seconds
        self._in_memory = 0
        self._batches: Batcher[OutboxEvent, None] = Batcher(
            self._publish, where=Where.OUTBOX, max_items=_BATCH, pause_seconds=pause, set_aside=self._leave_in_outbox
        )
        self._published: set[tuple[str, int]] = set()
        self._to_delete: Batcher[OutboxEvent, None] = Batcher(
            self._delete, where=Where.PUBLISHED, max_items=_MAX_IN_MEMORY, pause_seconds=long_pause
        )

    def publish_soon(self, events: Sequence[OutboxEvent]) -> None:
        """Publishes with the next batch. While the log is away only so many are kept in memory; the outbox has them all."""
        # Each event is published in its turn: after the one before it, if there is one.
        before = [(entry, (entry.event.request_id, entry.event.revision - 1)) for entry in events]
        in_turn = [entry for entry, last in before if entry.in_turn or not last[1] or last in self._published]
        soon = in_turn[: _MAX_IN_MEMORY - self._in_memory]
        self._in_memory += len(soon)
        self._batches.post(*soon)

    async def drain(self) -> None:
        """Returns once everything so far is published, or left in the outbox."""
        await self._batches.drain()
        await self._to_delete.drain()

    async def republish(self) -> None:
        """Waits a while; then publishes what was recorded a while ago and is still in the outbox."""
        seconds = self.settings.republish_seconds
        await self.clock.sleep(seconds / 2)
        now = self.clock.now()
        entries = await self.recorder.republish(before=now - timedelta(seconds=seconds), now=now, limit=_BATCH)
        set_aside = await self.recorder.kept_events()
        metrics.UNPUBLISHED_RESULTS.set(sum(not entry.faults for entry in entries) + set_aside)
        if not entries:
            return
        _log.info("results.republished", count=len(entries))
        kept: set[int] = set()

        async def keep(entry: OutboxEvent, fault: Fault) -> None:
            kept.add(entry.id)
            await self._keep(entry, fault)

        outages = (LogUnavailable, StoreUnavailable)
        await by_halves(self._publish_now, entries, where=Where.OUTBOX, set_aside=keep, outages=outages)
        await self.recorder.published([entry.id for entry in entries if entry.id not in kept])

    async def _publish(self, events: Sequence[OutboxEvent]) -> Sequence[None]:
        """Publishes `events`. An outage leaves them in the outbox; an unexpected exception is raised before any state changes."""
        try:
            await self._publish_now(events)
        except LogUnavailable as error:
            _log.warning("results.left_in_outbox", count=len(events), error=str(error))
        else:
            self._published.update([(entry.event.request_id, entry.event.revision) for entry in events])
            self._to_delete.post(*events)
        self._in_memory -= len(events)
        return [None] * len(events)

    async def _leave_in_outbox(self, entry: OutboxEvent, fault: Fault) -> None:
        self._in_memory -= 1
        try:
            await self._keep(entry, fault)
        except StoreUnavailable as error:
            _log.warning("results.left_in_outbox", count=1, error=str(error))  # it is republished, and kept then

    async def _keep(self, entry: OutboxEvent, fault: Fault) -> None:
        """It cannot be published: it stays in the outbox, marked, and is tried again after 12 s, 24 s, … up to an hour."""
        faults, event = entry.faults + 1, entry.event
        _log.error(
            "result.set_aside", request_id=event.request_id, event_id=event.event_id, faults=faults, error_id=fault.id
        )
        until = self.clock.now() + timedelta(seconds=12 * pause_after(faults))
        await self.recorder.keep_event(entry.id, until=until, error_id=fault.id)

    async def _delete(self, events: Sequence[OutboxEvent]) -> Sequence[None]:
        try:
            await self.recorder.published([entry.id for entry in events])
        except StoreUnavailable as error:
            _log.warning("results.left_in_outbox", count=len(events), error=str(error))
        finally:
            self._published.difference_update([(entry.event.request_id, entry.event.revision) for entry in events])
        return [None] * len(events)

    async def _publish_now(self, events: Sequence[OutboxEvent]) -> None:
        letters = [entry.dead_letter for entry in events if entry.dead_letter is not None]
        # Encode and measure all before publishing any, so that an unpublishable event costs the others nothing.
        results, url = [encode_result(entry.event) for entry in events], self.settings.public_url.encode()
        for place, result in enumerate(results):
            value = with_absolute_links(result.value, url)
            if value is not result.value:
                results[place] = replace(result, value=value)
        if (error := too_large(results)) is not None:
            raise error
        if letters:
            signed = [self.parts.signer.signed(letter_message(each)) for each in letters]
            await self.parts.publisher.publish(self.parts.topics.dead_letters, signed)
            for letter in letters:
                metrics.DEAD_LETTERS.labels(letter.failure_class or OTHER).inc()
        await self.parts.publisher.publish(self.parts.topics.results, results)
        metrics.RESULTS_PUBLISHED.inc(len(events))


class Forged(ValueError):
    """A message without a valid signature of this deployment: someone else wrote or changed it."""


@dataclass(frozen=True, slots=True)
class DeadLetterWriter:
    topics: Topics
    group: str

    def set_aside(self, consumed: ConsumedMessage, error: Exception | Fault) -> Message:
        """The dead letter for a message that the worker sets aside: unchanged but for dead-letter headers that it arrived with; or
        the beginning of it, as much as the log takes, without its headers. `error`: `Undecodable`, `Forged`, or the fault."""
        raised, failure_class = error, FORGED if isinstance(error, Forged) else UNDECODABLE
        if isinstance(error, Fault):
            raised, failure_class = error.error, INTERNAL_ERROR
        headers = self._headers(consumed.partition, consumed.offset, consumed.timestamp_ms) | {
            "dlt-exception-class": type(raised).__name__,
            "dlt-exception-message": str(error),
            "dlt-attempts": "1",
            FAILURE_CLASS: failure_class,
        }
        message = consumed.message
        own = tuple(each for each in message.headers if not each[0].startswith(PREFIX))
        letter = _with_headers(replace(message, headers=own), headers)
        if letter.size <= MAX_MESSAGE_BYTES:
            return letter
        begun = _with_headers(Message(message.key[:_KEY_BYTES], b""), {**headers, CUT: str(message.size)})
        return replace(begun, value=message.value[: MAX_MESSAGE_BYTES - begun.size])

    def failed(self, work: Work, ended: Ended, failing: str | None = None) -> DeadLetter:
        """The dead letter for `work`, which ended FAILED. It says of a card only that there was one. The reason is the last one
        other than an expired deadline; if it was never tried, `failing`: the error of its PMS. An unreadable row's has no value."""
        submission = work.submission if work.submission.card is None else replace(work.submission, card=GONE)
        reason, detail = "deadline_passed", "It had not been made when its deadline came."
        reasoned = [each for each in ended.attempts if each.reason and each.reason not in EXPIRED_REASONS]
        if reasoned:
            reason, detail = reasoned[-1].reason or reason, reasoned[-1].detail or detail
        elif failing is not None:
            reason, detail = (
                failing or reason,
                "It was not tried before its deadline came: its PMS was failing, and left alone.",
            )
        message = encode_submission(submission, iso(submission.accepted_at), to_json(submission.reservation))
        headers = {name: value.decode() for name, value in message.headers}
        headers |= self._headers(work.partition, work.offset, work.timestamp_ms) | {
            "dlt-exception-class": reason,
            "dlt-exception-message": detail,
            "dlt-attempts": str(ended.attempts[-1].number if ended.attempts else 0),
            FAILURE_CLASS: class_of(reason),
            EVENT_ID: ended.event.event_id,
        }
        return DeadLetter(message.key.decode(), "" if work.unreadable else message.value.decode(), headers)

    def _headers(self, partition: int, offset: int, timestamp_ms: int) -> dict[str, str]:
        return {
            "dlt-original-topic": self.topics.requests,
            "dlt-original-partition": str(partition),
            "dlt-original-offset": str(offset),
            "dlt-original-timestamp": str(timestamp_ms),
            "dlt-original-consumer-group": self.group,
        }


def letter_message(letter: DeadLetter) -> Message:
    return _with_headers(Message(letter.key.encode(), letter.value.encode()), letter.headers)


def place_only(letter: Message) -> Message:
    """`letter` without the message itself: only the message's place on its topic."""
    own = {name: value.decode() for name, value in letter.headers if name.startswith(PREFIX)}
    return _with_headers(Message(letter.key[:_KEY_BYTES], b""), {CUT: str(letter.size), **own})


def _with_headers(message: Message, headers: Mapping[str, str]) -> Message:
    added = tuple((name, value.encode()) for name, value in headers.items())
    return Message(message.key, message.value, (*message.headers, *added))
