"""Messages of the requests topic become rows of the store and work of the account queues.

Intake comes before push: it stores a batch of messages durably, then commits their offsets. From then on the store owns the
work, so a slow PMS never holds up a partition. Rows that do not fit in a queue stay in the store until they are claimed (`due`).
A push that its PMS could not recognise when it is repeated waits for the commit (`Commits`): what may have been sent lies before
the committed offset, and a recovery finds it there, even if a failover lost the row and the worker died.

A cancellation is noted durably on its submission before its offset is committed. Rows that wait in an account queue are given back
then, and so are those under way that were not sent yet, so that none is sent in ignorance of its cancellation. The ingress
publishes a cancellation to the partition of its submission, whose worker holds the row. Where it could not (an id derived from an
idempotency key that no worker had ingested, a release before 0.2, a topic that was given more partitions), the worker that ingests
it notes it and passes it on to that partition.
"""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

import structlog

from forwarder.observability import metrics
from forwarder.process.clock import Clock, iso
from forwarder.process.loops import CROWD, FAULTS, Blame, Fault, Where, as_fault, by_halves, detached, keep_trying
from forwarder.reservation.outcome import FAILURE_CLASS, OTHER, CancellationRequest
from forwarder.reservation.submission import CONFLICTING_BODY, Submission
from forwarder.store.submissions.port import (
    UNCHECKED,
    Arrival,
    CancellationArrival,
    Duplicate,
    StoreUnavailable,
    Unstorable,
    Work,
)
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
from forwarder.worker.cards import CardVault
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.recorder import DeadLetterWriter, Forged, place_only
from forwarder.worker.parts import WorkerParts

_log = structlog.get_logger(__name__)

_OUTAGES = (StoreUnavailable, TenancyUnavailable, LogUnavailable)

STALLED_SECONDS = 30.0
_LOOK_SECONDS = 5.0

_PASSED_ON: Final = "passed-on"  # the header of a cancellation that was passed on to the partition of its submission


class _Received(NamedTuple):
    """`request`: its text, where the message has that."""

    message: ConsumedMessage
    submission: Submission
    request: bytes | None


_Arrived = tuple[ConsumedMessage, _Received | CancellationRequest | None]
"""A message and its decoded content; None if decoding raised an unexpected exception."""


