"""Read access to the store: booking engines read one integration account at a time, operators all of them.

Everything may raise `StoreUnavailable`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final, Literal, Protocol

from forwarder.reservation.cancellation import Cancellation
from forwarder.reservation.evidence import NOTHING_SENT, Evidence
from forwarder.reservation.outcome import LISTED_STATUSES, Status
from forwarder.store.submissions.work import Attempt


@dataclass(frozen=True, slots=True)
class StoredSubmission:
    """One submission for a reader. `record`: the record of section 2.5 as JSON text, ready to be sent. `id`: the record's.
    `revision`: of its last event, 0 before the first. `partition`: its partition of the requests topic. `similar_to`: the
    request ids of others for the same stay and guest. `conflicting_at`: when the last submission with another body under its
    idempotency key was accepted, which was not made. `evidence`: of its pushes."""

    id: int
    request_id: str
    status: Status
    accepted_at: str
    updated_at: str
    fingerprint: str
    record: str
    attempts: Sequence[Attempt]
    problem: Mapping[str, Any] | None
    property_id: str
    revision: int = 0
    cancellation: Cancellation | None = None
    partition: int | None = None
    similar_to: Sequence[str] = ()
    conflicting_at: str | None = None
    evidence: Evidence = NOTHING_SENT


@dataclass(frozen=True, slots=True)
class SimilarSubmission:
    """One for the same stay and guest: `reservation` is its request as JSON; `same_key`: see `NaturalKey.same`.
    `cancellation_failed`: its cancellation was refused or failed."""

    request_id: str
    status: Status
    accepted_at: datetime
    reservation: bytes = field(repr=False)
    same_key: str | None = None
    cancel_requested_at: datetime | None = None
    cancellation_failed: bool = False


Order = Literal["asc", "desc"]
"""Oldest first, or newest first, by ingestion."""


@dataclass(frozen=True, slots=True)
class Days:
    """Days from `first` to `last`, both included; None is open-ended."""

    first: date | None = None
    last: date | None = None


@dataclass(frozen=True, slots=True)
class Filters:
    """Selects the reservations that match everything given here. `statuses`: any of these, at least one."""

    statuses: frozenset[Status] = LISTED_STATUSES
    property_id: str | None = None
    arrival: Days = Days()
    departure: Days = Days()
    updated_since: datetime | None = None


DEFAULT_FILTERS: Final = Filters()


@dataclass(frozen=True, slots=True)
class Page:
    """A page by keyset: `records` as JSON texts, in the order requested. `current` is the cursor at which it starts (see
    `lists.paging`); `previous` and `next` are None where there is no such page."""

    records: Sequence[str]
    current: int
    previous: int | None
    next: int | None


class Reader(Protocol):
    """Reads one integration account at a time."""

    async def submission(self, account_id: str, request_id: str) -> StoredSubmission | None:
        """The submission with that request id, or the original if it is a duplicate: then with the original's request id, and the
        duplicate's own fingerprint."""
        ...

    async def submissions(self, account_id: str, request_ids: Collection[str]) -> Mapping[str, StoredSubmission]:
        """The known submissions among these request ids, as `submission` returns them, in one read. A record larger than its
        share of a MiB is left out: it is empty."""
        ...

    async def similar(self, account_id: str, stay_key: str) -> Sequence[SimilarSubmission]:
        """Some of the account's submissions for that stay and guest (`NaturalKey.stay`) that have or may have a reservation."""
        ...

    async def reservation(self, account_id: str, reservation_id: int) -> StoredSubmission | None:
        """The submission whose record has that id."""
        ...

    async def page(
        self, account_id: str, *, cursor: int, limit: int, filters: Filters = DEFAULT_FILTERS, order: Order = "asc"
    ) -> Page:
        """The page of `limit` records that starts at `cursor` (1 for the first page), among those that `filters` select. It
        ends early, with `next` set, before it would exceed a MiB; the first record is always on it.

        Following `next` shows each record that matched from the first page to the last exactly once, whatever is added or changed
        meanwhile. A record that starts to match behind the reader is not shown, because its status changes.
        """
        ...

    async def ready(self) -> bool:
        """Whether a read would probably succeed now. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class SubmissionSummary:
    """One submission in an operator's list. Timestamps and dates are ISO 8601; `due_at` is None if nothing is left to do.
    `reason`: of its last try, or else the code of its problem. `held`: a worker has leased it. `revision`: of its last event, 0
    before the first. `id`: the row's, with which searches continue; `record_id`: its record's, as callers know it."""

    id: int
    record_id: int
    request_id: str
    account_id: str
    status: Status
    property_id: str
    arrival: str
    departure: str
    attempts: int
    accepted_at: str
    due_at: str | None
    problem_code: str | None
    revision: int
    workspace_id: str = ""
    reason: str | None = None
    pms_reservation_id: str | None = None
    deadline_at: str | None = None
    held: bool = False


LONGEST_LAG: Final = timedelta(hours=12)
"""The longest delay between acceptance and ingestion with which a search by time of acceptance finds a submission."""


@dataclass(frozen=True, slots=True)
class SubmissionFilter:
    """An operator's search filter: all criteria must match.

    `accounts`: any of these. `reason`: of the last try, or the code of the problem. `accepted_before` may miss submissions
    ingested more than `LONGEST_LAG` after their acceptance. `guest`: words in the guest's name, address or e-mail, all of them, or
    a phone number.
    `transaction_keys`: by account, as in `NaturalKey`.
    """

    accounts: Collection[str]
    statuses: frozenset[Status] = frozenset(Status)
    property_id: str | None = None
    reason: str | None = None
    accepted_before: datetime | None = None
    accepted_since: datetime | None = None
    guest: str | None = None
    pms_reservation_id: str | None = None
    transaction_keys: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Searched:
    """One step of a search: its matches, newest first, and the id below which to continue; None at the end."""

    rows: Sequence[SubmissionSummary]
    next: int | None


@dataclass(frozen=True, slots=True)
class NextTry:
    """When the account's next work is due, and why its last try failed, if there was one."""

    due_at: datetime
    reason: str | None


