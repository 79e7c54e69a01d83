"""Publishes submissions to the log, and waits for its acknowledgement; but not what was published before, by its idempotency key or
by its content.

By key: a submission in the store, or acknowledged by the log a few seconds ago, is answered with its receipt. One that was
acknowledged longer ago and is not in the store yet is published again under the same id, of which workers ingest only the first: so
a submission that the log has lost meanwhile is recovered. One that a rule would refuse today is not published again: it has its
receipt as long as it is remembered. Another body under a key is refused here if the key is known, otherwise by the worker.

By content: a cache that decides nothing by itself. A recognised submission is answered with the earlier one's receipt only if the
store has the earlier one and it may still lead to a reservation; anything else goes to the log, where the worker that ingests it
decides in order. So no submission is dropped if the log or the store lost one that is remembered here."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import structlog

from forwarder.ingress import responses
from forwarder.ingress.message import IngressParts, NewSubmission
from forwarder.ingress.responses import Receipt, key_reused, receipt_of
from forwarder.observability.metrics import DEFERRED, PUBLISH_SECONDS
from forwarder.process.clock import Clock, iso
from forwarder.process.loops import TimeSlice
from forwarder.process.shares import Shares
from forwarder.reservation import problems as catalogue
from forwarder.reservation.outcome import CancellationStatus, Status
from forwarder.reservation.problems import Problem
from forwarder.reservation.submission import MAX_SIMILAR, Earlier, NaturalKey, differing_fields
from forwarder.store.lists.port import StoredSubmission
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.topics.port import LogUnavailable, Message, MessageTooLarge

if TYPE_CHECKING:
    from forwarder.store.lists.reader import Reader

_BELIEVED_SECONDS: Final = 5.0
"""How long after the acknowledgement the log is trusted to have it. Publishing a later repeat once more costs little."""


@dataclass(slots=True)
class _Recent:
    """The state of a key. `acknowledged_as`: the `accepted_at` that the log acknowledged first; `publishing_as`: that of the
    publishes in flight, `under_way` of them, None once they failed. `since`, `acknowledged_at`: when it first came, and was
    acknowledged last."""

    fingerprint: str
    since: float
    acknowledged_at: float = float("-inf")
    acknowledged_as: str | None = None
    publishing_as: str | None = None
    under_way: int = 0


class PublishAttempt:
    """A submission to publish now. Leave it (by `with`) once that ended; it counts as failed unless `acknowledged` was called."""

    __slots__ = ("_clock", "_recent", "accepted_at", "receipt")

    def __init__(self, recent: _Recent, submission: NewSubmission, clock: Clock) -> None:
        self._recent, self._clock = recent, clock
        acknowledged, accepted_at = recent.acknowledged_as, recent.acknowledged_as or submission.accepted_at
        self.receipt = None if acknowledged is None else Receipt(submission.request_id, acknowledged, replayed=True)
        """The receipt if the log acknowledged the submission before: valid even if this publish fails."""
        # Concurrent publishes use the same moment, so that it does not matter whose message the worker ingests. The moment of a
        # failed publish is not reused: the deadline counts from it, and it may be long ago.
        self.accepted_at = recent.publishing_as = recent.publishing_as or accepted_at
        recent.under_way += 1

    def acknowledged(self) -> str:
        """Call once the log has acknowledged it. Returns the `accepted_at` that every caller gets."""
        self._recent.acknowledged_as = self._recent.acknowledged_as or self.accepted_at
        self._recent.acknowledged_at = self._clock.monotonic()
        return self._recent.acknowledged_as

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._recent.under_way -= 1
        if self._recent.publishing_as == self.accepted_at:
            self._recent.publishing_as = None


_Found = Receipt | Problem | PublishAttempt


class IdempotencyCache:
    """Looks up keyed submissions. Remembers the last `max_remembered` of this process that are not in the store yet, for ten
    minutes, and all that are being published. A key that comes again at another process is left for the worker."""

    def __init__(self, reader: "Reader", clock: Clock, max_remembered: int) -> None:
        self._reader, self._clock, self._max_remembered = reader, clock, max_remembered
        self._recent: OrderedDict[str, _Recent] = OrderedDict()

    async def look_up_all(self, account_id: str, submissions: Sequence[NewSubmission]) -> Sequence[_Found]:
        """For each of the account's `submissions`: its receipt, if it is safe already; the refusal, if its key belongs to another;
        or else the attempt to publish it. Of two with the same key, the second repeats the first. Raises `StoreUnavailable`."""
        if len(submissions) == 1:  # nearly always, and the store has a cheaper query for it
            (one,) = submissions
            return [self._decide(one, await self._reader.submission(account_id, one.request_id))]
        wanted = {submission.request_id for submission in submissions}
        stored = await self._reader.submissions(account_id, wanted) if wanted else {}
        return [self._decide(submission, stored.get(submission.request_id)) for submission in submissions]

    def _decide(self, submission: NewSubmission, stored: StoredSubmission | None) -> _Found:
        if stored is not None:
            same = stored.fingerprint == submission.fingerprint
            duplicate = stored.request_id != submission.request_id
            receipt = receipt_of(stored)._replace(duplicate=duplicate, replayed=True)
            return receipt if same else key_reused(submission.request_id)
        if submission.refused is not None and submission.request_id not in self._recent:
            return submission.refused
        recent = self._remembered(submission)
        if recent.fingerprint != submission.fingerprint:
            return key_reused(submission.request_id)
        fresh = self._clock.monotonic() - recent.acknowledged_at < _BELIEVED_SECONDS
        if recent.acknowledged_as is not None and (fresh or submission.refused is not None):
            return Receipt(submission.request_id, recent.acknowledged_as, replayed=True)
        return submission.refused or PublishAttempt(recent, submission, self._clock)

    def _remembered(self, submission: NewSubmission) -> _Recent:
        """The state of this key; begins one for this submission if there is none. Kept even if the log then fails: the log may have
        stored a message without acknowledging it, and another body under the key would be lost behind it."""
        now = self._clock.monotonic()
        known = self._recent.get(submission.request_id)
        expired = known is not None and not known.under_way and known.since < now - 600  # ten minutes
        if expired and submission.refused is None:
            del self._recent[submission.request_id]
        recent = self._recent.setdefault(submission.request_id, _Recent(submission.fingerprint, now))
        self._recent.move_to_end(submission.request_id)
        excess = len(self._recent) - self._max_remembered
        if excess > 0:
            # Keys in flight are usually among the newest, so this visits few.
            over = (known for known, one in self._recent.items() if not one.under_way and one is not recent)
            for request_id in list(islice(over, excess)):
                del self._recent[request_id]
        return recent


class _Accepted(NamedTuple):
    request_id: str
    natural: NaturalKey
    accepted_at: str


class RecentSubmissions:
    """The last submissions, `max_remembered` at the most and half as many at the least, and every cancellation since the oldest."""

    def __init__(self, reader: "Reader", max_remembered: int) -> None:
        self._reader, self._max_cancelled = reader, max_remembered
        self._max_each = max(max_remembered // 2, 1)
        # Two generations; the older is dropped whole. Keeping one dictionary in order would cost more per submission.
        self._newer: dict[str, tuple[_Accepted, ...]] = {}
        self._older: dict[str, tuple[_Accepted, ...]] = {}
        self._in_newer = 0
        self._cancelled: dict[str, datetime] = {}

    def note_cancelled(self, request_id: str, requested_at: datetime) -> None:
        if len(self._cancelled) >= self._max_cancelled:
            # Without its cancellation, a cancelled submission would answer the next one like it. So both are forgotten.
            self._cancelled, self._newer, self._older, self._in_newer = {}, {}, {}, 0
        self._cancelled[request_id] = requested_at

    def has_like(self, submission: NewSubmission) -> bool:
        same = None if submission.natural is None else submission.natural.same
        return same is not None and (same in self._newer or same in self._older)

    async def decide_all(self, account_id: str, submissions: Sequence[NewSubmission]) -> Sequence[Receipt | None]:
        """For each of the account's `submissions`, all without a key: the receipt of the earlier one that it repeats; None if it is
        new, or the worker has to decide. Queries the store once, or not at all if nothing similar is remembered."""
        found = [self._remembered(each.natural.same if each.natural else None) for each in submissions]
        if not any(found):
            return [None] * len(submissions)
        known = await self._stored(account_id, {each.request_id for alike in found for each in alike})
        receipts: list[Receipt | None] = [None] * len(submissions)
        for place, (submission, alike) in enumerate(zip(submissions, found, strict=True)):
            at, natural = datetime.fromisoformat(submission.accepted_at), submission.natural
            for accepted in alike:
                stored = known.get(accepted.request_id)
                if natural and stored and self._earlier(accepted, stored).is_repeated_by(natural, at):
                    changed = stored.fingerprint != submission.fingerprint
                    receipts[place] = receipt_of(stored)._replace(duplicate=True, changed=changed)
                    break
        return receipts

    async def refusal(self, submission: NewSubmission) -> Problem | None:
        """The refusal of a submission with the stay and guest of another that may lead to a reservation, and another body; not of a
        repeat. Knows those that no worker has ingested yet only from this process. Raises `StoreUnavailable`."""
        natural = submission.natural
        if natural is None or natural.stay is None or natural.stay == natural.same:
            return None
        stored = {each.request_id: each for each in await self._reader.similar(submission.account_id, natural.stay)}
        recent = {each.request_id: each for each in self._remembered(natural.stay) if each.request_id not in stored}
        ingested = await self._reader.submissions(submission.account_id, recent.keys()) if recent else {}
        earlier = list[Earlier]()
        for request_id, each in stored.items():
            at = self._cancelled_at(each.cancel_requested_at, [request_id], failed=each.cancellation_failed)
            keys = NaturalKey("", same=each.same_key, stay=natural.stay)  # with a stay, `same` is compared
            earlier.append(Earlier(request_id, keys, each.status, each.accepted_at, at))
        earlier += [self._earlier(each, None) for request_id, each in recent.items() if request_id not in ingested]
        similar = _similar_to(submission, earlier)
        if not similar:
            return None
        other = stored.get(similar[0])
        differing = () if other is None else differing_fields(submission.reservation, other.reservation)
        said = f" They differ in {', '.join(differing)}." if differing else ""
        return catalogue.SIMILAR_SUBMISSION.problem(
            f"The submission {similar[0]} is for the same stay and guest.{said} Nothing was accepted.",
            extra={"similarTo": [similar[0]], "differing": list(differing)},
        )

    async def remember_all(self, account_id: str, submissions: Sequence[NewSubmission]) -> Sequence[Sequence[str]]:
        """Remembers the account's `submissions`, just acknowledged. Returns for each the request ids of those remembered before it
        that have its stay and guest and may lead to a reservation; queries the store once if there are any."""
        found = [self._remember(each) for each in submissions]
        if not any(found):
            return [()] * len(submissions)
        wanted = {other.request_id for others in found for other in others}
        stored = await self._stored(account_id, wanted.difference(each.request_id for each in submissions))
        return [
            _similar_to(submission, [self._earlier(each, stored.get(each.request_id)) for each in others])
            for submission, others in zip(submissions, found, strict=True)
        ]

    def _remember(self, submission: NewSubmission) -> Sequence[_Accepted]:
        natural = submission.natural
        if natural is None or natural.same is None or natural.stay is None:
            return ()
        accepted = _Accepted(submission.request_id, natural, submission.accepted_at)
        if not submission.keyed:
            self._newer[natural.same] = (accepted,)
        others: Sequence[_Accepted] = ()
        if natural.stay != natural.same:
            newer, older = (
                [each for each in remembered.get(natural.stay, ()) if each.request_id != submission.request_id]
                for remembered in (self._newer, self._older)
            )
            others = [*newer, *older][:MAX_SIMILAR]
            # Without those of the older dictionary, which would never be dropped.
            self._newer[natural.stay] = (accepted, *newer[:MAX_SIMILAR])
        self._in_newer += 1
        if self._in_newer >= self._max_each:
            self._older, self._newer, self._in_newer = self._newer, {}, 0
        return others

    def _remembered(self, key: str | None) -> tuple[_Accepted, ...]:
        return () if key is None else self._newer.get(key, ()) + self._older.get(key, ())

    async def _stored(self, account_id: str, request_ids: set[str]) -> Mapping[str, StoredSubmission]:
        with suppress(StoreUnavailable):
            return await self._reader.submissions(account_id, request_ids) if request_ids else {}
        return {}

    def _earlier(self, accepted: _Accepted, stored: StoredSubmission | None) -> Earlier:
        """From the store, or as accepted if no worker has ingested it yet; with a later cancellation that was accepted here."""
        request_id = accepted.request_id if stored is None else stored.request_id
        cancellation = None if stored is None else stored.cancellation
        requested_at = None if cancellation is None else datetime.fromisoformat(cancellation.requested_at)
        came_to_nothing = {CancellationStatus.REFUSED, CancellationStatus.FAILED}
        failed = cancellation is not None and cancellation.status in came_to_nothing
        cancelled_at = self._cancelled_at(requested_at, [request_id, accepted.request_id], failed=failed)
        status, accepted_at = Status.PENDING if stored is None else stored.status, accepted.accepted_at
        return Earlier(request_id, accepted.natural, status, datetime.fromisoformat(accepted_at), cancelled_at)

    def _cancelled_at(self, stored_at: datetime | None, request_ids: Sequence[str], *, failed: bool) -> datetime | None:
        """`stored_at`, unless it `failed` or is None: then that of another one accepted here. The store keeps milliseconds."""
        if stored_at is not None and not failed:
            return stored_at
        noted = next((self._cancelled[each] for each in request_ids if each in self._cancelled), None)
        return noted if noted is not None and (stored_at is None or iso(noted) > iso(stored_at)) else None


def _similar_to(submission: NewSubmission, earlier: Sequence[Earlier]) -> Sequence[str]:
    """The request ids of those that `submission` is similar to; none if it repeats one: then it makes no reservation of its own."""
    natural = submission.natural
    if not earlier or natural is None:
        return ()
    at = datetime.fromisoformat(submission.accepted_at)
    if any(each.is_repeated_by(natural, at) for each in earlier):
        return ()
    return tuple(dict.fromkeys(each.request_id for each in earlier if each.is_similar_to(natural, at)))


_MAX_HINTED: Final = 10_000
_log = structlog.get_logger(__name__)


class SubmissionPublisher:
    """Publishes submissions. At most `max_in_flight` are not yet acknowledged, and of these each workspace has its share."""

    def __init__(self, parts: IngressParts) -> None:
        self._parts = parts
        self._idempotency = IdempotencyCache(parts.reader, parts.clock, parts.settings.max_keys_remembered)
        self.recent = RecentSubmissions(parts.reader, parts.settings.max_keys_remembered)
        self._hinted: set[str] = set()
        self._in_flight = Shares(parts.settings.max_in_flight)

    def key_help_is_due(self, key_id: str) -> bool:
        """Whether to point the caller to the Idempotency-Key: once per API key and process; with more than 10,000 keys, again."""
        if key_id in self._hinted:
            return False
        if len(self._hinted) >= _MAX_HINTED:
            self._hinted.clear()
        self._hinted.add(key_id)
        return True

    async def publish(self, submission: NewSubmission) -> Receipt | Problem:
        if submission.keyed or submission.similar_refused or self.recent.has_like(submission):
            result = await self.publish_all(submission.account_id, (submission,))
            return result if isinstance(result, Problem) else result[0]
        # Most have no key and are new: what `publish_all` does for them.
        refused = await self._send(submission.workspace_id, (submission.message(submission.accepted_at),))
        if (problem := refused if isinstance(refused, Problem) else refused.get(0)) is not None:
            return problem
        (similar,) = await self.recent.remember_all(submission.account_id, (submission,))
        return Receipt(submission.request_id, submission.accepted_at, similar_to=similar)

    async def publish_all(
        self, account_id: str, submissions: Sequence[NewSubmission]
    ) -> Sequence[Receipt | Problem] | Problem:
        """The result of `publish` for each of the account's `submissions`, in order; or the problem that kept all of them from the
        log. Looks up all with a key at once, and all without, and publishes the new ones as one batch, no request id twice."""
        keyless = iter(await self.recent.decide_all(account_id, [each for each in submissions if not each.keyed]))
        try:
            decided = await self._idempotency.look_up_all(account_id, [each for each in submissions if each.keyed])
            with ExitStack() as attempts:
                for one in decided:
                    if isinstance(one, PublishAttempt):
                        attempts.enter_context(one)
                keyed = iter(decided)
                found: list[_Found] = []
                for each in submissions:
                    known = next(keyed) if each.keyed else next(keyless)
                    if known is None and each.similar_refused:
                        known = await self.recent.refusal(each)
                    found.append(known or PublishAttempt(_Recent(each.fingerprint, since=0), each, self._parts.clock))
                return await self._publish_found(account_id, submissions, found)
        except StoreUnavailable:
            return catalogue.STORE_UNAVAILABLE.problem(f"{responses.NOTHING_ACCEPTED}, under the same key.")

    async def _publish_found(
        self, account_id: str, submissions: Sequence[NewSubmission], found: Sequence[_Found]
    ) -> Sequence[Receipt | Problem] | Problem:
        messages: dict[str, Message] = {}
        time_slice = TimeSlice()
        for submission, one in zip(submissions, found, strict=True):
            if isinstance(one, PublishAttempt):
                message = messages.setdefault(submission.request_id, submission.message(one.accepted_at))
                await time_slice.spend(len(message.value))
        refused = await self._send(submissions[0].workspace_id, [*messages.values()]) if messages else {}
        if isinstance(refused, Problem):
            # What the log acknowledged before has its receipt even so.
            receipts = [one.receipt if isinstance(one, PublishAttempt) else one for one in found]
            known = [each for each in receipts if each is not None]
            return known if len(known) == len(found) else refused
        problems = {request_id: refused[index] for index, request_id in enumerate(messages) if index in refused}
        safe = messages.keys() - problems.keys()
        new = {each.request_id: each for each in submissions if each.request_id in safe}
        similar = dict(zip(new, await self.recent.remember_all(account_id, [*new.values()]), strict=True))
        results: list[Receipt | Problem] = []
        for submission, one in zip(submissions, found, strict=True):
            request_id = submission.request_id
            if not isinstance(one, PublishAttempt):
                results.append(one)
            elif request_id in problems:
                results.append(one.receipt or problems[request_id])
            else:
                accepted_at = one.acknowledged()
                results.append(one.receipt or Receipt(request_id, accepted_at, similar_to=similar[request_id]))
        return results

    async def _send(self, workspace_id: str, messages: Sequence[Message]) -> Mapping[int, Problem] | Problem:
        """The problem that kept all of `messages` from the log; else those of single ones, by their places."""
        if not self._in_flight.take(workspace_id, len(messages)):
            return responses.OVERLOADED
        began = self._parts.clock.monotonic()
        try:
            signed = [self._parts.signer.signed(each) for each in messages]
            await self._parts.publisher.publish(self._parts.requests_topic, signed)
        except LogUnavailable:
            return responses.LOG_UNAVAILABLE
        except MessageTooLarge as error:
            _log.error("message.too_large", limit=error.limit, bytes=max(error.sizes.values()), count=len(error.sizes))
            return {index: responses.too_large_for_log(size, error.limit) for index, size in error.sizes.items()}
        finally:
            self._in_flight.give_back(workspace_id, len(messages))
            DEFERRED.observe(PUBLISH_SECONDS, self._parts.clock.monotonic() - began)
        return {}
