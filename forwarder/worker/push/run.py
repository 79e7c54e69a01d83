"""One push: create it; or, where an earlier push may have made it, look it up first or send it again under its key.

This is where an ambiguous push is dealt with. A PMS that takes an idempotency key is asked again with the same key. One that can
be searched is searched first. One that can do neither is never asked twice. What counts is what the earlier push carried: what the
PMS can do by now, or is configured to do, is of no use to an earlier push. After its deadline a submission that may have been made
is looked for, and no longer sent. So is one that is to be cancelled: what was surely not made is not sent any more; what is found
is confirmed first, and then cancelled like any other. Only a PMS that knows nothing but keys is asked once more for what it may
have made, to have something that can be cancelled.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, assert_never

from msgspec import Struct

from forwarder.pms.port import CANCELLED_IN_PMS, Pms
from forwarder.process.clock import Clock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import (
    Absent,
    Cancelled,
    Confirmed,
    Deferred,
    InDoubt,
    LookupOutcome,
    Outcome,
    Rejected,
    Status,
)
from forwarder.store.submissions.work import Work
from forwarder.worker.push.attempts import Attempts
from forwarder.worker.push_context import (
    NO_SAFEGUARDS,
    PushResult,
    Safeguards,
    read_safeguards,
    too_late,
    while_leased,
)

BeforeSending = Callable[[Work, Safeguards], Awaitable[None]]
"""The last look at the lease, with the intent made durable. Raises `LeaseLost`."""


class PreparedPush(NamedTuple):
    """What a push needs. `instead`: what it comes to where it was surely not made before, because a rule refuses it by now, or its
    card is gone; what may have been made is looked for all the same."""

    work: Work
    pms: Pms
    booking: Booking
    safeguards: Safeguards
    instead: Rejected | Deferred | None = None


class PushRun(Struct, eq=False):
    """One push, and the attempts it makes. `sent_safeguards`: what an earlier push carried."""

    prepared: PreparedPush
    attempts: Attempts
    clock: Clock
    before_sending: BeforeSending
    sent_safeguards: Safeguards = NO_SAFEGUARDS

    async def create(self) -> PushResult:
        """Create it: nothing was sent of it before."""
        return self._result(await self._create(), self.prepared.safeguards)

    async def resume(self) -> PushResult:
        """What may have been made before, or is to be cancelled: ask about that first."""
        maybe_made = self.prepared.work.possibly_sent or self.prepared.work.status is Status.IN_DOUBT
        self.sent_safeguards = read_safeguards(self.prepared.work.sent_safeguards)
        if self.prepared.work.cancellation is not None:
            return await self._look_before_cancelling(maybe_made=maybe_made)
        if not maybe_made:
            return await self.create()
        if self.prepared.instead is not None:
            return await self._look_up(self.prepared.instead)
        if self._late():
            return await self._look_up(too_late())
        if self.prepared.work.status is Status.IN_DOUBT:
            return await self._look_up(Deferred("not_made", "The PMS had not made it, and it is not sent again."))
        if self._usable.key:
            return await self._create_again()
        return await self._look_up()

    @property
    def _usable(self) -> Safeguards:
        """What the earlier push carried that the PMS can be asked by now."""
        return self.sent_safeguards.common_with(self.prepared.safeguards)

    def _late(self) -> bool:
        return self.clock.now() >= self.prepared.work.deadline_at

    async def _create_again(self) -> PushResult:
        """Send it again under the key that the earlier push carried: both together make one."""
        outcome = await self._create()
        sent_safeguards = self._usable if isinstance(outcome, InDoubt) else self.sent_safeguards
        return self._result(outcome, sent_safeguards, still_possibly_sent=True)

    async def _look_before_cancelling(self, *, maybe_made: bool) -> PushResult:
        """Find out whether there is something to cancel."""
        if not maybe_made:
            return self._result(Cancelled(), NO_SAFEGUARDS)
        only_by_key = self._usable.key and not self._usable.reference and self.prepared.instead is None
        if only_by_key and not self._late() and self.prepared.work.status is Status.PENDING:
            return await self._create_again()
        return await self._look_up(Cancelled())

    async def _look_up(self, if_absent: Outcome | Cancelled | None = None) -> PushResult:
        """Look it up. Where it was surely not made it comes to `if_absent`; without that it is created."""
        if not self._usable.reference:
            return self._result(_cannot_be_checked(self.prepared.safeguards), self.sent_safeguards)
        found = await self._find()
        match found:
            case Confirmed():
                return self._result(found, NO_SAFEGUARDS)
            case Deferred(reason) if reason == CANCELLED_IN_PMS and self.prepared.work.cancellation is not None:
                return self._result(Cancelled(), NO_SAFEGUARDS)
            case Deferred():
                return self._result(found, self.sent_safeguards, still_possibly_sent=True)
            case Absent():
                pass
            case _:
                assert_never(found)
        outcome = await self._create() if if_absent is None else if_absent
        if not isinstance(outcome, Rejected):
            return self._result(outcome, self.prepared.safeguards)
        # The no may be to ourselves: an earlier push that came through only now holds these nights.
        late = await self._find()
        if isinstance(late, Absent):
            return self._result(outcome, NO_SAFEGUARDS)
        return self._result(late, self.sent_safeguards, still_possibly_sent=True)

    def _result(
        self, outcome: Outcome | Cancelled, sent_safeguards: Safeguards, *, still_possibly_sent: bool = False
    ) -> PushResult:
        """What the push came to by `outcome`. `sent_safeguards`: what the one carried that is left in doubt, if one is.
        `still_possibly_sent`: an earlier one may have been made, unless `outcome` settles that."""
        possibly_sent = isinstance(outcome, InDoubt) or (still_possibly_sent and isinstance(outcome, Deferred))
        usable = sent_safeguards.common_with(self.prepared.safeguards)
        return PushResult(
            outcome,
            self.attempts.all,
            possibly_sent,
            bool(usable),
            usable.reference,
            str(sent_safeguards) if possibly_sent else "",
        )

    async def _create(self) -> Outcome:
        """Ask the PMS to make it, unless it is too late for that."""
        if self._late():
            return too_late()
        await self.before_sending(self.prepared.work, self.prepared.safeguards)
        # What a failing adapter sent is not known.
        outcome: Outcome = await self.attempts.make("create", self.prepared.pms.create(self.prepared.booking), InDoubt)
        return while_leased(outcome)

    async def _find(self) -> LookupOutcome:
        await self.before_sending(self.prepared.work, self.prepared.safeguards)
        found: LookupOutcome = await self.attempts.make("find", self.prepared.pms.find(self.prepared.booking), Deferred)
        return while_leased(found)


def _cannot_be_checked(current: Safeguards) -> InDoubt:
    if current.reference:
        return InDoubt("cannot_be_checked", "It may have been made, by a push that this PMS cannot be searched for.")
    return InDoubt("cannot_be_checked", "It may have been made, and this PMS cannot be searched.")
