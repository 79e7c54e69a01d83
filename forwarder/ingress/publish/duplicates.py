"""Submissions that this process accepted recently, by content, and their cancellations.

A cache that decides nothing by itself. A recognised submission is answered with the earlier one's receipt only if the store has
the earlier one and it may still lead to a reservation; anything else goes to the log, where the worker that ingests it decides in
order. So no submission is dropped if the log or the store lost one that is remembered here.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from forwarder.ingress.message import NewSubmission
from forwarder.ingress.publish.idempotency import Receipt, receipt_of
from forwarder.process.clock import iso
from forwarder.reservation.cancellation import CancellationStatus
from forwarder.reservation.duplicates import MAX_SIMILAR, Earlier, NaturalKey, differing_fields
from forwarder.reservation.outcome import Status
from forwarder.reservation.problems import catalogue
from forwarder.reservation.problems.problem import Problem
from forwarder.store.lists.port import StoredSubmission
from forwarder.store.submissions.port import StoreUnavailable

if TYPE_CHECKING:
    from forwarder.store.lists.reader import Reader


class _Accepted(NamedTuple):
    """A submission that the log has acknowledged."""

    request_id: str
    natural: NaturalKey
    accepted_at: str


class RecentSubmissions:
    """The last submissions, `max_remembered` of them at the most and half as many at the least, and every cancellation that came
    while they were remembered."""

    def __init__(self, reader: "Reader", max_remembered: int) -> None:
        self._reader = reader
        self._max_cancelled = max_remembered
        self._max_each = max(max_remembered // 2, 1)
        # Two generations; the older is dropped whole. Keeping one dictionary in order would cost more per submission.
        self._newer: dict[str, tuple[_Accepted, ...]] = {}
        self._older: dict[str, tuple[_Accepted, ...]] = {}
        self._in_newer = 0
        self._cancelled: dict[str, datetime] = {}

    def note_cancelled(self, request_id: str, requested_at: datetime) -> None:
        """Its cancellation was acknowledged just now."""
        if len(self._cancelled) >= self._max_cancelled:
            # Without its cancellation, a cancelled submission would answer the next one like it. So both are forgotten.
            self._cancelled, self._newer, self._older, self._in_newer = {}, {}, {}, 0
        self._cancelled[request_id] = requested_at

    def has_like(self, submission: NewSubmission) -> bool:
        """Whether one is remembered that `submission` may repeat."""
        same = None if submission.natural is None else submission.natural.same
        return same is not None and (same in self._newer or same in self._older)

    async def decide_all(self, account_id: str, submissions: Sequence[NewSubmission]) -> Sequence[Receipt | None]:
        """For each of the account's `submissions`, all without a key: the receipt of the earlier one that it repeats; None if it is
        new, or the worker has to decide. Queries the store once, or not at all if nothing similar is remembered."""
        found = [self._remembered(each.natural.same if each.natural else None) for each in submissions]
        if not any(found):
            return [None] * len(submissions)
        known = await self._stored(account_id, {each.request_id for alike in found for each in alike})
        receipts: list[Receipt | None] = []
        for submission, alike in zip(submissions, found, strict=True):
            receipt = None
            for accepted in alike:
                stored, natural = known.get(accepted.request_id), submission.natural
                if receipt is None and stored is not None and natural is not None:
                    earlier = self._earlier(accepted, stored)
                    if earlier.is_repeated_by(natural, datetime.fromisoformat(submission.accepted_at)):
                        changed = stored.fingerprint != submission.fingerprint
                        receipt = receipt_of(stored)._replace(duplicate=True, changed=changed)
            receipts.append(receipt)
        return receipts

    async def refusal(self, submission: NewSubmission) -> Problem | None:
        """The refusal of a submission with the stay and guest of another that may lead to a reservation, and another body. None too
        for a repeat, which the worker recognises. Raises `StoreUnavailable`. Considers submissions that no worker has ingested yet
        only if this process accepted them."""
        natural = submission.natural
        if natural is None or natural.stay is None or natural.stay == natural.same:
            return None
        stored = {each.request_id: each for each in await self._reader.similar(submission.account_id, natural.stay)}
        recent = {each.request_id: each for each in self._remembered(natural.stay) if each.request_id not in stored}
        ingested = await self._reader.submissions(submission.account_id, recent.keys()) if recent else {}
        earlier = [
            # Submissions with a stay are compared by `same`.
            Earlier(
                each.request_id,
                natural_key=None,
                transaction=None,
                keyed=False,
                status=each.status,
                accepted_at=each.accepted_at,
                cancel_requested_at=self._cancelled_at(
                    each.cancel_requested_at, [each.request_id], failed=each.cancellation_failed
                ),
                same=each.same_key,
                stay=natural.stay,
            )
            for each in stored.values()
        ]
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
        if not request_ids:
            return {}
        try:
            return await self._reader.submissions(account_id, request_ids)
        except StoreUnavailable:
            return {}

    def _earlier(self, accepted: _Accepted, stored: StoredSubmission | None) -> Earlier:
        """From the store, or as accepted if no worker has ingested it yet; with a later cancellation that was accepted here."""
        request_id = accepted.request_id if stored is None else stored.request_id
        cancellation = None if stored is None else stored.cancellation
        requested_at = None if cancellation is None else datetime.fromisoformat(cancellation.requested_at)
        failed = cancellation is not None and cancellation.status in _CAME_TO_NOTHING
        natural = accepted.natural
        return Earlier(
            request_id,
            natural.key,
            natural.transaction,
            keyed=natural.keyed,
            status=Status.PENDING if stored is None else stored.status,
            accepted_at=datetime.fromisoformat(accepted.accepted_at),
            cancel_requested_at=self._cancelled_at(requested_at, [request_id, accepted.request_id], failed=failed),
            same=natural.same,
            stay=natural.stay,
        )

    def _cancelled_at(self, stored_at: datetime | None, request_ids: Sequence[str], *, failed: bool) -> datetime | None:
        """When the cancellation was requested: that in the store (`stored_at`), unless it `failed` or there is none. Then the one
        that was accepted here, unless it is that one. The store keeps milliseconds."""
        if stored_at is not None and not failed:
            return stored_at
        noted = next((self._cancelled[each] for each in request_ids if each in self._cancelled), None)
        return noted if noted is not None and (stored_at is None or iso(noted) > iso(stored_at)) else None


def _similar_to(submission: NewSubmission, earlier: Sequence[Earlier]) -> Sequence[str]:
    """The request ids of those that `submission` is similar to; none if it repeats one of them, because then it makes no
    reservation of its own."""
    natural = submission.natural
    if not earlier or natural is None:
        return ()
    at = datetime.fromisoformat(submission.accepted_at)
    if any(each.is_repeated_by(natural, at) for each in earlier):
        return ()
    return tuple(dict.fromkeys(each.request_id for each in earlier if each.is_similar_to(natural, at)))


_CAME_TO_NOTHING: Final = frozenset({CancellationStatus.REFUSED, CancellationStatus.FAILED})
