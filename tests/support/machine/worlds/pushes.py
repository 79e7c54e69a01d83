"""Every create that a PMS was sent, as the PMS had it: with a key or without, and whether anybody was told what became of it.

A reservation may be asked for again only where it can be known what the earlier push came to: both carry the key, or somebody
looked once the earlier one had come to rest, and found nothing.
"""

from collections import defaultdict
from dataclasses import dataclass

from forwarder.reservation.outcome import Confirmed, InDoubt, Outcome, Rejected

SETTLE_SECONDS = 30.0
"""Within so long of its first byte a PMS makes what it was asked for, or never. It is the push time-out."""

_INSTANT = 1e-6


@dataclass(slots=True)
class Push:
    """One create. `open`: nobody was told for certain what became of it."""

    sent_at: float
    keyed: bool
    open: bool = True


class Pushes:
    """By reference. `violations` are the creates that should not have been sent."""

    def __init__(self) -> None:
        self._of: defaultdict[str, list[Push]] = defaultdict(list)
        self._looked_at: defaultdict[str, list[float]] = defaultdict(list)
        self.violations: list[str] = []

    def any_of(self, reference: str) -> bool:
        """Whether it was ever sent."""
        return bool(self._of[reference])

    def looked_for(self, reference: str) -> bool:
        """Whether anybody asked for it, in vain."""
        return bool(self._looked_at[reference])

    def send(self, reference: str, now: float, *, keyed: bool) -> Push:
        """The first byte of a create arrives."""
        push = Push(now, keyed)
        for earlier in self._of[reference]:
            if earlier.open and not (earlier.keyed and keyed) and not self._looked_after(reference, earlier):
                looks = [at for at in self._looked_at[reference] if at >= earlier.sent_at]
                self.violations.append(f"{reference} sent blindly: {push}, after {earlier}; looked for at {looks}")
        self._of[reference].append(push)
        return push

    def found_nothing(self, reference: str, now: float) -> None:
        """Somebody asks whether it is there, and is told that it is not."""
        self._looked_at[reference].append(now)

    def settle(self, reference: str) -> None:
        """It was found, or an operator has looked: what became of every earlier push is known."""
        for push in self._of[reference]:
            push.open = False

    def answer(self, reference: str, push: Push, outcome: Outcome) -> None:
        """The one who sent it is told. What is said for good under a key is said of all that carried it, once they have come to
        rest."""
        push.open = isinstance(outcome, InDoubt)
        if push.keyed and isinstance(outcome, Confirmed | Rejected):
            for earlier in self._of[reference]:
                earlier.open &= not (earlier.keyed and earlier.sent_at + SETTLE_SECONDS <= push.sent_at + _INSTANT)

    def unsettled(self, reference: str) -> bool:
        """Whether one of them may have been made, for all that anybody can know."""
        return any(push.open and not self._looked_after(reference, push) for push in self._of[reference])

    def _looked_after(self, reference: str, push: Push) -> bool:
        rests = push.sent_at + SETTLE_SECONDS - _INSTANT
        return any(at >= rests for at in self._looked_at[reference])
