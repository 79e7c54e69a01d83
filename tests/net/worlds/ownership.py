"""What may be sent at all, and by whom: pending rows that somebody holds, by the worker that has their partition, and nothing that
this worker knows to be cancelled.

A worker that was told by the group what it has may not begin to push what it has no longer. One that does not know yet may: it is
stopped, or cut off, and those are the moments of a rebalance.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.net.worlds.process import Process

_MOMENT_SECONDS = 1.0
"""Of a rebalance: what was about to begin when the worker was told."""


@dataclass(slots=True)
class _Worker:
    partitions: frozenset[int] | None = None
    since: float = 0.0
    cancellations: dict[str, float] = field(default_factory=dict)


class Ownership:
    """Of all workers. `row_of` tells how a request stands in the store; `violations` are the creates that should not have been
    sent."""

    def __init__(self, row_of: Callable[[str], Mapping[str, Any] | None]) -> None:
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

    def send(self, process: Process, reference: str, began: float, *, first: bool) -> None:
        """One create is about to be sent. `began`: when the worker turned to it; `first`: nobody had sent any for it before."""
        row, worker = self._row_of(reference), self._workers[process]
        sends = f"{process.name} sends, at {began:.2f}, {reference}"
        if row is None or row["status"] != "PENDING":
            self.violations.append(f"{sends}, which is {None if row is None else row['status']}")
        elif row["leased_by"] is None and not row["possibly_sent"]:
            self.violations.append(f"{sends}, which is free and was surely not sent, says the store")
        lost = worker.partitions is not None and row is not None and row["partition"] not in worker.partitions
        if lost and began > worker.since + _MOMENT_SECONDS:
            self.violations.append(f"{sends}, told at {worker.since:.2f} that it has {set(worker.partitions or ())}")
        cancelled_at = worker.cancellations.get(reference)
        if first and cancelled_at is not None and began > cancelled_at:
            self.violations.append(f"{sends}, cancelled at {cancelled_at:.2f}")
