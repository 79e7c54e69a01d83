"""One create under a strike, and what it may have come to: judged by what the PMS then holds."""

from collections.abc import Iterator
from dataclasses import dataclass

from forwarder.pms.conformance.faults import Strike
from forwarder.pms.conformance.trial import Course, Misbehaved, Trial
from forwarder.pms.port import Pms
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome


@dataclass(frozen=True, slots=True)
class Creation:
    """What `create` said, what the PMS holds since (None where nobody can tell), and what it had answered before the strike."""

    where: str
    booking: Booking
    outcome: Outcome | Misbehaved
    held: int | None
    answered: bytes

    def unlike(self, *expected: type[Outcome]) -> str | None:
        """What is wrong with it, where nothing else than `expected` may be said of what was not made."""
        if self.held is not None and self.held > 1:
            return f"{self.where}: the PMS holds {self.held} reservations of one booking"
        match self.outcome:
            case Confirmed(pms_id) if self.held:
                given = pms_id.encode() in self.answered
                return None if given else f"{self.where}: it said {self.outcome}, with an id that the PMS never gave"
            case InDoubt() if self.held:
                return None
            case Misbehaved() | Confirmed():
                return f"{self.where}: {self.outcome if isinstance(self.outcome, Misbehaved) else self._said()}"
            case outcome if isinstance(outcome, expected) and not self.held:
                return None
            case _:
                return f"{self.where}: {self._said()}"

    def _said(self) -> str:
        knows = {None: "", 0: " where the PMS holds nothing"}
        return f"it said {self.outcome}{knows.get(self.held, ' where the PMS holds the reservation')}"


async def created_under(
    strike: Strike, at: int | None, course: Course, trial: Trial, *, pms: Pms | None = None
) -> Creation | None:
    """A create of a new booking; None where nothing of it could be struck."""
    booking = trial.site.booking()
    outcome = await trial.struck(strike, at, lambda: trial.create(booking, pms))
    if outcome is None:
        return None
    answered = b"".join(each.answer.body for each in trial.wire.exchanges if each.answer is not None)
    held = await trial.held(booking)
    if held is None and strike.delivered and at is not None and at >= course.books_at:
        held = 1
    where = str(strike) if at is None else f"{strike} (exchange {at} of {len(course.statuses)})"
    return Creation(where, booking, outcome, held, answered)


def exchanges(course: Course) -> Iterator[tuple[int, tuple[type[Outcome], ...]]]:
    """Each exchange of a create, and what a failure of it may be said to be where nothing is held since: a doubt, if it is the one
    that books; of those before it, and of those after it where what was booked has been undone, also surely nothing."""
    for at in range(1, len(course.statuses) + 1):
        yield at, (InDoubt,) if at == course.books_at else (Deferred, InDoubt)
