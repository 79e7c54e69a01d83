"""Intake before push: a batch of messages is made durable in the store, then its offsets are committed.

From then on the store owns the work, so that a slow PMS never holds up a partition.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

import structlog

from forwarder.observability import metrics
from forwarder.operations.dead_letter_messages import DeadLetterWriter
from forwarder.process.batching import CROWD
from forwarder.process.loops import by_halves, keep_trying
from forwarder.reservation.cancellation import CancellationRequest
from forwarder.reservation.submission import Submission
from forwarder.store.submissions.port import StoreUnavailable, Unstorable
from forwarder.store.submissions.work import Arrival, Work
from forwarder.tenancy.port import Account, TenancyUnavailable
from forwarder.topics.cancellations import decode_cancellation, is_cancellation
from forwarder.topics.codec import Undecodable, decode_with_text, replay_revision
from forwarder.topics.port import ConsumedMessage, Consumer, LogUnavailable
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.intake.cancellations import CancellationIntake
from forwarder.worker.lease import Lease
from forwarder.worker.parts import WorkerParts

_log = structlog.get_logger(__name__)

_DEFAULT_DEADLINE_SECONDS = Account("", "", "", "", "").deadline_seconds

Received = tuple[ConsumedMessage, Submission, bytes | None]
"""A message, the submission that it brought, and the text of its request where it has that."""

Asked = tuple[ConsumedMessage, CancellationRequest]
"""A message, and the cancellation that it brought."""

M = TypeVar("M", Received, Asked)


class Intake:
    """Ingests what one consumer receives."""

    def __init__(self, parts: WorkerParts, dispatcher: Dispatcher, lease: Lease, letters: DeadLetterWriter) -> None:
        self._recorder = parts.recorder
        self._directory = parts.directory
        self._dispatcher = dispatcher
        self._lease = lease
        self._publisher = parts.publisher
        self._letters = letters
        self._clock = parts.clock
        self._settings = parts.settings
        self._cancellations = CancellationIntake(parts, dispatcher, lease)

    async def ingest_next(self, consumer: Consumer) -> None:
        """One batch: receive, store, offer to the account queues, commit. Raises `LogUnavailable`."""
        deliveries = await consumer.receive(
            max_messages=self._settings.intake_batch, wait_seconds=self._settings.intake_wait_seconds
        )
        if not deliveries:
            metrics.LAG_SECONDS.set(0)
            return
        received, cancellations, undecodable = _decode(deliveries)
        if undecodable:
            await self._set_aside(undecodable)
        # First: what comes in the same batch and is cancelled already is not held, and not sent.
        await self._store(self._cancel, cancellations)
        await self._store(self._ingest, received)
        await consumer.commit(deliveries)
        oldest = min(delivery.timestamp_ms for delivery in deliveries)
        metrics.LAG_SECONDS.set(max(self._clock.now().timestamp() - oldest / 1000, 0.0))
        if CROWD <= len(deliveries) < self._settings.intake_batch:
            await self._clock.sleep(self._settings.pause_seconds)

    async def _store(self, take: Callable[[Sequence[M]], Awaitable[None]], messages: Sequence[M]) -> None:
        """Let `take` make `messages` durable. What only the store finds that it cannot hold is set aside like what cannot be read:
        tried again with the rest, it would hold up all of them for ever."""

        async def refused(message: M, error: Exception) -> None:
            await self._set_aside([(message[0], Undecodable(f"the store cannot hold it: {error}"))])

        if messages:
            await by_halves(take, messages, name="intake", refusal=Unstorable, set_aside=refused)

    async def _cancel(self, asked: Sequence[Asked]) -> None:
        await self._cancellations.ingest([request for _, request in asked])

    async def _ingest(self, received: Sequence[Received]) -> None:
        outages = (StoreUnavailable, TenancyUnavailable)
        await keep_trying(partial(self._record, received), name="intake", clock=self._clock, outages=outages)

    async def _record(self, received: Sequence[Received]) -> None:
        arrivals, accounts = await self._arrivals(received)
        now = self._clock.now()
        works = await self._lease.claim(lambda worker_id: self._recorder.ingest(worker_id, arrivals, now=now))
        self._offer(works, arrivals, accounts)

    async def _arrivals(self, received: Sequence[Received]) -> tuple[list[Arrival], dict[str, Account]]:
        accounts: dict[str, Account] = {}
        room: dict[str, int] = {}
        safeguards: dict[str, str | None] = {}
        for account_id in {submission.account_id for _, submission, _ in received}:
            account = await self._directory.account(account_id)
            if account is not None:
                accounts[account_id] = account
                room[account_id] = self._dispatcher.room_for(account) if self._lease.held() else 0
                safeguards[account_id] = self._dispatcher.safeguards(account)
        arrivals = []
        for delivery, submission, text in received:
            held = room.get(submission.account_id, 0) > 0
            if held:
                room[submission.account_id] -= 1
            account, carried = accounts.get(submission.account_id), safeguards.get(submission.account_id)
            arrivals.append(self._arrival(submission, delivery, text, account, held=held, safeguards=carried))
        return arrivals, accounts

    def _arrival(
        self,
        submission: Submission,
        delivery: ConsumedMessage,
        text: bytes | None,
        account: Account | None,
        *,
        held: bool,
        safeguards: str | None,
    ) -> Arrival:
        longest = _DEFAULT_DEADLINE_SECONDS if account is None else account.deadline_seconds
        replay_of = replay_revision(delivery.message, submission)
        if replay_of is None:
            seconds = min(longest, submission.deadline_seconds or longest)
            deadline_at = submission.accepted_at + timedelta(seconds=seconds)
        else:
            # Whoever puts it back wants it made, however late.
            deadline_at = self._clock.now() + timedelta(seconds=longest)
        return Arrival(
            submission,
            delivery.partition,
            deadline_at,
            held,
            offset=delivery.offset,
            timestamp_ms=delivery.timestamp_ms,
            replay_of=replay_of,
            size=len(delivery.message.value),
            request=text,
            safeguards=safeguards,
        )

    def _offer(self, works: Sequence[Work], arrivals: Sequence[Arrival], accounts: dict[str, Account]) -> None:
        by_account: dict[str, list[Work]] = defaultdict(list)
        for work in works:
            by_account[work.submission.account_id].append(work)
        for account_id, held in by_account.items():
            for work_id in self._dispatcher.offer(accounts[account_id], held):
                self._lease.note_unpushed(work_id)
        for account_id in {arrival.submission.account_id for arrival in arrivals if not arrival.held}:
            if account_id in accounts:
                self._dispatcher.note_more(accounts[account_id])
        metrics.TAKEN_IN.labels("taken_in").inc(len(arrivals))

    async def _set_aside(self, undecodable: Sequence[tuple[ConsumedMessage, Undecodable]]) -> None:
        """What cannot be read goes to the dead letters as it is, with the reason; it never stops a partition."""
        letters = [self._letters.undecodable(delivery, error) for delivery, error in undecodable]

        async def step() -> None:
            await self._publisher.publish(self._letters.topic, letters)

        await keep_trying(step, name="dead_letters", clock=self._clock, outages=(LogUnavailable,))
        metrics.TAKEN_IN.labels("undecodable").inc(len(letters))
        metrics.DEAD_LETTERS.inc(len(letters))
        for delivery, error in undecodable:
            _log.error("message.undecodable", partition=delivery.partition, offset=delivery.offset, error=str(error))


def _decode(
    deliveries: Sequence[ConsumedMessage],
) -> tuple[list[Received], list[Asked], list[tuple[ConsumedMessage, Undecodable]]]:
    received: list[Received] = []
    cancellations: list[Asked] = []
    undecodable: list[tuple[ConsumedMessage, Undecodable]] = []
    for delivery in deliveries:
        try:
            if is_cancellation(delivery.message):
                cancellations.append((delivery, decode_cancellation(delivery.message)))
            else:
                received.append((delivery, *decode_with_text(delivery.message)))
        except Undecodable as error:
            undecodable.append((delivery, error))
    return received, cancellations, undecodable
