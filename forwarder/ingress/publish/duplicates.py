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
from forwarder.reservation.problems import requests
from forwarder.reservation.problems.problem import Problem
from forwarder.store.lists.port import SimilarSubmission, StoredSubmission
from forwarder.store.submissions.port import StoreUnavailable

if TYPE_CHECKING:
    from forwarder.store.lists.reader import Reader

_MAX_HINTED: Final = 10_000


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

    async def decide_all(self, account_id: str, submissions: Sequence[NewSubmission]) -> Sequence[Receipt | None]:
        """For each of the account's `submissions`, all without a key: the receipt of the earlier one that it repeats; None if it is
        new, or the worker has to decide. Queries the store once, or not at all if nothing similar is remembered."""
        found = [self._alike(each) for each in submissions]
        if not any(found):
            return [None] * len(submissions)
        stored = await self._stored(account_id, {each.request_id for alike in found for each in alike})
        return [self._receipt(submission, alike, stored) for submission, alike in zip(submissions, found, strict=True)]

    async def refusal(self, submission: NewSubmission) -> Problem | None:
        """The refusal of a submission with the stay and guest of another that may lead to a reservation, and another body. None too
        for a repeat, which the worker recognises. Raises `StoreUnavailable`. Considers submissions that no worker has ingested yet
        only if this process accepted them."""
        natural, at = submission.natural, datetime.fromisoformat(submission.accepted_at)
        if natural is None or natural.stay is None or natural.stay == natural.same:
            return None
        stored = {each.request_id: each for each in await self._reader.similar(submission.account_id, natural.stay)}
        recent = {each.request_id: each for each in self._of(natural.stay) if each.request_id not in stored}
        ingested = await self._reader.submissions(submission.account_id, recent.keys()) if recent else {}
        earlier = [self._earlier_of(each, natural.stay) for each in stored.values()]
        earlier += [self._earlier(each, None) for request_id, each in recent.items() if request_id not in ingested]
        similar = _beside(earlier, natural, at)
        if not similar:
            return None
        other = stored.get(similar[0])
        differing = () if other is None else differing_fields(submission.reservation, other.reservation)
        return _refused(similar[0], differing)

    async def remember_all(self, account_id: str, submissions: Sequence[NewSubmission]) -> Sequence[Sequence[str]]:
        """Remembers the account's `submissions`, just acknowledged. Returns for each the request ids of those remembered before it
        that have its stay and guest and may lead to a reservation; queries the store once if there are any."""
        found = [self._remember(each) for each in submissions]
        if not any(found):
            return [()] * len(submissions)
        wanted = {other.request_id for others in found for other in others}
        stored = await self._stored(account_id, wanted.difference(each.request_id for each in submissions))
        return [
            self._similar(submission, others, stored) if others else ()
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
            newer = self._newer.get(natural.stay, ())
            older = self._older.get(natural.stay, ())
            if newer or older:
                newer = tuple(each for each in newer if each.request_id != submission.request_id)
                others = [*newer, *(each for each in older if each.request_id != submission.request_id)][:MAX_SIMILAR]
            # Without those of the older dictionary, which would never be dropped.
            self._newer[natural.stay] = (accepted, *newer[:MAX_SIMILAR])
        self._in_newer += 1
        if self._in_newer >= self._max_each:
            self._older, self._newer, self._in_newer = self._newer, {}, 0
        return others

    def _similar(
        self, submission: NewSubmission, others: Sequence[_Accepted], known: Mapping[str, StoredSubmission]
    ) -> Sequence[str]:
        natural, at = submission.natural, datetime.fromisoformat(submission.accepted_at)
        earlier = [self._earlier(each, known.get(each.request_id)) for each in others]
        return () if natural is None else _beside(earlier, natural, at)

    def _alike(self, submission: NewSubmission) -> Sequence[_Accepted]:
        natural = submission.natural
        return () if natural is None or natural.same is None else self._of(natural.same)

    def _of(self, key: str) -> tuple[_Accepted, ...]:
        return self._newer.get(key, ()) + self._older.get(key, ())

    async def _stored(self, account_id: str, request_ids: set[str]) -> Mapping[str, StoredSubmission]:
        if not request_ids:
            return {}
        try:
            return await self._reader.submissions(account_id, request_ids)
        except StoreUnavailable:
            return {}

    def _receipt(
        self, submission: NewSubmission, alike: Sequence[_Accepted], known: Mapping[str, StoredSubmission]
    ) -> Receipt | None:
        natural, at = submission.natural, datetime.fromisoformat(submission.accepted_at)
        for accepted in alike:
            stored = known.get(accepted.request_id)
            if (
                natural is not None
                and stored is not None
                and self._earlier(accepted, stored).is_repeated_by(natural, at)
            ):
                changed = stored.fingerprint != submission.fingerprint
                return receipt_of(stored)._replace(duplicate=True, changed=changed)
        return None

    def _earlier(self, accepted: _Accepted, stored: StoredSubmission | None) -> Earlier:
        """From the store, or as accepted if no worker has ingested it yet; with a later cancellation that was accepted here."""
        request_id = accepted.request_id if stored is None else stored.request_id
        cancellation = None if stored is None else stored.cancellation
        requested_at = None if cancellation is None else datetime.fromisoformat(cancellation.requested_at)
        if cancellation is None or cancellation.status in _CAME_TO_NOTHING:
            noted = self._cancelled.get(request_id) or self._cancelled.get(accepted.request_id)
            requested_at = _newer(noted, requested_at)
        natural = accepted.natural
        return Earlier(
            request_id,
            natural.key,
            natural.transaction,
            keyed=natural.keyed,
            status=Status.PENDING if stored is None else stored.status,
            accepted_at=datetime.fromisoformat(accepted.accepted_at),
            cancel_requested_at=requested_at,
            same=natural.same,
            stay=natural.stay,
        )

    def _earlier_of(self, stored: SimilarSubmission, stay: str) -> Earlier:
        """From the store, with a later cancellation that was accepted here. Submissions with a `stay` are compared by `same`."""
        requested_at = stored.cancel_requested_at
        if requested_at is None or stored.cancellation_failed:
            requested_at = _newer(self._cancelled.get(stored.request_id), requested_at)
        return Earlier(
            stored.request_id,
            natural_key=None,
            transaction=None,
            keyed=False,
            status=stored.status,
            accepted_at=stored.accepted_at,
            cancel_requested_at=requested_at,
            same=stored.same_key,
            stay=stay,
        )


def _newer(noted: datetime | None, came_to_nothing: datetime | None) -> datetime | None:
    """When the noted cancellation was requested, unless it is the one that failed. The store keeps milliseconds."""
    return noted if noted is not None and (came_to_nothing is None or iso(noted) > iso(came_to_nothing)) else None


def _beside(earlier: Sequence[Earlier], natural: NaturalKey, at: datetime) -> Sequence[str]:
    """The request ids that a submission accepted `at` that moment is similar to; none if it repeats one of them, because then it
    makes no reservation of its own."""
    if any(each.is_repeated_by(natural, at) for each in earlier):
        return ()
    return tuple(dict.fromkeys(each.request_id for each in earlier if each.is_similar_to(natural, at)))


def _refused(request_id: str, differing: Sequence[str]) -> Problem:
    said = f" They differ in {', '.join(differing)}." if differing else ""
    return requests.SIMILAR_SUBMISSION.problem(
        f"The submission {request_id} is for the same stay and guest.{said} Nothing was accepted.",
        extra={"similarTo": [request_id], "differing": list(differing)},
    )


_CAME_TO_NOTHING: Final = frozenset({CancellationStatus.REFUSED, CancellationStatus.FAILED})


class KeyHint:
    """Decides when to point a caller to the Idempotency-Key: once per API key and process. With more than 10,000 keys, some get the
    hint again."""

    def __init__(self) -> None:
        self._hinted: set[str] = set()

    def is_due(self, key_id: str) -> bool:
        """Whether this API key has not had the hint yet; marks it as hinted."""
        if key_id in self._hinted:
            return False
        if len(self._hinted) >= _MAX_HINTED:
            self._hinted.clear()
        self._hinted.add(key_id)
        return True
