"""What the store says of the work that stands."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class AccountWork:
    """Of one integration account. An account that nothing stands of has no moments and only zeros.

    `pending` counts what is held by a worker and what waits for its next try as well; `due` what no worker holds though its time
    has come, cancellations and look-ups included. What is oldest is what was accepted first, and of what is due, what has been so
    for longest.
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
    """How many submissions of an account are FAILED, by the class of their dead letter, and not put back or anonymized since."""

    account_id: str
    failure_class: str
    count: int


@dataclass(frozen=True, slots=True)
class EndpointWork:
    """Deliveries to a webhook endpoint that are still to be made, and when the first of them is due, or has been since."""

    endpoint_id: str
    pending: int
    first_due_at: datetime


class StandingReader(Protocol):
    """Each takes time with what stands, not with all that the store holds. Raises `StoreUnavailable`."""

    async def accounts(self, *, now: datetime) -> Sequence[AccountWork]:
        """Every account that ever had a submission, in the order of their ids."""
        ...

    async def failed(self) -> Sequence[FailedWork]: ...

    async def endpoints(self) -> Sequence[EndpointWork]:
        """Those that have deliveries to be made."""
        ...
