"""Earlier submissions with the same idempotency key: in the store, or remembered for the minutes until a worker ingests them.

A submission in the store, or acknowledged by the log a few seconds ago, is answered with its receipt. One that was acknowledged
longer ago and is not in the store yet is published again under the same id, of which workers ingest only the first: so a submission
that the log has lost meanwhile is recovered. One that a rule would refuse today is not published again: it has its receipt as long
as it is remembered. Another body under a key is refused here if the key is known, otherwise by the worker."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from forwarder.ingress.message import NewSubmission
from forwarder.ingress.problems import key_reused
from forwarder.process.clock import Clock
from forwarder.reservation.outcome import Status
from forwarder.reservation.problems.problem import Problem
from forwarder.store.lists.port import StoredSubmission
from forwarder.topics.outcomes import OutcomeEvent

if TYPE_CHECKING:
    from forwarder.store.lists.reader import Reader


class Receipt(NamedTuple):
    """A safe submission, with its outcome if it has one. `duplicate`: the receipt of an earlier one that was sent again without its
    key; `changed`: with another body; `replayed`: the receipt of the earlier one with the same key. `similar_to`: the request ids
    of others for the same stay and guest that this process knows. `record`: of the store, while it has no outcome."""

    request_id: str
    accepted_at: str
    settled: OutcomeEvent | None = None
    duplicate: bool = False
    replayed: bool = False
    changed: bool = False
    similar_to: Sequence[str] = ()
    record: bytes | None = None

    @property
    def status(self) -> Status:
        """The last known status."""
        return Status.PENDING if self.settled is None else self.settled.status


def receipt_of(stored: StoredSubmission) -> Receipt:
    """The receipt of a stored submission."""
    if stored.status is Status.PENDING:
        return Receipt(stored.request_id, stored.accepted_at, record=stored.record.encode())
    settled = OutcomeEvent(stored.status, stored.id, stored.record.encode(), stored.problem)
    return Receipt(stored.request_id, stored.accepted_at, settled)


_REMEMBERED_SECONDS: Final = 600.0
_BELIEVED_SECONDS: Final = 5.0
"""How long after the acknowledgement the log is trusted to have it. Publishing a later repeat once more costs little."""


@dataclass(slots=True)
class _Recent:
    """The state of a key. `acknowledged_as`: the `accepted_at` that the log acknowledged first. `publishing_as`: the `accepted_at`
    of the publishes in flight, which others reuse; None once they failed. `under_way`: how many publishes are in flight. `since`
    and `acknowledged_at`: when it first came, and when the log acknowledged it last, by the monotonic clock."""

    fingerprint: str
    since: float
    acknowledged_at: float = float("-inf")
    acknowledged_as: str | None = None
    publishing_as: str | None = None
    under_way: int = 0


class Attempt:
    """A submission to publish now, accepted at `accepted_at`. Leave it (by `with`) once the publish has ended; it counts as failed
    unless `acknowledged` was called."""

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


class IdempotencyCache:
    """Looks up keyed submissions. Remembers the last `max_remembered` of this process that are not in the store yet, for ten
    minutes, and all that are being published. A key that comes again at another process is left for the worker, which ingests only
    the first."""

    def __init__(self, reader: "Reader", clock: Clock, max_remembered: int) -> None:
        self._reader = reader
        self._clock = clock
        self._max_remembered = max_remembered
        self._recent: OrderedDict[str, _Recent] = OrderedDict()

    async def look_up_all(
        self, account_id: str, submissions: Sequence[NewSubmission]
    ) -> Sequence[Receipt | Problem | Attempt]:
        """For each of the account's `submissions`: its receipt, if it is safe already; the refusal, if its key belongs to another;
        or else the attempt to publish it. Queries the store once. If two have the same key, the second is a repeat of the first.
        Raises `StoreUnavailable`."""
        if len(submissions) == 1:  # nearly always, and the store has a cheaper query for it
            (one,) = submissions
            return [self._decide(one, await self._reader.submission(account_id, one.request_id))]
        if not submissions:
            return ()
        stored = await self._reader.submissions(account_id, {submission.request_id for submission in submissions})
        return [self._decide(submission, stored.get(submission.request_id)) for submission in submissions]

    def _decide(self, submission: NewSubmission, stored: StoredSubmission | None) -> Receipt | Problem | Attempt:
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
        return submission.refused or Attempt(recent, submission, self._clock)

    def _remembered(self, submission: NewSubmission) -> _Recent:
        """The state of this key; begins one for this submission if there is none. Kept even if the log then fails: the log may have
        stored a message without acknowledging it, and another body under the key would be lost behind it."""
        now = self._clock.monotonic()
        known = self._recent.get(submission.request_id)
        expired = known is not None and not known.under_way and known.since < now - _REMEMBERED_SECONDS
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
