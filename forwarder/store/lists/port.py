"""Read access to the store: booking engines read one integration account at a time, operators all of them. Everything may raise
`StoreUnavailable`.

**Cursors.** Ascending, a cursor is the id at which a page starts. Descending, it is one above it. So 1, which no id is below, can
mean the first page in either order. Ids are only ever added above the visible ones, and a page is a range of ids: a client that
follows `next` sees each exactly once, even if a filter drops some of them.

**Filters.** A page is merged from the runs of its leading filter: the rows that have one of its keys, in order of ids. The other
filters are checked on these rows, and rows that they drop were read in vain. So the most selective filter should lead."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from math import inf
from typing import Any, Final, Literal, NamedTuple

from forwarder.reservation.evidence import NOTHING_SENT, Evidence
from forwarder.reservation.outcome import LISTED_STATUSES, Cancellation, Status
from forwarder.store.submissions.port import Attempt


@dataclass(frozen=True, slots=True)
class StoredSubmission:
    """One submission for a reader. `id`: the record's. `record`: of section 2.5 as JSON text, ready to be sent. `revision`: of its
    last event, 0 before the first. `partition`: of the requests topic. `similar_to`: the request ids of others for the same stay
    and guest. `conflicting_at`: when the last one with another body under its idempotency key was accepted, which was not made."""

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


Order = Literal["asc", "desc"]  # oldest first, or newest first, by ingestion


@dataclass(frozen=True, slots=True)
class Days:
    """Days from `first` to `last`, both included; None is open-ended."""

    first: date | None = None
    last: date | None = None

    @property
    def length(self) -> float:
        return inf if self.first is None or self.last is None else (self.last - self.first).days


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
    """`records` as JSON texts, in the order requested. `current`: the cursor at which the page starts."""

    records: Sequence[str]
    current: int
    previous: int | None
    next: int | None


@dataclass(frozen=True, slots=True)
class SubmissionSummary:
    """One submission in an operator's list. Timestamps and dates are ISO 8601; `due_at` is None if nothing is left to do. `reason`:
    of its last try, or else the code of its problem. `held`: a worker has leased it. `revision`: of its last event, 0 before the
    first. `id`: the row's, with which searches continue; `record_id`: as callers know it."""

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
    api_key_id: str | None = None


@dataclass(frozen=True, slots=True)
class SubmissionQuery:
    """An operator's search: all criteria must match. `accounts`: any of these. `reason`: of the last try, or the problem's code.
    `accepted_before` may miss submissions ingested more than twelve hours after their acceptance. `guest`: all of these words of
    the guest's name or e-mail address, in any case, or at least six digits of a phone number. `transaction_keys`: by account, as in
    `NaturalKey`. Of `account_id`, `workspace_id` and `transaction_id` operators' search makes `accounts` and `transaction_keys`."""

    accounts: Collection[str] = ()
    statuses: frozenset[Status] = frozenset(Status)
    property_id: str | None = None
    reason: str | None = None
    accepted_before: datetime | None = None
    accepted_since: datetime | None = None
    guest: str | None = None
    pms_reservation_id: str | None = None
    transaction_keys: Mapping[str, str] | None = None
    api_key_id: str | None = None
    account_id: str | None = None
    workspace_id: str | None = None
    transaction_id: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """What an account's pending submissions wait for. `due_at`: when the first one that no worker holds is, or was, due.
    `reasons`: of the first thousand, how many failed at their last try for each reason; None for those not tried yet."""

    due_at: datetime | None = None
    reasons: Mapping[str | None, int] = field(default_factory=dict)

    @property
    def most(self) -> tuple[str, int] | None:
        """The reason that most of those that were tried have, and their number; None if none was tried."""
        tried = [(count, reason) for reason, count in self.reasons.items() if reason is not None]
        return max(tried)[::-1] if tried else None

    @property
    def sampled(self) -> int:
        return sum(self.reasons.values())


@dataclass(frozen=True, slots=True)
class SetAsideMessages:
    """Messages of one class that were set aside as dead letters, and not acknowledged since."""

    failure_class: str
    messages: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class AskedFor:
    """The content of a submission for look-ups: `reservation`, its request without the card, with the guest. `evidence`: of its
    pushes. `doubles`: the ids of other reservations that the PMS shows under its reference."""

    request_id: str
    account_id: str
    reservation: Mapping[str, Any] = field(repr=False)
    evidence: Evidence = NOTHING_SENT
    pms_reservation_id: str | None = None
    doubles: tuple[str, ...] = ()


