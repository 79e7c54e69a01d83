"""The backlog in the store."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class AccountWork:
    """The open work of one integration account; zeros and None for an account without any.

    `pending` includes submissions that a worker holds or that wait for a retry; `due`: due rows that no worker holds, including
    cancellations and look-ups. The oldest is the one accepted first; of the due ones, the one due for longest.
    """

    account_id: str
    pending: int
    oldest_pending_at: datetime | None
    due: int
    oldest_due_at: datetime | None
    in_doubt: int
    oldest_in_doubt_at: datetime | None


@dataclass(frozen=True, slots=True)
class FailedWork:
    """How many submissions of an account are FAILED, and neither replayed nor anonymized since, by the class of their dead
    letter."""

    account_id: str
    failure_class: str
    count: int


@dataclass(frozen=True, slots=True)
class EndpointWork:
    """The pending deliveries of a webhook endpoint, and when the first of them is (or was) due."""

    endpoint_id: str
    pending: int
    first_due_at: datetime


class StandingReader(Protocol):
    """Reads the backlog. The time depends on the open work, not on the size of the store. Raises `StoreUnavailable`."""

    async def accounts(self, *, now: datetime) -> Sequence[AccountWork]:
        """Every account that ever had a submission, ordered by id."""
        ...

    async def failed(self) -> Sequence[FailedWork]: ...

    async def endpoints(self) -> Sequence[EndpointWork]:
        """The endpoints with pending deliveries."""
        ...
