"""What readers ask of the store: booking engines see one integration account at a time, operators all of them.

Errors: `StoreUnavailable`, as of the whole port.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, Literal, Protocol

from forwarder.reservation.cancellation import Cancellation
from forwarder.reservation.outcome import Status
from forwarder.store.submissions.work import Attempt


@dataclass(frozen=True, slots=True)
class Stored:
    """One submission as a reader sees it. `record` is the record of section 2.5 as JSON text, ready to be sent. `revision` is that
    of its last event, 0 before the first."""

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


Order = Literal["asc", "desc"]
"""By id: oldest first, or newest first."""


@dataclass(frozen=True, slots=True)
class Days:
    """Days from `first` to `last`, both included; None is without end."""

    first: date | None = None
    last: date | None = None


@dataclass(frozen=True, slots=True)
class Filters:
    """Which reservations a list has: those that meet all that is given here. `statuses`: any of them; none given is every one."""

    statuses: frozenset[Status] = frozenset()
    property_id: str | None = None
    arrival: Days = Days()
    departure: Days = Days()
    updated_since: datetime | None = None


EVERYTHING: Final = Filters()


@dataclass(frozen=True, slots=True)
class Page:
    """A page by keyset: `records` as JSON texts, in the order that was asked for. `current` is the cursor at which it starts, as
    `lists.paging` has them; `previous` and `next` are None where there is no such page."""

    records: Sequence[str]
    current: int
    previous: int | None
    next: int | None


class Reader(Protocol):
    """The reading side; sees one integration account at a time."""

    async def submission(self, account_id: str, request_id: str) -> Stored | None:
        """What was taken in under that request id."""
        ...

    async def submissions(self, account_id: str, request_ids: Collection[str]) -> Mapping[str, Stored]:
        """Those of these request ids that were taken in, in one look, however many they are."""
        ...

    async def reservation(self, account_id: str, reservation_id: int) -> Stored | None:
        """What was taken in with that id."""
        ...

    async def page(
        self, account_id: str, *, cursor: int, limit: int, filters: Filters = EVERYTHING, order: Order = "asc"
    ) -> Page:
        """The page of `limit` records that starts at `cursor` (1 for the first page), of those that `filters` let through.

        Whoever follows `next` meets each that matched from the first page to the last exactly once, and none twice, whatever is
        added or changed meanwhile.
        """
        ...

    async def ready(self) -> bool:
        """True when a read would be expected to succeed now. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Summary:
    """One submission as an operator sees it in a list. Timestamps and dates are ISO 8601; `due_at` is None where nothing
    is left to do. `revision` is that of its last event, 0 before the first."""

    id: int
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


class Overview(Protocol):
    """The operator's side: every workspace's submissions."""

    async def find(self, request_id: str) -> tuple[Summary, Stored] | None:
        """What was taken in under that request id, whosever it is."""
        ...

    async def latest(self, *, status: Status | None, account_id: str | None, limit: int) -> Sequence[Summary]:
        """The newest submissions, of one status or account where given."""
        ...

    async def standings(self, request_ids: Collection[str]) -> Mapping[str, tuple[Status, int]]:
        """The status, and the revision of the last event, of each of these that was taken in."""
        ...
