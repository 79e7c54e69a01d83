"""What may be sent at all, and by whom: pending rows that somebody holds, by the worker that has their partition, and nothing that
this worker knows to be cancelled.

A worker that was told by the group what it has may not begin to push what it has no longer. One that does not know yet may: it is
stopped, or cut off, and those are the moments of a rebalance.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from forwarder.reservation.booking import Booking
from forwarder.reservation.submission import key_of
from forwarder.topics.publishing import partition_of
from tests.support.machine.worlds.process import Process

_MOMENT_SECONDS = 1.0
"""Of a rebalance: what was about to begin when the worker was told."""


@dataclass(slots=True)
class _Worker:
    partitions: frozenset[int] | None = None
    since: float = 0.0
    cancellations: dict[str, float] = field(default_factory=dict)
    busy_rooms: set[tuple[str, str, str]] = field(default_factory=set)


class Ownership:
    """Of all workers. `row_of` tells how a request stands in the store; `violations` are the pushes that should not have begun."""

    def __init__(self, partitions: int, row_of: Callable[[str], Mapping[str, Any] | None]) -> None:
        self._partitions = partitions
        self._row_of = row_of
        self._workers: defaultdict[Process, _Worker] = defaultdict(_Worker)
        self.violations: list[str] = []

    def told(self, process: Process, partitions: frozenset[int], now: float) -> None:
        """A worker is told what it has from now on, be it nothing: it knows so, though it may not be done with that."""
        worker = self._workers[process]
        if worker.partitions != partitions:
            worker.partitions, worker.since = partitions, now

    def cancelled(self, process: Process, request_id: str, now: float) -> None:
        """A worker has taken in that this is to be cancelled."""
        self._workers[process].cancellations.setdefault(request_id, now)

    @contextmanager
    def push(self, process: Process, account_id: str, bookings: Sequence[Booking], began: float) -> Iterator[None]:
        """A worker's push, while its request is under way. It `began` when the worker turned to it."""
        worker = self._workers[process]
        rooms = {(account_id, booking.property_id, booking.room_id) for booking in bookings}
        if len(rooms) < len(bookings) or rooms & worker.busy_rooms:
            self.violations.append(f"{process.name} pushes twice at once for a room: {_named(bookings)}")
        for booking in bookings:
            partition = partition_of(key_of(account_id, booking.property_id).encode(), self._partitions)
            lost = worker.partitions is not None and partition not in worker.partitions
            if lost and began > worker.since + _MOMENT_SECONDS:
                told = f"of partition {partition}, told at {worker.since} that it has {set(worker.partitions or ())}"
                self.violations.append(f"{process.name} pushes, at {began}, {booking.reference} {told}")
        worker.busy_rooms |= rooms
        try:
            yield
        finally:
            worker.busy_rooms -= rooms

    def send(self, process: Process, reference: str, began: float, *, first: bool) -> None:
        """One create is about to be sent. `first`: nobody had sent any for `reference` before."""
        row = self._row_of(reference)
        sends = f"{process.name} sends, at {began}, {reference}"
        if row is None or row["status"] != "PENDING":
            self.violations.append(f"{sends}, which is {None if row is None else row['status']}")
        elif row["leased_by"] is None and not row["possibly_sent"]:
            self.violations.append(f"{sends}, which is free and was surely not sent, says the store")
        cancelled_at = self._workers[process].cancellations.get(reference)
        if first and cancelled_at is not None and began > cancelled_at:
            self.violations.append(f"{sends}, cancelled at {cancelled_at}")


def _named(bookings: Sequence[Booking]) -> str:
    return ", ".join(booking.reference for booking in bookings)
