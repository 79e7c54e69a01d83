"""Messages of the requests topic become rows of the store and work of the account queues.

Intake comes before push: it stores a batch of messages durably, then commits their offsets. From then on the store owns the
work, so a slow PMS never holds up a partition. Rows that do not fit in a queue stay in the store until they are claimed (`due`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import structlog

from forwarder.observability import metrics
from forwarder.process.clock import Clock, iso
from forwarder.process.containment import FAULTS, Blame, Fault, Where, as_fault, by_halves
from forwarder.process.loops import CROWD, keep_trying
from forwarder.reservation.cancellation import CancellationRequest
from forwarder.reservation.duplicates import CONFLICTING_BODY
from forwarder.reservation.failures import FAILURE_CLASS, OTHER
from forwarder.reservation.submission import Submission
from forwarder.store.submissions.port import Arrival, ConflictingBody, Duplicate, StoreUnavailable, Unstorable, Work
from forwarder.tenancy.port import DEFAULT_DEADLINE_SECONDS, Account, TenancyUnavailable
from forwarder.topics.codec import (
    Undecodable,
    decode_cancellation,
    decode_with_text,
    encode_conflict,
    encode_duplicate,
    header,
    is_cancellation,
    replay_revision,
)
from forwarder.topics.port import ConsumedMessage, Consumer, LogUnavailable, Message
from forwarder.topics.signing import MessageSigner
from forwarder.worker.cancellations import CancellationIntake
from forwarder.worker.cards import CardVault
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.outbox import DeadLetterWriter, Forged, place_only
from forwarder.worker.parts import WorkerParts

_log = structlog.get_logger(__name__)


_OUTAGES = (StoreUnavailable, TenancyUnavailable, LogUnavailable)

STALLED_SECONDS = 30.0
_LOOK_SECONDS = 5.0


class _Received(NamedTuple):
    """A message, the submission that it brought, and the text of its request where it has that."""

    message: ConsumedMessage
    submission: Submission
    request: bytes | None


_Arrived = tuple[ConsumedMessage, _Received | CancellationRequest | None]
"""A message and its decoded content; None if decoding raised an unexpected exception."""

_Foreign = tuple[ConsumedMessage, Undecodable | Forged | Fault]
"""A message to set aside, with the error."""


@dataclass(slots=True)
class _Allotment:
    """One account's part of a batch: how many of its rows may be held now, and what their pushes carry. No account: none."""

    account: Account | None
    deadline_seconds: int = DEFAULT_DEADLINE_SECONDS
    room: int = 0
    target: str | None = None

    def take(self) -> bool:
        """Counts one more held row; False if there is no room."""
        if self.room <= 0:
            return False
        self.room -= 1
        return True


