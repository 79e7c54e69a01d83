"""Removing guests' data, independent of how it is kept. Everything may raise `StoreUnavailable`."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any, Protocol

from forwarder.reservation.outcome import Status


class Standing(StrEnum):
    """Whether a submission's guest can be erased now."""

    ERASABLE = "erasable"
    ERASED = "erased"
    """It was before."""
    UNFINISHED = "unfinished"
    """There is something left to do for it, which needs the guest."""
    UNPUBLISHED = "unpublished"
    """Its result event is about to be published, with the guest."""


@dataclass(frozen=True, slots=True)
class GuestRecord:
    """What the store knows of a guest by one submission. `request` and `record` hold the guest's data."""

    id: int
    request_id: str
    workspace_id: str
    account_id: str
    status: Status
    standing: Standing
    request: dict[str, Any]
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ParkedReason:
    """Why a submission that was not ingested yet, or never comes, is to be cancelled, in its caller's words."""

    request_id: str
    account_id: str
    reason: str


class SweptStore(Protocol):
    """What the retention sweeper needs. Each call is one short transaction, and skips what others are just working on."""

    async def anonymize_finished(
        self, workspace_id: str, status: Status, *, until: date, now: datetime, limit: int
    ) -> int:
        """Remove the guest's data of up to `limit` submissions of this status that were finished on that day or before, oldest
        first; of how many. Fewer than `limit`: there are no more for now."""
        ...

    async def forget_parked_reasons(self, account_ids: Collection[str], *, before: datetime, limit: int) -> int:
        """Remove the reasons of up to `limit` cancellations that were requested before that and whose submissions never came; of
        how many. They stay in force."""
        ...

    async def endpoints_with_deliveries(self) -> Sequence[str]:
        """The ids of all endpoints that have deliveries, those removed since included."""
        ...

    async def delete_deliveries(self, endpoint_id: str, *, ended_before: datetime, limit: int) -> int:
        """Delete up to `limit` deliveries of the endpoint that ended before that, oldest first; how many."""
        ...


class GuestStore(Protocol):
    """What erasing a guest needs."""

    async def submissions(self, request_ids: Collection[str]) -> Sequence[GuestRecord]:
        """Those with these request ids, or that these are duplicates of."""
        ...

    async def page(
        self, *, after: int, limit: int, workspace_id: str | None
    ) -> tuple[Sequence[GuestRecord], int | None]:
        """Of the `limit` submissions with ids above `after` those that hold a guest's data, of one workspace if given; and the last
        id that was looked at, None where there was none."""
        ...

    async def deliveries(self, request_id: str) -> int:
        """How many webhook deliveries about the submission there are."""
        ...

    async def erase(self, records: Collection[GuestRecord], *, now: datetime) -> Sequence[str]:
        """Remove the guest's data of those that can be erased, and from the webhook deliveries about them, in one transaction;
        the request ids of these."""
        ...

    async def parked_reasons(self) -> Sequence[ParkedReason]:
        """All there are."""
        ...

    async def erase_parked_reasons(self, request_ids: Collection[str]) -> Sequence[str]:
        """Remove those of these submissions' cancellations; the request ids of these. They stay in force."""
        ...

    async def last_id(self) -> int:
        """The highest id of a submission; 0 where there is none."""
        ...
