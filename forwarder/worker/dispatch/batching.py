"""Rows that go to their PMS together: where one request can ask for several reservations, each with its own outcome.

Together go rows of different rooms of which nothing was sent yet. What is in doubt, or is to be cancelled, goes alone. Nothing
waits for others to come: a batch is what waits when its turn comes.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from forwarder.reservation.outcome import Status
from forwarder.store.submissions.work import Work
from forwarder.tenancy.port import Account
from forwarder.worker.push.health_signal import HealthSignal

_PASSED_OVER_AT_MOST: Final = 100
"""Rows, to find one more for a batch: whoever waits behind so many of busy rooms waits for the next."""

DeliverMany = Callable[[Account, Sequence[Work], Callable[[Work], None]], Awaitable[HealthSignal]]
"""Pushes rows in one request: as a lane's `Deliver` does one."""


@dataclass(frozen=True, slots=True)
class CreateBatching:
    """How rows go together. `most`: how many one request to the account's PMS can ask for."""

    most: Callable[[Account], int]
    deliver: DeliverMany


def room_of(work: Work) -> str:
    """The room, within its account: at most one push at a time is in flight for it."""
    return f"{work.submission.property_id}\0{work.submission.room_id}"


def take_together(waiting: deque[Work], busy_rooms: Collection[str], most: int) -> list[Work]:
    """Take the first of `waiting`, whose room is not busy, and those that can go with it, in their order. Of one room none goes
    before another that has waited longer."""
    first = waiting.popleft()
    taken = [first]
    if most == 1 or not _goes_with_others(first):
        return taken
    passed_over: list[Work] = []
    rooms = {room_of(first)}
    while waiting and len(taken) < most and len(passed_over) < _PASSED_OVER_AT_MOST:
        work = waiting.popleft()
        room = room_of(work)
        fits = room not in rooms and room not in busy_rooms and _goes_with_others(work)
        (taken if fits else passed_over).append(work)
        rooms.add(room)
    waiting.extendleft(reversed(passed_over))
    return taken


def _goes_with_others(work: Work) -> bool:
    return work.status is Status.PENDING and not work.possibly_sent and work.cancellation is None
