"""What pushes come to, and that one was given up since its row's lease was lost. Pure."""

from typing import TypeVar

from forwarder.pms.port import LEASE_LOST
from forwarder.reservation.outcome import Cancellation, Deferred, Lookup, Outcome
from forwarder.reservation.value import value
from forwarder.store.submissions.work import Attempt

_T = TypeVar("_T", bound=Outcome | Lookup | Cancellation)


class LeaseLost(Exception):
    """The row may be another worker's by now: nothing more may be sent for it, and nothing recorded."""


@value(frozen=True, slots=True)
class PushResult:
    """What a push came to. `attempts` are the last there were, earlier ones first; `possibly_sent`: one of them may have been made.

    `settleable`: the PMS can be asked again about one that was possibly sent, by key or by look-up; `findable`: by look-up.
    `sent_safeguards`: what that one carried, as text.
    """

    outcome: Outcome | Cancellation
    attempts: tuple[Attempt, ...]
    possibly_sent: bool
    settleable: bool = True
    findable: bool = True
    sent_safeguards: str = ""


def held_throughout(outcome: _T) -> _T:
    """`outcome`; raises `LeaseLost` where the lease ran out before all was sent that it takes."""
    if is_not_held(outcome):
        raise LeaseLost
    return outcome


def is_not_held(outcome: Outcome | Lookup | Cancellation) -> bool:
    """Whether `outcome` is that the lease ran out on the way."""
    return isinstance(outcome, Deferred) and outcome.reason == LEASE_LOST


def too_late() -> Deferred:
    """What becomes of a submission that was surely not made by its deadline."""
    return Deferred("deadline_passed", "It had not been made when its deadline came.")
