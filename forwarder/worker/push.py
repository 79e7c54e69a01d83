"""One submission's push: open the card, apply the rules, look before pushing where a push is in doubt, create; or cancel.

Here is decided what an ambiguous push costs. A PMS that takes an idempotency key is simply asked again with the same key. One
that can be searched is searched first. One that can neither is never asked twice. After its deadline a submission is looked for,
where it may have been made, and no longer sent. So is one that is to be cancelled: what was surely not made is not sent any more,
what is found is confirmed first, and then cancelled like any other. Only a PMS that knows nothing but keys is asked once more for
what it may have made, to have something that can be cancelled.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import assert_never

from forwarder.pms.port import (
    CANCELLED_THERE,
    UNPACED,
    BadOptions,
    Capabilities,
    Connection,
    Pace,
    Pms,
    PmsDirectory,
    UnknownKind,
)
from forwarder.reservation.booking import Booking
from forwarder.reservation.cancellation import not_supported
from forwarder.reservation.outcome import (
    Absent,
    Cancellation,
    Cancelled,
    Confirmed,
    Deferred,
    InDoubt,
    Lookup,
    Outcome,
    Rejected,
    Status,
)
from forwarder.reservation.problem import Problem
from forwarder.reservation.request import CardDetails
from forwarder.reservation.rules import apply_rules, booking_without_card
from forwarder.runtime.clock import Clock, iso
from forwarder.store.work import Made, Work
from forwarder.tenancy.port import Account, CannotOpen, Vault
from forwarder.worker.attempts import Attempts, with_attempt
from forwarder.worker.pushed import LeaseLost, Pushed, held_throughout, too_late

MaySend = Callable[[Work], bool]


class Pusher:
    """Pushes for every account. `may_send` tells whether a row's lease still holds; `intend` makes an intent to push durable;
    `pace` is who minds how fast an account's PMS is asked."""

    def __init__(
        self,
        pms: PmsDirectory,
        vault: Vault,
        clock: Clock,
        *,
        may_send: MaySend,
        intend: Callable[[int], Awaitable[bool]],
        pace: Callable[[Account], Pace] = lambda _: UNPACED,
    ) -> None:
        self._pms = pms
        self._vault = vault
        self._clock = clock
        self.may_send = may_send
        self._intend = intend
        self._pace = pace
        self._connected: dict[str, tuple[Account, Pms]] = {}

    async def push(self, account: Account, work: Work) -> Pushed:
        """Push `work` once to `account`'s PMS, or cancel there what was made of it. Raises `LeaseLost` where that was no longer
        this worker's to do."""
        if work.cancel is not None and work.status is Status.PENDING and not work.doubtful:
            return Pushed(Cancelled(), work.attempts, doubtful=False)
        ready = self.prepare(account, work)
        if isinstance(ready, Pushed):
            return ready
        pms, booking = ready
        if work.made is not None:
            return await self._cancel(account, pms, booking, work, work.made)
        push = _Push(self, self._clock, account.kind, pms, booking, work)
        if work.doubtful or work.cancel is not None:
            return await push.run()
        return push.pushed(await push.create())  # as nearly always

    def prepare(self, account: Account, work: Work) -> tuple[Pms, Booking] | Pushed:
        """The PMS and what to ask it for; or what became of `work`, where that is decided before anything is sent."""
        ready = self._prepare(account, work)
        if isinstance(ready, Rejected):
            return Pushed(ready, work.attempts, work.doubtful)
        if isinstance(ready, Deferred):
            attempts = with_attempt(work.attempts, "prepare", iso(self._clock.now()), 0, ready)
            return Pushed(ready, attempts, work.doubtful)
        return ready

    def most_per_create(self, account: Account) -> int:
        """How many reservations one request to `account`'s PMS can ask for; 1 where that cannot be connected to."""
        try:
            return self._connect(account).capabilities.most_per_create
        except (UnknownKind, BadOptions, CannotOpen):
            return 1

    async def _cancel(self, account: Account, pms: Pms, booking: Booking, work: Work, made: Made) -> Pushed:
        if not pms.capabilities.cancel:
            return Pushed(Rejected(not_supported(booking.reference, account.kind)), work.attempts, doubtful=False)
        if not self.may_send(work):
            raise LeaseLost
        attempts = Attempts(self._clock, account.kind, booking.reference, work.attempts)
        asking = pms.cancel(booking, made.pms_reservation_id)
        outcome: Cancellation = held_throughout(await attempts.make("cancel", asking, Deferred))
        return Pushed(outcome, attempts.all, doubtful=False)

    def _prepare(self, account: Account, work: Work) -> tuple[Pms, Booking] | Rejected | Deferred:
        try:
            pms = self._connect(account).while_held(partial(self.may_send, work))
            if work.made is not None:
                return pms, booking_without_card(account.kind, work.submission)
            card = self._open_card(work)
        except UnknownKind as error:
            return Deferred("unknown_kind", str(error))
        except BadOptions as error:
            return Deferred("bad_options", str(error))
        except CannotOpen as error:
            return Deferred("cannot_open", str(error))
        booking = apply_rules(account.kind, work.submission, card)
        return Rejected(booking) if isinstance(booking, Problem) else (pms, booking)

    def _connect(self, account: Account) -> Pms:
        known = self._connected.get(account.id)
        # Nearly always it is the very same, and need not be compared.
        if known is not None and (known[0] is account or known[0] == account):
            return known[1]
        credential = self._vault.open_text(account.credential)
        connection = Connection(
            account.id, account.kind, account.base_url, credential, self._pace(account), account.options
        )
        pms = self._pms.connect(connection)
        self._connected[account.id] = (account, pms)
        return pms

    def _open_card(self, work: Work) -> CardDetails | None:
        sealed = work.submission.card
        return None if sealed is None else self._vault.open_card(sealed)

    async def before_sending(self, pms: Pms, work: Work) -> None:
        """The last look at the lease, and the intent made durable where only that can tell later that bytes may have gone."""
        if not _settleable(pms.capabilities) and not await self._intend(work.id):
            raise LeaseLost
        if not self.may_send(work):
            raise LeaseLost


