"""What was submitted before under the same idempotency key: in the store, or in the minutes before a worker ingested it.

What is in the store is answered with its receipt, and so is what the log acknowledged a few seconds ago. What this process has only
remembered for longer is published again under the same id, of which workers ingest the first: so a submission that the log has lost
meanwhile is not lost for good. What a rule would refuse by now is not published again: as long as it is remembered, it has
its receipt. Another body under a key is refused where it is known, and otherwise by the worker."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, Self

from forwarder.ingress.message import NewSubmission
from forwarder.ingress.problems import key_reused
from forwarder.process.clock import Clock
from forwarder.reservation.outcome import Status
from forwarder.reservation.problems.problem import Problem
from forwarder.store.lists.port import Reader, StoredSubmission
from forwarder.topics.outcomes import OutcomeEvent


class Receipt(NamedTuple):
    """A submission that is safe, and how it ended, if it has. `duplicate`: it is the receipt of an earlier one, that was sent again
    without its key, and `changed`: with another body; `replayed`: of the one that had the same key before. `similar_to`: the
    request ids of others for the same stay and guest, as far as this process knows them."""

    request_id: str
    accepted_at: str
    settled: OutcomeEvent | None = None
    duplicate: bool = False
    replayed: bool = False
    changed: bool = False
    similar_to: Sequence[str] = ()

    @property
    def status(self) -> Status:
        """As far as it is known."""
        return Status.PENDING if self.settled is None else self.settled.status


def receipt_of(stored: StoredSubmission) -> Receipt:
    """The receipt of a submission that was ingested before."""
    if stored.status is Status.PENDING:
        return Receipt(stored.request_id, stored.accepted_at)
    settled = OutcomeEvent(stored.status, stored.id, stored.record.encode(), stored.problem)
    return Receipt(stored.request_id, stored.accepted_at, settled)


_REMEMBERED_SECONDS: Final = 600.0
_BELIEVED_SECONDS: Final = 5.0
"""For how long after its acknowledgement the log surely has it. One publish more, of what is sent again later, costs little."""


@dataclass(slots=True)
class _Recent:
    """What is known of a key. `acknowledged_as`: the `accepted_at` that the log acknowledged first. `publishing_as`: the one under
    which it is being published, for others to join; None once that failed. `under_way`: how many publishes have not ended.
    `since` and `acknowledged_at`: when it first came, and when the log acknowledged it last, by the monotonic clock."""

    fingerprint: str
    since: float
    acknowledged_at: float = float("-inf")
    acknowledged_as: str | None = None
    publishing_as: str | None = None
    under_way: int = 0


class Attempt:
    """A submission that is to be published now, accepted at `accepted_at`. To be left, by `with`, once its publish ended: it
    failed, unless it was `acknowledged`."""

    __slots__ = ("_clock", "_recent", "accepted_at", "receipt")

    def __init__(self, recent: _Recent, submission: NewSubmission, clock: Clock) -> None:
        self._recent, self._clock = recent, clock
        acknowledged, accepted_at = recent.acknowledged_as, recent.acknowledged_as or submission.accepted_at
        self.receipt = None if acknowledged is None else Receipt(submission.request_id, acknowledged, replayed=True)
        """That of the same submission, if the log acknowledged it before: valid even where this publish fails."""
        # Others under way say the same, so that it does not matter whose message the worker ingests. A moment of before is
        # not kept where its publish failed: the deadline counts from it, and it may be days ago by now.
        self.accepted_at = recent.publishing_as = recent.publishing_as or accepted_at
        recent.under_way += 1

    def acknowledged(self) -> str:
        """The log has it. When it was accepted, as every caller is told."""
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
    """Knows keyed submissions. Of those that are not in the store yet it remembers the last `max_remembered`, of this
    process, for ten minutes, and all that are being published: a key that comes again elsewhere is left for the worker, which
    ingests the first alone."""

    def __init__(self, reader: Reader, clock: Clock, max_remembered: int) -> None:
        self._reader = reader
        self._clock = clock
        self._max_remembered = max_remembered
        self._recent: OrderedDict[str, _Recent] = OrderedDict()

    async def look_up(self, submission: NewSubmission) -> Receipt | Problem | Attempt:
        """The receipt of the same submission, if it is safe already; the refusal, if the key belongs to another; or else
        the attempt to publish it. Raises `StoreUnavailable`."""
        return self._decide(submission, await self._reader.submission(submission.account_id, submission.request_id))

    async def look_up_all(
        self, account_id: str, submissions: Sequence[NewSubmission]
    ) -> Sequence[Receipt | Problem | Attempt]:
        """What `look_up` says of each of the account's `submissions`, by one look into the store. Of two in it that have one
        key, the first is the other's earlier one."""
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
        """What is remembered of this key: from now on, if nothing was, this submission. Kept even where the log then fails: it
        may have stored what it did not acknowledge, and another body under the key would be lost behind it."""
        now = self._clock.monotonic()
        known = self._recent.get(submission.request_id)
        expired = known is not None and not known.under_way and known.since < now - _REMEMBERED_SECONDS
        if expired and submission.refused is None:
            del self._recent[submission.request_id]
        recent = self._recent.setdefault(submission.request_id, _Recent(submission.fingerprint, now))
        self._recent.move_to_end(submission.request_id)
        excess = len(self._recent) - self._max_remembered
        if excess > 0:
            # What is under way came late, as a rule, so that this looks at few.
            over = (known for known, one in self._recent.items() if not one.under_way and one is not recent)
            for request_id in list(islice(over, excess)):
                del self._recent[request_id]
        return recent
