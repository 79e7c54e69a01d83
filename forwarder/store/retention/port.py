"""Ports for erasing guests' data. Every method may raise `StoreUnavailable`."""

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
    """Erased before."""
    UNFINISHED = "unfinished"
    """Unfinished work needs the guest's data."""
    UNPUBLISHED = "unpublished"
    """Its result event, with the guest's data, is about to be published."""


@dataclass(frozen=True, slots=True)
class GuestRecord:
    """A submission with a guest's data, in `request` and `record`."""

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
    """The caller's reason for cancelling a submission that was not ingested yet, or will never be."""

    request_id: str
    account_id: str
    reason: str


class SweptStore(Protocol):
    """The store of the retention sweeper. Each call is one short transaction, and skips rows that others have locked."""

    async def anonymize_finished(
        self, workspace_id: str, status: Status, *, until: date, now: datetime, limit: int
    ) -> int:
        """Erases the guest's data of up to `limit` submissions of this status that finished on that day or before, oldest
        first; returns how many. Fewer than `limit`: there are no more for now."""
        ...

    async def forget_parked_reasons(self, account_ids: Collection[str], *, before: datetime, limit: int) -> int:
        """Erases the reasons of up to `limit` cancellations that were requested before that time and whose submissions never
        arrived; returns how many. The cancellations stay in force."""
        ...

    async def endpoints_with_deliveries(self) -> Sequence[str]:
        """The ids of all endpoints that have deliveries, including removed endpoints."""
        ...

    async def delete_deliveries(self, endpoint_id: str, *, ended_before: datetime, limit: int) -> int:
        """Deletes up to `limit` deliveries of the endpoint that ended before that time, oldest first; returns how many."""
        ...


class GuestStore(Protocol):
    """The store for erasing a guest."""

    async def submissions(self, request_ids: Collection[str]) -> Sequence[GuestRecord]:
        """The submissions with these request ids, or of which these are duplicates."""
        ...

    async def page(
        self, *, after: int, limit: int, workspace_id: str | None
    ) -> tuple[Sequence[GuestRecord], int | None]:
        """The submissions with a guest's data among the next `limit` ids above `after`, of one workspace if given; and the last id
        read, None if there was none."""
        ...

    async def deliveries(self, request_id: str) -> int:
        """The number of webhook deliveries about the submission."""
        ...

    async def erase(self, records: Collection[GuestRecord], *, now: datetime) -> Sequence[str]:
        """Erases the guest's data of those that can be erased, and of the webhook deliveries about them, in one transaction.
        Returns their request ids."""
        ...

    async def parked_reasons(self) -> Sequence[ParkedReason]:
        """All reasons of parked cancellations."""
        ...

    async def erase_parked_reasons(self, request_ids: Collection[str]) -> Sequence[str]:
        """Erases the reasons of these submissions' cancellations, which stay in force. Returns their request ids."""
        ...

    async def last_id(self) -> int:
        """The highest id of a submission; 0 if there is none."""
        ...