def _settleable(can: Capabilities) -> bool:
    """Whether such a PMS can be asked what became of a push."""
    return can.idempotent_create or can.find_by_reference


class _Push:
    """One run of the steps, with the attempts it makes."""

    def __init__(self, pusher: Pusher, clock: Clock, kind: str, pms: Pms, booking: Booking, work: Work) -> None:
        self._pusher = pusher
        self._clock = clock
        self._pms = pms
        self._booking = booking
        self._work = work
        self._attempts = Attempts(clock, kind, booking.reference, work.attempts)
        self._can = pms.capabilities

    async def run(self) -> Pushed:
        """All of the steps."""
        maybe_made = self._maybe_made()
        if self._work.cancel is not None:
            return await self._withdraw(maybe_made=maybe_made)
        if maybe_made and (self._late() or self._work.status is Status.IN_DOUBT):
            return await self._look(self._too_late)
        if maybe_made and not self._can.idempotent_create:
            return await self._look(self.create)
        return self.pushed(await self.create(), still_doubtful=maybe_made)

    def _maybe_made(self) -> bool:
        # Where the intent is durable before the first byte, a row without one was taken over before anything was sent.
        marked_first = not _settleable(self._can)
        return self._work.doubtful and (self._work.pushing or not marked_first or self._work.status is Status.IN_DOUBT)

    def _late(self) -> bool:
        return self._clock.now() >= self._work.deadline_at

    async def _too_late(self) -> Outcome:
        return too_late()

    async def _withdraw(self, *, maybe_made: bool) -> Pushed:
        """Find out whether there is something to cancel."""
        if not maybe_made:
            return self.pushed(Cancelled())
        only_by_key = self._can.idempotent_create and not self._can.find_by_reference
        if only_by_key and not self._late() and self._work.status is Status.PENDING:
            return self.pushed(await self.create(), still_doubtful=True)
        return await self._look(self._withdrawn)

    async def _withdrawn(self) -> Cancelled:
        return Cancelled()

    async def _look(self, go_on: Callable[[], Awaitable[Outcome | Cancelled]]) -> Pushed:
        """Look it up; `go_on` where it was surely not made."""
        if not self._can.find_by_reference:
            return self.pushed(InDoubt("cannot_be_checked", "It may have been made, and this PMS cannot be searched."))
        found = await self._find()
        match found:
            case Confirmed():
                return self.pushed(found)
            case Deferred(reason) if reason == CANCELLED_THERE and self._work.cancel is not None:
                return self.pushed(Cancelled())
            case Deferred():
                return self.pushed(found, still_doubtful=True)
            case Absent():
                pass
            case _:
                assert_never(found)
        outcome = await go_on()
        if not isinstance(outcome, Rejected):
            return self.pushed(outcome)
        # The no may be to ourselves: an earlier push that came through only now holds these nights.
        late = await self._find()
        return self.pushed(outcome) if isinstance(late, Absent) else self.pushed(late, still_doubtful=True)

    def pushed(self, outcome: Outcome | Cancelled, *, still_doubtful: bool = False) -> Pushed:
        """What the push came to by `outcome`. `still_doubtful`: an earlier one may have been made, unless it tells."""
        doubtful = isinstance(outcome, InDoubt) or (still_doubtful and isinstance(outcome, Deferred))
        return Pushed(outcome, self._attempts.all, doubtful, _settleable(self._can), self._can.find_by_reference)

    async def create(self) -> Outcome:
        """Ask the PMS to make it, unless it is too late for that."""
        if self._late():
            return too_late()
        if not _settleable(self._can):
            await self._pusher.before_sending(self._pms, self._work)
        elif not self._pusher.may_send(self._work):
            raise LeaseLost
        # What a failing adapter sent is not known.
        outcome: Outcome = await self._attempts.make("create", self._pms.create(self._booking), InDoubt)
        return held_throughout(outcome)

    async def _find(self) -> Lookup:
        await self._pusher.before_sending(self._pms, self._work)
        found: Lookup = await self._attempts.make("find", self._pms.find(self._booking), Deferred)
        return held_throughout(found)