@dataclass(frozen=True, slots=True)
class AskedFor:
    """The content of a submission for look-ups: `reservation`, its request without the card, with the guest.

    `evidence`: of its pushes. `doubles`: the ids of other reservations that the PMS shows under its reference.
    """

    request_id: str
    account_id: str
    reservation: Mapping[str, Any] = field(repr=False)
    evidence: Evidence = NOTHING_SENT
    pms_reservation_id: str | None = None
    doubles: tuple[str, ...] = ()


class Overview(Protocol):
    """Operators' reads: every workspace's submissions."""

    async def doubled(self) -> Sequence[AskedFor]:
        """The submissions that have doubles, newest first; at most the newest 1000."""
        ...

    async def find(self, request_id: str) -> tuple[SubmissionSummary, StoredSubmission] | None:
        """The submission with that request id, or the one that it is a duplicate of, of any account."""
        ...

    async def accepted_at(self, submission_id: int) -> str | None:
        """When the submission in that row, or in the next existing one, was accepted: ISO 8601."""
        ...

    async def asked_for(self, request_id: str) -> AskedFor | None:
        """The content of that submission, or of the one that it is a duplicate of."""
        ...

    async def accounts(self, workspace_id: str | None = None) -> Sequence[str]:
        """The accounts that have submissions, shadows included; of one workspace, if given."""
        ...

    async def search(self, wanted: SubmissionFilter, *, limit: int, before: int | None = None) -> Searched:
        """The newest matches with ids below `before`, at most `limit`. Reads a few thousand rows at most: a step may find fewer
        than `limit`, or none, although older matches exist."""
        ...

    async def summaries(self, request_ids: Collection[str]) -> Sequence[SubmissionSummary]:
        """The submissions with these request ids, or of which these are duplicates, newest first."""
        ...

    async def next_try(self, account_id: str) -> NextTry | None:
        """The first waiting submission that no worker holds."""
        ...

    async def time(self) -> datetime:
        """The database's clock."""
        ...

    async def size(self) -> int:
        """The size of the database on disk in bytes, including its indexes."""
        ...

    async def unpublished(self, submission_id: int) -> Sequence[int]:
        """The revisions of the submission's events that are not known to be published."""
        ...

    async def statuses(self, request_ids: Collection[str]) -> Mapping[str, tuple[Status, int]]:
        """The status, and the revision of the last event, of each known one of these."""
        ...

    async def anonymous(self, request_ids: Collection[str]) -> Collection[str]:
        """Of these submissions, those whose guests' data was erased."""
        ...

    async def superseded(self, request_ids: Collection[str]) -> Mapping[str, str]:
        """Of these submissions, those replaced by a later one that may have a reservation, with that one's request id."""
        ...