FIRST: Final = 1  # the cursor of the first page: no id is smaller
MAX_PAGE_BYTES: Final = 1024 * 1024
"""The maximum size of a page's items: it ends before the item that exceeds this, unless that is its first."""


def fitting(sizes: Iterable[int]) -> int:
    """How many items of these sizes in bytes fit on a page: at least one, if there is one."""
    count = total = 0
    for size in sizes:
        total += size
        if count and total > MAX_PAGE_BYTES:
            break
        count += 1
    return count


class Neighbours(NamedTuple):
    """The cursors of the previous and the next page; None if there is none."""

    previous: int | None
    next: int | None


def sides(ids: Collection[int], cursor: int, *, descending: bool = False) -> tuple[Sequence[int], Sequence[int]]:
    """These ids, in any order, split into those before the cursor and those from it onward, each nearest first."""
    below = sorted((each for each in ids if each < cursor), reverse=True)
    above = sorted(each for each in ids if each >= cursor)
    return (above, below) if descending else (below, above)


def neighbours(
    before: Sequence[int], onward: Sequence[int], limit: int, *, shown: int | None = None, descending: bool = False
) -> Neighbours:
    """The neighbours of a page of `limit`, from up to `limit + 1` ids on either side of its cursor, nearest first. The previous
    page starts `limit` ids earlier, or at `FIRST`; the next one after those `shown`, fewer than `limit` where no more fit."""
    above = 1 if descending else 0
    earlier = FIRST if len(before) <= limit else before[limit - 1] + above
    end = limit if shown is None else shown
    return Neighbours(earlier if before else None, onward[end] + above if len(onward) > end else None)


Filter = Literal["property", "status", "arrival", "departure", "updated", "listed"]
"""`listed`: the default statuses of a list, which a separate index serves as one run. `status`: any others."""

WAITING: Final = frozenset({Status.PENDING, Status.IN_DOUBT, Status.FAILED})
"""The statuses with work left, which few reservations have."""


@dataclass(frozen=True, slots=True)
class ListShape:
    """The inputs that determine the text of a list's statements: the given filters, the leading one, and the order.
    `every_day`: the leading range is so short that each day is read; otherwise the days with any rows are found first."""

    given: tuple[Filter, ...] = ("listed",)
    lead: Filter = "listed"
    descending: bool = False
    every_day: bool = False


def shape_of(filters: Filters, order: Order) -> ListShape:
    is_listed = filters.statuses == LISTED_STATUSES
    is_given: dict[Filter, bool] = {
        "property": filters.property_id is not None,
        "status": not is_listed and filters.statuses != frozenset(Status),
        "arrival": filters.arrival != Days(),
        "departure": filters.departure != Days(),
        "updated": filters.updated_since is not None,
        "listed": is_listed,
    }
    # All statuses are no filter. But some filter must lead, and the runs of all statuses have every row.
    given = tuple(name for name, given in is_given.items() if given) or ("status",)
    # Lower probably selects fewer rows. A fixed order rather than statistics, which might change from one page to the next.
    ranks: dict[Filter, tuple[float, float]] = {
        "property": (0, 0),
        "status": (1 if filters.statuses <= WAITING else 5, 0),
        "arrival": (2 if filters.arrival.length < inf else 4, filters.arrival.length),
        "departure": (2 if filters.departure.length < inf else 4, filters.departure.length),
        "updated": (3, 0),
        "listed": (6, 0),
    }
    lead = min(given, key=ranks.__getitem__)
    # Reading an empty day costs less than finding the next day with any rows: for this many days, no more than a page.
    every_day = lead in {"arrival", "departure"} and ranks[lead][1] <= 92  # noqa: PLR2004
    return ListShape(given, lead, order == "desc", every_day)


@dataclass(frozen=True, slots=True)
class AccountWork:
    """The open work of one integration account. `pending` includes what a worker holds or waits for a retry; `due`: due rows that
    no worker holds, including cancellations and look-ups. The oldest: accepted first; of the due ones, due for longest."""

    account_id: str
    pending: int
    oldest_pending_at: datetime | None
    due: int
    oldest_due_at: datetime | None
    in_doubt: int
    oldest_in_doubt_at: datetime | None


@dataclass(frozen=True, slots=True)
class FailedWork:
    """How many submissions of an account are FAILED, not replayed, and not anonymized, by the class of their dead letter."""

    account_id: str
    failure_class: str
    count: int


@dataclass(frozen=True, slots=True)
class EndpointWork:
    """The pending deliveries of a webhook endpoint, and when the first of them is (or was) due."""

    endpoint_id: str
    pending: int
    first_due_at: datetime