class IntakeWatch:
    """Watches one worker. `doing`: the operation that intake is about to wait for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._went_on_at = clock.monotonic()
        self._stalled = False
        self.doing = "join"

    @property
    def stalled_seconds(self) -> float:
        """For how long intake has not gone on."""
        return self._clock.monotonic() - self._went_on_at

    @property
    def stalled(self) -> bool:
        """Whether intake has been stuck for too long."""
        return self.stalled_seconds >= STALLED_SECONDS

    def went_on(self) -> None:
        """Records progress: a batch is through, or no message came."""
        self._went_on_at = self._clock.monotonic()

    async def look(self) -> None:
        """Updates the metric, logs a change, then pauses."""
        seconds = self.stalled_seconds
        metrics.INTAKE_STALLED_SECONDS.set(seconds if seconds > 2 * _LOOK_SECONDS else 0)
        if self.stalled != self._stalled:
            self._stalled = self.stalled
            if self._stalled:
                _log.error("intake.stalled", seconds=round(seconds, 1), at=self.doing)
            else:
                _log.info("intake.went_on")
        await self._clock.sleep(_LOOK_SECONDS)


class Intake:
    """Ingests the messages of one consumer."""

    def __init__(
        self,
        parts: WorkerParts,
        dispatcher: Dispatcher,
        lease: Lease,
        letters: DeadLetterWriter,
        watch: IntakeWatch,
        cards: CardVault,
    ) -> None:
        self._recorder = parts.recorder
        self._directory = parts.directory
        self._dispatcher = dispatcher
        self._lease = lease
        self._publisher = parts.publisher
        self._results_topic = parts.topics.results
        self._letters = letters
        self._watch = watch
        self._cards = cards
        self._signer = parts.signer
        self._clock = parts.clock
        self._settings = parts.settings
        self._cancellations = CancellationIntake(parts, dispatcher, lease)
        self._blame = Blame(Where.INTAKE, parts.clock.sleep)

    async def ingest_next(self, consumer: Consumer) -> None:
        """Ingests one batch: receive, store, offer to the account queues, commit. Sets aside messages that cannot be decoded or
        stored, and those that raise though others succeed: retrying them with the rest would block the partition permanently.
        Raises `LogUnavailable`; and `Unworkable` if none succeeds: then it commits no offset."""
        self._watch.doing = "receive"
        messages = await consumer.receive(
            max_messages=self._settings.intake_batch, wait_seconds=self._settings.intake_wait_seconds
        )
        if not messages:
            return
        self._watch.doing = "store"
        arrived: list[_Arrived] = []
        foreign: list[_Foreign] = []
        for message in messages:
            try:
                arrived.append((message, _decode(message, self._signer)))
            except (Undecodable, Forged) as error:
                foreign.append((message, error))
            except FAULTS as error:
                as_fault(error)
                arrived.append((message, None))
        if foreign:
            await self._set_aside(foreign)

        async def take_in(some: Sequence[_Arrived]) -> None:
            read = [(message, content or _decode(message, self._signer)) for message, content in some]
            # Cancellations first: a submission cancelled in the same batch is neither held nor sent.
            await self._cancellations.ingest(
                [(message, content) for message, content in read if isinstance(content, CancellationRequest)]
            )
            received = [content for _, content in read if isinstance(content, _Received)]
            if received:
                insert, outages = partial(self._insert, received), (StoreUnavailable, TenancyUnavailable)
                await keep_trying(insert, name=Where.INTAKE, clock=self._clock, outages=outages)

        async def refused(each: _Arrived, error: Exception) -> None:
            await self._set_aside([(each[0], Undecodable(f"the store cannot hold it: {error}"))])

        async def set_aside(each: _Arrived, fault: Fault) -> None:
            await self._set_aside([(each[0], fault)])

        await by_halves(
            take_in,
            arrived,
            where=Where.INTAKE,
            set_aside=set_aside,
            outages=_OUTAGES,
            refusals=(Unstorable,),
            refused=refused,
            blame=self._blame,
        )
        self._watch.doing = "commit"
        await consumer.commit(messages)
        if CROWD <= len(messages) < self._settings.intake_batch:
            await self._clock.sleep(self._settings.pause_seconds)

    async def _insert(self, received: Sequence[_Received]) -> None:
        repeated, conflicts = list[Duplicate](), list[ConflictingBody]()
        with self._dispatcher.reserving() as reserve:
            counts = Counter(each.submission.account_id for each in received)
            allotments = {key: await self._allotment(key, count, reserve) for key, count in counts.items()}
            arrivals = [self._arrival(each, allotments[each.submission.account_id]) for each in received]
            carded = {each.submission.request_id: each for each in arrivals if each.submission.card is not None}
            if carded:  # their cards are resealed for the rows; those ingested before need none
                resealed = await self._cards.reseal(list(carded.values()))
                arrivals = [resealed.get(each.submission.request_id, each) for each in arrivals]
            now = self._clock.now()
            works = await self._lease.claim(
                lambda worker_id: self._recorder.ingest(
                    worker_id, arrivals, now=now, on_duplicate=repeated.append, on_conflict=conflicts.append
                )
            )
            accounts = {key: each.account for key, each in allotments.items() if each.account is not None}
            self._offer(works, arrivals, accounts)
        if repeated:
            await self._tell_of(repeated)
        if conflicts:
            await self._announce(conflicts)

    async def _tell_of(self, repeated: Sequence[Duplicate]) -> None:
        """Points requests that wait for a duplicate's outcome to the original. During an outage of the log they learn it from
        the status."""
        for each in repeated:
            request_id, original = each.submission.request_id, each.duplicate_of
            if each.replayed:
                _log.warning("replay.refused", request_id=request_id, duplicate_of=original)
            else:
                _log.info("submission.duplicate", request_id=request_id, duplicate_of=original)
        metrics.TAKEN_IN.labels("duplicate").inc(len(repeated))
        time = iso(self._clock.now())
        events = [encode_duplicate(each.submission, each.duplicate_of, time) for each in repeated if not each.replayed]
        try:
            await self._publisher.publish(self._results_topic, events)
        except LogUnavailable as error:
            _log.warning("duplicates.not_told", count=len(events), error=str(error))

    async def _announce(self, conflicts: Sequence[ConflictingBody]) -> None:
        """Publishes that the conflicting bodies were not made. The store has recorded it, whether or not the event is published."""
        for each in conflicts:
            submission = each.submission
            _log.error(
                "submission.conflicting_body", request_id=submission.request_id, account_id=submission.account_id
            )
        metrics.TAKEN_IN.labels(CONFLICTING_BODY).inc(len(conflicts))
        time = iso(self._clock.now())
        events = [encode_conflict(each.submission, time) for each in conflicts]

        async def step() -> None:
            await self._publisher.publish(self._results_topic, events)

        await keep_trying(step, name=Where.CONFLICTS, clock=self._clock, outages=(LogUnavailable,))

    async def _allotment(self, account_id: str, count: int, reserve: Callable[[Account, int], int]) -> _Allotment:
        account = await self._directory.account(account_id)
        if account is None:
            return _Allotment(None)
        room = reserve(account, count) if self._lease.held() else 0
        return _Allotment(account, account.deadline_seconds, room, self._dispatcher.target(account))

    def _arrival(self, received: _Received, allotment: _Allotment) -> Arrival:
        message, submission, request = received
        longest = allotment.deadline_seconds
        replay_of = replay_revision(message.message, submission)
        if replay_of is None:
            seconds = min(longest, submission.deadline_seconds or longest)
            deadline_at = submission.accepted_at + timedelta(seconds=seconds)
        else:
            # The operator who replays it wants it made, however late.
            deadline_at = self._clock.now() + timedelta(seconds=longest)
        return Arrival(
            submission,
            message.partition,
            deadline_at,
            allotment.take(),
            offset=message.offset,
            timestamp_ms=message.timestamp_ms,
            replay_of=replay_of,
            size=len(message.message.value),
            request=request,
            target=allotment.target,
        )

    def _offer(self, works: Sequence[Work], arrivals: Sequence[Arrival], accounts: Mapping[str, Account]) -> None:
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

    async def _set_aside(self, foreign: Sequence[_Foreign]) -> None:
        """Publishes foreign messages as dead letters, unchanged, with the reason; they never stop a partition. If the log
        refuses a letter for its size, publishes one with the message's place on the requests topic."""
        letters = [self._letters.set_aside(message, error) for message, error in foreign]

        async def publish(letters: Sequence[Message]) -> None:
            step = partial(self._publisher.publish, self._letters.topic, letters)
            await keep_trying(step, name=Where.DEAD_LETTERS, clock=self._clock, outages=(LogUnavailable,))

        async def publish_place(letter: Message, _fault: Fault) -> None:
            await publish([place_only(letter)])

        await by_halves(publish, letters, where=Where.DEAD_LETTERS, set_aside=publish_place)
        classes = Counter(header(letter.headers, FAILURE_CLASS) or OTHER for letter in letters)
        for failure_class, count in classes.items():
            metrics.dead_letters(failure_class).inc(count)
            note = partial(self._recorder.note_set_aside, failure_class, count, now=self._clock.now())
            await keep_trying(note, name=Where.DEAD_LETTERS, clock=self._clock, outages=(StoreUnavailable,))
        for message, error in foreign:
            partition, offset = message.partition, message.offset
            if isinstance(error, Fault):
                metrics.TAKEN_IN.labels("internal_error").inc()
                _log.error("message.set_aside", partition=partition, offset=offset, error_id=error.id)
            elif isinstance(error, Forged):
                metrics.TAKEN_IN.labels("forged").inc()
                _log.error("message.forged", partition=partition, offset=offset, error=str(error))
            else:
                metrics.TAKEN_IN.labels("undecodable").inc()
                _log.error("message.undecodable", partition=partition, offset=offset, error=str(error))


def _decode(message: ConsumedMessage, signer: MessageSigner) -> _Received | CancellationRequest:
    """The submission or cancellation in `message`. Raises `Undecodable`, `Forged`."""
    if is_cancellation(message.message):
        request = decode_cancellation(message.message)
        _require_signed(message.message, signer)
        return request
    submission, text = decode_with_text(message.message)
    _require_signed(message.message, signer)
    return _Received(message, submission, text)


def _require_signed(message: Message, signer: MessageSigner) -> None:
    """Write access to the topic is not enough to forge a message: it also takes the signing key."""
    if not signer.verifies(message):
        raise Forged("no process of this deployment signed it as it is")
