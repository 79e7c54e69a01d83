"""Submissions without an Idempotency-Key that this process has just accepted, by what they ask for: one that comes again is
answered at the door. What another process accepted, or this one before it was started, is recognised by the worker that ingests it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from forwarder.ingress.message import NewSubmission
from forwarder.ingress.publish.idempotency import Receipt, receipt_of
from forwarder.reservation.duplicates import Earlier, transaction_reused
from forwarder.reservation.outcome import Status
from forwarder.reservation.problems.problem import Problem
from forwarder.store.lists.port import Reader, StoredSubmission
from forwarder.store.submissions.port import StoreUnavailable

_MAX_HINTED: Final = 10_000


class _Accepted(NamedTuple):
    """One that the log has acknowledged. `key` and `transaction`: as in `NaturalKey`."""

    request_id: str
    key: str
    transaction: str | None
    accepted_at: str


class RecentSubmissions:
    """The last natural keys and transactions, `max_remembered` of them at the most and half as many at the least."""

    def __init__(self, reader: Reader, max_remembered: int) -> None:
        self._reader = reader
        self._max_each = max(max_remembered // 2, 1)
        # Of two dictionaries the older is dropped whole: to keep one in order costs each submission more than to remember it.
        self._newer: dict[str, _Accepted] = {}
        self._older: dict[str, _Accepted] = {}

    def remember(self, submission: NewSubmission) -> None:
        """It was acknowledged just now."""
        natural = submission.natural
        if natural is None or submission.keyed:
            return
        accepted = _Accepted(submission.request_id, natural.key, natural.transaction, submission.accepted_at)
        self._newer[natural.key] = accepted
        if natural.transaction is not None:
            self._newer[natural.transaction] = accepted
        if len(self._newer) >= self._max_each:
            self._older, self._newer = self._newer, {}

    def find(self, submission: NewSubmission) -> _Accepted | None:
        """One that it may be a repetition of: `decide` tells."""
        natural = submission.natural
        if natural is None or submission.keyed:
            return None
        return self._of(natural.key) or (None if natural.transaction is None else self._of(natural.transaction))

    def _of(self, key: str) -> _Accepted | None:
        return self._newer.get(key) or self._older.get(key)

    async def decide(self, submission: NewSubmission, earlier: _Accepted) -> Receipt | Problem | None:
        """The receipt of the earlier one, if this is the same; the refusal, if it has only its transaction; None where it is new,
        or nobody can tell now: then the worker will."""
        return (await self.decide_all(submission.account_id, [(submission, earlier)]))[0]

    async def decide_all(
        self, account_id: str, pairs: Sequence[tuple[NewSubmission, _Accepted]]
    ) -> Sequence[Receipt | Problem | None]:
        """What `decide` says of each, by one look into the store."""
        try:
            stored = await self._reader.submissions(account_id, {earlier.request_id for _, earlier in pairs})
        except StoreUnavailable:
            return [None] * len(pairs)
        return [_decided(submission, earlier, stored) for submission, earlier in pairs]


def _decided(
    submission: NewSubmission, accepted: _Accepted, known: Mapping[str, StoredSubmission]
) -> Receipt | Problem | None:
    stored, natural = known.get(accepted.request_id), submission.natural
    if natural is None:
        return None
    earlier = _earlier(accepted, stored)
    accepted_at = datetime.fromisoformat(submission.accepted_at)
    if earlier.is_repeated_by(natural, accepted_at):
        receipt = Receipt(accepted.request_id, accepted.accepted_at) if stored is None else receipt_of(stored)
        return receipt._replace(duplicate=True)
    return transaction_reused(earlier.request_id) if earlier.has_its_transaction(natural, accepted_at) else None


def _earlier(accepted: _Accepted, stored: StoredSubmission | None) -> Earlier:
    """As the store has it; before a worker has ingested it, as it was accepted."""
    cancellation = None if stored is None else stored.cancellation
    return Earlier(
        accepted.request_id if stored is None else stored.request_id,
        accepted.key,
        accepted.transaction,
        keyed=False,
        status=Status.PENDING if stored is None else stored.status,
        accepted_at=datetime.fromisoformat(accepted.accepted_at),
        cancel_requested_at=None if cancellation is None else datetime.fromisoformat(cancellation.requested_at),
    )


class KeyHint:
    """Whether a caller is to be told of the Idempotency-Key: once each API key, by each process. Of more than 10,000 keys some are
    told again."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def is_due(self, key_id: str) -> bool:
        """Whether the caller with this API key was not told yet; from now on it was."""
        if key_id in self._told:
            return False
        if len(self._told) >= _MAX_HINTED:
            self._told.clear()
        self._told.add(key_id)
        return True