class IntakeWatch:
    """Watches one worker. `doing`: the operation that intake is about to wait for."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._went_on_at, self._stalled, self.doing = clock, clock.monotonic(), False, "join"

    @property
    def stalled(self) -> bool:
        return self._clock.monotonic() - self._went_on_at >= STALLED_SECONDS

    def went_on(self) -> None:
        self._went_on_at = self._clock.monotonic()

    async def look(self) -> None:
        seconds = self._clock.monotonic() - self._went_on_at
        metrics.INTAKE_STALLED_SECONDS.set(seconds if seconds > 2 * _LOOK_SECONDS else 0)
        if self.stalled != self._stalled:
            self._stalled = self.stalled
            if self._stalled:
                _log.error("intake.stalled", seconds=round(seconds, 1), at=self.doing)
            else:
                _log.info("intake.went_on")
        await self._clock.sleep(_LOOK_SECONDS)


class Commits:
    """The offsets that a worker has to commit. They gather for half a second, because a commit costs as much as some dozens of
    messages; where a push waits for one, it comes at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._consumer: Consumer | None = None  # the last one that something was noted of
        self._last: dict[int, ConsumedMessage] = {}  # by partition
        self._stored: set[str] = set()  # request ids of the batch that is being ingested
        self._noted: set[str] = set()
        self._under_way: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._wanted, self._due = False, -math.inf
        self._failed: Exception | None = None

    def expect(self, request_ids: Collection[str]) -> None:
        """Rows with these ids are in the store, and are being put into queues."""
        self._stored.update(request_ids)

    async def note(self, consumer: Consumer, messages: Sequence[ConsumedMessage]) -> None:
        """These are ingested, and their offsets may be committed. Raises what the commit before raised, as `LogUnavailable`."""
        self._consumer = consumer
        self._last |= {each.partition: each for each in sorted(messages, key=attrgetter("offset"))}
        self._noted, self._stored = self._noted | self._stored, set()
        if self._wanted or self._clock.monotonic() >= self._due:
            self._begin()
        self._raise()

    async def committed(self, request_id: str) -> None:
        """Returns once the offset of that message is committed, or could not be: the log is away then, and pushes go on."""
        while request_id in self._stored or request_id in self._noted or request_id in self._under_way:
            self._wanted = self._wanted or request_id not in self._under_way
            self._begin()
            await self._ended.wait()

    async def rest(self) -> None:
        """Commits all that is ingested. Raises as `note` does."""
        while self._last or self._task is not None:
            self._begin()
            await self._ended.wait()
        self._raise()

    async def leave(self) -> None:
        """Commits the rest before partitions are given up. What cannot be committed will be received again."""
        try:
            with suppress(LogUnavailable):
                await self.rest()
        finally:
            self._last, self._stored, self._noted = {}, set(), set()
            self._end()

    def _begin(self) -> None:
        if self._last and self._task is None:
            self._wanted = False
            last, self._last = self._last, {}
            self._under_way, self._noted = self._noted, set()
            self._task = detached(self._commit([*last.values()]))

    async def _commit(self, messages: Sequence[ConsumedMessage]) -> None:
        try:
            if self._consumer is not None:
                await self._consumer.commit(messages)
        except Exception as error:  # noqa: BLE001 - `note` or `rest` raises it
            self._failed = error
        finally:
            self._task, self._under_way = None, set()
            self._due = self._clock.monotonic() + 0.5
            self._end()
            if self._wanted:
                self._begin()

    def _end(self) -> None:
        self._ended.set()
        self._ended = asyncio.Event()

    def _raise(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed


@dataclass(eq=False, repr=False)
class Intake:
    """Ingests the messages of one consumer. `sure`: see `StoreWatch`."""

    parts: WorkerParts
    dispatcher: Dispatcher
    lease: Lease
    cards: CardVault
    commits: Commits
    sure: Callable[[], Awaitable[bool]]

    def __post_init__(self) -> None:
        self.watch = IntakeWatch(self.parts.clock)
        self._letters = DeadLetterWriter(self.parts.topics, self.parts.settings.group)
        self._blame = Blame(Where.INTAKE, self.parts.clock.sleep)

    async def ingest_next(self, consumer: Consumer) -> None:
        """Ingests one batch: receive, store, offer to the account queues, commit. Sets aside messages that cannot be decoded or
        stored, and those that raise though others succeed: retrying them with the rest would block the partition permanently.
        Raises `LogUnavailable`; and `Unworkable` if none succeeds: then it commits no offset."""
        settings = self.parts.settings
        self.watch.doing = "receive"
        messages = await consumer.receive(max_messages=settings.intake_batch, wait_seconds=settings.intake_wait_seconds)
        if not messages:
            await self.commits.rest()
            return
        self.watch.doing = "store"
        arrived, foreign = list[_Arrived](), list[tuple[ConsumedMessage, Exception | Fault]]()
        for message in messages:
            try:
                arrived.append((message, self._decode(message)))
            except (Undecodable, Forged) as error:
                foreign.append((message, error))
            except FAULTS as error:
                as_fault(error)
                arrived.append((message, None))
        if foreign:
            await self._set_aside(foreign)

        async def take_in(some: Sequence[_Arrived]) -> None:
            read = [(message, content or self._decode(message)) for message, content in some]
            # Cancellations first: a submission cancelled in the same batch is neither held nor sent.
            cancelling = [(one, content) for one, content in read if isinstance(content, CancellationRequest)]
            await self.ingest_cancellations(cancelling)
            received = [content for _, content in read if isinstance(content, _Received)]
            if received:
                insert, outages = partial(self._insert, received), (StoreUnavailable, TenancyUnavailable)
                await keep_trying(insert, name=Where.INTAKE, clock=self.parts.clock, outages=outages)

        await by_halves(
            take_in,
            arrived,
            where=Where.INTAKE,
            set_aside=lambda each, fault: self._set_aside([(each[0], fault)]),
            outages=_OUTAGES,
            refusals=(Unstorable,),
            refused=lambda each, error: self._set_aside([(each[0], Undecodable(f"the store cannot hold it: {error}"))]),
            blame=self._blame,
        )
        self.watch.doing = "commit"
        await self.commits.note(consumer, messages)
        if CROWD <= len(messages) < settings.intake_batch:
            await self.parts.clock.sleep(settings.pause_seconds)

    async def ingest_cancellations(self, received: Sequence[tuple[ConsumedMessage, CancellationRequest]]) -> None:
        """Returns once each is durable, and with the worker that holds its row. Raises `Unstorable`: then none is."""
        requests = [request for _, request in received]

        async def step() -> None:
            found = [await self.parts.directory.account(each) for each in {request.account_id for request in requests}]
            accounts = {account.id: account for account in found if account is not None}
            now, arrivals = self.parts.clock.now(), []
            for request in requests:
                account = accounts.get(request.account_id)
                seconds = DEFAULT_DEADLINE_SECONDS if account is None else account.deadline_seconds
                arrivals.append(CancellationArrival(request, now + timedelta(seconds=seconds)))
            self.dispatcher.being_cancelled = {request.request_id for request in requests}
            try:
                noted = await self.parts.recorder.request_cancellations(arrivals, now=now)
                # Rows under way go no further; those that wait in a queue and do not show their cancellation are given back.
                ours = (on.request_id for on in noted.values() if on.held_by == self.lease.worker_id)
                self.dispatcher.cancelled.update(ours)
                unaware = lambda work: work.cancellation is None and work.submission.request_id in noted  # noqa: E731
                await self.lease.give_back_queued(partial(self.dispatcher.withdraw, unaware))
            finally:
                self.dispatcher.being_cancelled = ()
            # Those of rows that other workers hold go to the partitions of these; once, wherever that leads.
            passed_on: list[Message] = []
            for consumed, request in received:
                on, message = noted.get(request.request_id), consumed.message
                if on is None or on.held_by in {None, self.lease.worker_id} or on.partition == consumed.partition:
                    continue
                if header(message.headers, _PASSED_ON) is None:
                    headers = (*message.headers, (_PASSED_ON, b"1"))
                    passed_on.append(replace(message, headers=headers, partition=on.partition))
            if passed_on:
                await self.parts.publisher.publish(self.parts.topics.requests, passed_on)
                _log.info("cancellations.passed_on", count=len(passed_on))
            # Look at once, so that a due cancellation does not wait for the next sweep.
            for account in accounts.values():
                self.dispatcher.note_more(account)
            self.dispatcher.refill_wanted.set()

        if requests:
            await keep_trying(step, name=Where.CANCELLATIONS, clock=self.parts.clock, outages=_OUTAGES)
            metrics.TAKEN_IN.labels("cancellation").inc(len(requests))
            for request in requests:
                _log.info("cancellation.ingested", request_id=request.request_id, account_id=request.account_id)

    def _decode(self, consumed: ConsumedMessage) -> _Received | CancellationRequest:
        """The submission or cancellation in a message. Raises `Undecodable`, and `Forged` without this deployment's signature."""
        message = consumed.message
        cancels = is_cancellation(message)
        content = decode_cancellation(message) if cancels else _Received(consumed, *decode_with_text(message))
        if not self.parts.signer.verifies(message):
            raise Forged("no process of this deployment signed it as it is")
        return content

    async def _insert(self, received: Sequence[_Received]) -> None:
        # In a database that lost the last seconds, what is sent again looks new; a recovery must find that in the log alone.
        changes = self.parts.recorder.identity.changes
        if not await self.sure():
            raise StoreUnavailable(UNCHECKED)
        repeated, conflicts = list[Duplicate](), list[Submission]()
        accounts, targets, room = dict[str, Account](), dict[str, str | None](), Counter[str]()
        with self.dispatcher.reserving() as reserve:
            for account_id, count in Counter(each.submission.account_id for each in received).items():
                account = await self.parts.directory.account(account_id)
                if account is not None:
                    accounts[account_id] = account
                    targets[account_id] = self.dispatcher.target(account)
                    room[account_id] = reserve(account, count) if self.lease.held() else 0
            arrivals = []
            for each in received:
                account_id = each.submission.account_id
                held = room[account_id] > 0
                room[account_id] -= held
                account, target = accounts.get(account_id), targets.get(account_id)
                arrivals.append(self._arrival(each, account, target, held=held))
            # Cards are resealed for new rows. Of several messages under one id only the first gets a row.
            firsts = {each.submission.request_id: each for each in reversed(arrivals)}
            if carded := [each for each in firsts.values() if each.submission.card is not None]:
                resealed = await self.cards.reseal(carded)
                found = ((each, each.submission.request_id) for each in arrivals)
                arrivals = [resealed.get(key, each) if each is firsts[key] else each for each, key in found]
            ingest = partial(self.parts.recorder.ingest, arrivals=arrivals, now=self.parts.clock.now(), changes=changes)
            self.commits.expect([each.submission.request_id for each in received])
            works = await self.lease.claim(partial(ingest, on_duplicate=repeated.append, on_conflict=conflicts.append))
            by_account: dict[str, list[Work]] = defaultdict(list)
            for work in works:
                by_account[work.submission.account_id].append(work)
            for account_id, theirs in by_account.items():
                for work_id in self.dispatcher.offer(accounts[account_id], theirs):
                    self.lease.note_unpushed(work_id)
            for account_id in {arrival.submission.account_id for arrival in arrivals if not arrival.held}:
                if account_id in accounts:
                    self.dispatcher.note_more(accounts[account_id])
            metrics.TAKEN_IN.labels("taken_in").inc(len(arrivals))
        if repeated:
            await self._tell_of(repeated)
        if conflicts:
            await self._announce(conflicts)

    async def _tell_of(self, repeated: Sequence[Duplicate]) -> None:
        """Points requests that wait for a duplicate's outcome to the original. In an outage of the log the status tells them."""
        for each in repeated:
            request_id, original = each.submission.request_id, each.duplicate_of
            if each.replayed:
                _log.warning("replay.refused", request_id=request_id, duplicate_of=original)
            else:
                _log.info("submission.duplicate", request_id=request_id, duplicate_of=original)
        metrics.TAKEN_IN.labels("duplicate").inc(len(repeated))
        time = iso(self.parts.clock.now())
        events = [encode_duplicate(each.submission, each.duplicate_of, time) for each in repeated if not each.replayed]
        try:
            await self.parts.publisher.publish(self.parts.topics.results, events)
        except LogUnavailable as error:
            _log.warning("duplicates.not_told", count=len(events), error=str(error))

    async def _announce(self, conflicts: Sequence[Submission]) -> None:
        """Publishes that the conflicting bodies were not made. The store has recorded it, whether or not the event is published."""
        for each in conflicts:
            _log.error("submission.conflicting_body", request_id=each.request_id, account_id=each.account_id)
        metrics.TAKEN_IN.labels(CONFLICTING_BODY).inc(len(conflicts))
        time = iso(self.parts.clock.now())
        events = [encode_conflict(each, time) for each in conflicts]
        step = partial(self.parts.publisher.publish, self.parts.topics.results, events)
        await keep_trying(step, name=Where.CONFLICTS, clock=self.parts.clock, outages=(LogUnavailable,))

    def _arrival(self, received: _Received, account: Account | None, target: str | None, *, held: bool) -> Arrival:
        message, submission, request = received
        longest = DEFAULT_DEADLINE_SECONDS if account is None else account.deadline_seconds
        replay_of = replay_revision(message.message, submission)
        seconds, since = min(longest, submission.deadline_seconds or longest), submission.accepted_at
        if replay_of is not None:  # the operator who replays it wants it made, however late
            seconds, since = longest, self.parts.clock.now()
        return Arrival(
            submission,
            message.partition,
            since + timedelta(seconds=seconds),
            held,
            offset=message.offset,
            timestamp_ms=message.timestamp_ms,
            replay_of=replay_of,
            size=len(message.message.value),
            request=request,
            target=target,
        )

    async def _set_aside(self, foreign: Sequence[tuple[ConsumedMessage, Exception | Fault]]) -> None:
        """Publishes foreign messages as dead letters, unchanged, with the reason; where the log refuses one, only its place."""
        letters, clock = [self._letters.set_aside(message, error) for message, error in foreign], self.parts.clock

        async def publish(letters: Sequence[Message]) -> None:
            step = partial(self.parts.publisher.publish, self.parts.topics.dead_letters, letters)
            await keep_trying(step, name=Where.DEAD_LETTERS, clock=clock, outages=(LogUnavailable,))

        await by_halves(publish, letters, where=Where.DEAD_LETTERS, set_aside=lambda one, _: publish([place_only(one)]))
        for failure_class, count in Counter(header(each.headers, FAILURE_CLASS) or OTHER for each in letters).items():
            metrics.DEAD_LETTERS.labels(failure_class).inc(count)
            metrics.TAKEN_IN.labels(failure_class).inc(count)
            note = partial(self.parts.recorder.note_set_aside, failure_class, count, now=clock.now())
            await keep_trying(note, name=Where.DEAD_LETTERS, clock=clock, outages=(StoreUnavailable,))
        for message, error in foreign:
            partition, offset = message.partition, message.offset
            if isinstance(error, Fault):
                _log.error("message.set_aside", partition=partition, offset=offset, error_id=error.id)
            elif isinstance(error, Forged):
                _log.error("message.forged", partition=partition, offset=offset, error=str(error))
            else:
                _log.error("message.undecodable", partition=partition, offset=offset, error=str(error))
