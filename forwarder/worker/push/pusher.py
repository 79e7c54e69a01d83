"""One submission's push: open the card, apply the rules, look it up first where an earlier push is in doubt, create; or cancel.

This is where an ambiguous push is dealt with. A PMS that takes an idempotency key is asked again with the same key. One that can
be searched is searched first. One that can do neither is never asked twice. What counts is what the earlier push carried: what the
PMS can do by now, or is configured to do, is of no use to an earlier push. After its deadline a submission that may have been made
is looked for, and no longer sent. So is one that is to be cancelled: what was surely not made is not sent any more; what is found
is confirmed first, and then cancelled like any other. Only a PMS that knows nothing but keys is asked once more for what it may
have made, to have something that can be cancelled.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import cache, partial
from typing import NamedTuple, Protocol, TypeVar, assert_never

import structlog
from prometheus_client import Counter, Histogram

from forwarder.observability import metrics
from forwarder.operations.connections import connection_of
from forwarder.operations.repair.completion import AnyOutcome, with_attempt
from forwarder.pms.port import (
    CANCELLED_IN_PMS,
    UNPACED,
    BadOptions,
    Pace,
    Pms,
    PmsDirectory,
    UnknownKind,
)
from forwarder.pms.traits import traits_of
from forwarder.process.clock import Clock, iso
from forwarder.reservation.booking import Booking, apply_rules, booking_without_card
from forwarder.reservation.cancellation import not_supported
from forwarder.reservation.duplicates import transaction_reused
from forwarder.reservation.outcome import (
    Absent,
    Cancelled,
    CancelOutcome,
    Confirmed,
    Deferred,
    InDoubt,
    LookupOutcome,
    Outcome,
    Rejected,
    Status,
)
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.request import CardDetails
from forwarder.reservation.submission import Submission
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.store.submissions.work import Attempt, PmsReservation, Work
from forwarder.tenancy.port import Account, CannotOpen, NotBound, Unsealer
from forwarder.worker.cards.vault import CardGone, CodeGone
from forwarder.worker.push_context import (
    NO_SAFEGUARDS,
    LeaseLost,
    PushResult,
    Safeguards,
    read_safeguards,
    safeguards_of,
    too_late,
    while_leased,
)

_log = structlog.get_logger(__name__)

MaySend = Callable[[Work], bool]


class Cards(Protocol):
    """Opens cards. See `CardVault`."""

    async def open(self, submission: Submission, account: Account) -> CardDetails: ...

    async def put_back(self, request_id: str) -> None: ...

    def used(self, request_id: str) -> None: ...


R = TypeVar("R", Outcome, LookupOutcome, CancelOutcome)


class PreparedPush(NamedTuple):
    """What a push needs. `instead`: what it comes to where it was surely not made before, because a rule refuses it by now, or its
    card is gone; what may have been made is looked for all the same."""

    work: Work
    pms: Pms
    booking: Booking
    safeguards: Safeguards
    instead: Rejected | Deferred | None = None


class _ConnectedAccount(NamedTuple):
    account: Account
    pms: Pms
    safeguards: Safeguards
    written: str


class Pusher:
    """Pushes for every account. `may_send` says whether a row's lease still holds; `intend` makes an intent to push durable;
    `pace` is what limits how fast an account's PMS is asked."""

    def __init__(
        self,
        pms: PmsDirectory,
        unsealer: Unsealer,
        clock: Clock,
        cards: Cards,
        *,
        may_send: MaySend,
        intend: Callable[[int], Awaitable[bool]],
        pace: Callable[[Account], Pace] = lambda _: UNPACED,
    ) -> None:
        self._pms = pms
        self._unsealer = unsealer
        self._clock = clock
        self._cards = cards
        self.may_send = may_send
        self._intend = intend
        self._pace = pace
        self._connected: dict[str, _ConnectedAccount] = {}

    async def push(self, account: Account, work: Work) -> PushResult:
        """Push `work` once to `account`'s PMS, or cancel there what was made of it. Raises `LeaseLost` where that was no longer
        this worker's to do."""
        if work.cancellation is not None and work.status is Status.PENDING and not work.possibly_sent:
            return PushResult(Cancelled(), work.attempts, possibly_sent=False)
        if work.submission.card is None:  # as nearly always
            return await self._push(account, work)
        try:
            result = await self._push(account, work)
        except LeaseLost:
            await self.note_use_of_card(work, None)
            raise
        except BaseException:  # what was sent is not known
            self._cards.used(work.submission.request_id)
            raise
        await self.note_use_of_card(work, result)
        return result

    async def note_use_of_card(self, work: Work, result: PushResult | None) -> None:
        """Give the security code back for the next try where this one surely did not use it; None: it was not sent."""
        request_id, last = work.submission.request_id, work.attempts[-1].number if work.attempts else 0
        tried = () if result is None else [each for each in result.attempts if each.number > last]
        if any(each.action == "create" and each.outcome != "deferred" for each in tried):
            self._cards.used(request_id)
            return
        try:
            await self._cards.put_back(request_id)
        except StoreUnavailable as error:
            _log.warning("card.code_not_put_back", request_id=request_id, error=str(error))

    async def _push(self, account: Account, work: Work) -> PushResult:
        prepared = await self.prepare(account, work)
        if isinstance(prepared, PushResult):
            return prepared
        if work.pms_reservation is not None:
            return await self._cancel(account, prepared, work.pms_reservation)
        run = _PushRun(self, self._clock, account.kind, prepared)
        if work.possibly_sent or work.cancellation is not None or work.status is Status.IN_DOUBT:
            return await run.resume()
        return await run.create()  # as nearly always

    async def prepare(self, account: Account, work: Work) -> PreparedPush | PushResult:
        """What a push needs; or what became of `work`, where that is decided before anything is sent."""
        card = None if work.submission.card is None else await self._open_card(account, work)
        prepared = self._prepare(account, work, card)
        if isinstance(prepared, Rejected):
            return PushResult(prepared, work.attempts, possibly_sent=False)
        if isinstance(prepared, Deferred):
            attempts = with_attempt(work.attempts, "prepare", iso(self._clock.now()), 0, prepared)
            return PushResult(prepared, attempts, work.possibly_sent, sent_safeguards=work.sent_safeguards)
        return prepared

    def max_per_create(self, account: Account) -> int:
        """How many reservations one request to `account`'s PMS can ask for; 1 where that cannot be connected to."""
        try:
            return self._connect(account).pms.capabilities.max_per_create
        except (UnknownKind, BadOptions, CannotOpen):
            return 1

    def safeguards(self, account: Account) -> str | None:
        """What pushes to `account`'s PMS carry now, as a row is leased with it; None where that cannot be connected to."""
        try:
            return self._connect(account).written
        except (UnknownKind, BadOptions, CannotOpen):
            return None

    async def _cancel(self, account: Account, prepared: PreparedPush, made: PmsReservation) -> PushResult:
        work, pms, booking = prepared.work, prepared.pms, prepared.booking
        if not pms.capabilities.cancel:
            return PushResult(
                Rejected(not_supported(booking.reference, account.kind)), work.attempts, possibly_sent=False
            )
        if not self.may_send(work):
            raise LeaseLost
        attempts = Attempts(self._clock, account.kind, booking.reference, work.attempts)
        asking = pms.cancel(booking, made.pms_reservation_id)
        outcome: CancelOutcome = while_leased(await attempts.make("cancel", asking, Deferred))
        return PushResult(outcome, attempts.all, possibly_sent=False)

    def _prepare(
        self, account: Account, work: Work, card: CardDetails | Deferred | None
    ) -> PreparedPush | Rejected | Deferred:
        if work.transaction_of is not None:  # so it was never sent
            return Rejected(transaction_reused(work.transaction_of))
        traits = traits_of(account.kind)
        try:
            connected = self._connect(account)
            pms, safeguards = connected.pms.while_held(partial(self.may_send, work)), connected.safeguards
            if work.pms_reservation is not None or _is_only_looked_for(work):
                return PreparedPush(work, pms, booking_without_card(traits, work.submission), safeguards)
        except UnknownKind as error:
            return Deferred("unknown_kind", str(error))
        except BadOptions as error:
            return Deferred("bad_options", str(error))
        except CannotOpen as error:
            return Deferred("cannot_open", str(error))
        instead: Rejected | Deferred
        if isinstance(card, Deferred):
            instead = card
        else:
            # Once more after the ingress: the account may have changed since, or the card expired.
            booking = apply_rules(traits, work.submission, card, self._clock.now())
            if not isinstance(booking, Problem):
                return PreparedPush(work, pms, booking, safeguards)
            instead = Rejected(booking)
        if not work.possibly_sent:
            return instead
        return PreparedPush(work, pms, booking_without_card(traits, work.submission), safeguards, instead)

    def _connect(self, account: Account) -> _ConnectedAccount:
        known = self._connected.get(account.id)
        # Nearly always it is the very same, and need not be compared.
        if known is not None and (known.account is account or known.account == account):
            return known
        connection = connection_of(account, self._unsealer, self._pace(account))
        pms = self._pms.connect(connection)
        safeguards = safeguards_of(account.kind, account.base_url, pms.capabilities)
        connected = self._connected[account.id] = _ConnectedAccount(account, pms, safeguards, str(safeguards))
        return connected

    async def _open_card(self, account: Account, work: Work) -> CardDetails | Deferred | None:
        """The card, None where none is sent; or why there is none."""
        sent = (
            work.pms_reservation is None
            and not _is_only_looked_for(work)
            and traits_of(account.kind).sends_card(work.submission.reservation)
        )
        if not sent:
            return None
        try:
            return await self._cards.open(work.submission, account)
        except CardGone as error:
            return Deferred("card_gone", str(error))
        except CodeGone as error:
            return Deferred("card_code_gone", str(error))
        except NotBound as error:
            _log.error("card.not_bound", request_id=work.submission.request_id, account_id=account.id)
            return Deferred("card_not_bound", str(error))
        except CannotOpen as error:
            return Deferred("cannot_open", str(error))
        except StoreUnavailable as error:
            return Deferred("store_unavailable", str(error))

    async def before_sending(self, work: Work, safeguards: Safeguards) -> None:
        """The last look at the lease, and the intent made durable where only that can tell later that bytes may have gone."""
        if not safeguards and not await self._intend(work.id):
            raise LeaseLost
        if not self.may_send(work):
            raise LeaseLost


def _is_only_looked_for(work: Work) -> bool:
    """Whether its card is of no use any more: what is in doubt is not sent again."""
    return work.submission.card is not None and work.status is Status.IN_DOUBT


class _PushRun:
    """One push, and the attempts it makes."""

    def __init__(self, pusher: Pusher, clock: Clock, kind: str, prepared: PreparedPush) -> None:
        self._pusher = pusher
        self._clock = clock
        self._pms = prepared.pms
        self._booking = prepared.booking
        self._instead = prepared.instead
        self._work = prepared.work
        self._attempts = Attempts(clock, kind, prepared.booking.reference, prepared.work.attempts)
        self._current = prepared.safeguards
        self._sent_safeguards = NO_SAFEGUARDS

    async def create(self) -> PushResult:
        """Create it: nothing was sent of it before."""
        return self._result(await self._create(), self._current)

    async def resume(self) -> PushResult:
        """What may have been made before, or is to be cancelled: ask about that first."""
        maybe_made = self._work.possibly_sent or self._work.status is Status.IN_DOUBT
        self._sent_safeguards = read_safeguards(self._work.sent_safeguards)
        if self._work.cancellation is not None:
            return await self._look_before_cancelling(maybe_made=maybe_made)
        if not maybe_made:
            return await self.create()
        if self._instead is not None:
            return await self._look_up(self._instead)
        if self._late():
            return await self._look_up(too_late())
        if self._work.status is Status.IN_DOUBT:
            return await self._look_up(Deferred("not_made", "The PMS had not made it, and it is not sent again."))
        if self._usable.key:
            return await self._create_again()
        return await self._look_up()

    @property
    def _usable(self) -> Safeguards:
        """What the earlier push carried that the PMS can be asked by now."""
        return self._sent_safeguards.common_with(self._current)

    def _late(self) -> bool:
        return self._clock.now() >= self._work.deadline_at

    async def _create_again(self) -> PushResult:
        """Send it again under the key that the earlier push carried: both together make one."""
        outcome = await self._create()
        sent_safeguards = self._usable if isinstance(outcome, InDoubt) else self._sent_safeguards
        return self._result(outcome, sent_safeguards, still_possibly_sent=True)

    async def _look_before_cancelling(self, *, maybe_made: bool) -> PushResult:
        """Find out whether there is something to cancel."""
        if not maybe_made:
            return self._result(Cancelled(), NO_SAFEGUARDS)
        only_by_key = self._usable.key and not self._usable.reference and self._instead is None
        if only_by_key and not self._late() and self._work.status is Status.PENDING:
            return await self._create_again()
        return await self._look_up(Cancelled())

    async def _look_up(self, if_absent: Outcome | Cancelled | None = None) -> PushResult:
        """Look it up. Where it was surely not made it comes to `if_absent`; without that it is created."""
        if not self._usable.reference:
            return self._result(_cannot_be_checked(self._current), self._sent_safeguards)
        found = await self._find()
        match found:
            case Confirmed():
                return self._result(found, NO_SAFEGUARDS)
            case Deferred(reason) if reason == CANCELLED_IN_PMS and self._work.cancellation is not None:
                return self._result(Cancelled(), NO_SAFEGUARDS)
            case Deferred():
                return self._result(found, self._sent_safeguards, still_possibly_sent=True)
            case Absent():
                pass
            case _:
                assert_never(found)
        outcome = await self._create() if if_absent is None else if_absent
        if not isinstance(outcome, Rejected):
            return self._result(outcome, self._current)
        # The no may be to ourselves: an earlier push that came through only now holds these nights.
        late = await self._find()
        if isinstance(late, Absent):
            return self._result(outcome, NO_SAFEGUARDS)
        return self._result(late, self._sent_safeguards, still_possibly_sent=True)

    def _result(
        self, outcome: Outcome | Cancelled, sent_safeguards: Safeguards, *, still_possibly_sent: bool = False
    ) -> PushResult:
        """What the push came to by `outcome`. `sent_safeguards`: what the one carried that is left in doubt, if one is.
        `still_possibly_sent`: an earlier one may have been made, unless `outcome` settles that."""
        possibly_sent = isinstance(outcome, InDoubt) or (still_possibly_sent and isinstance(outcome, Deferred))
        usable = sent_safeguards.common_with(self._current)
        return PushResult(
            outcome,
            self._attempts.all,
            possibly_sent,
            bool(usable),
            usable.reference,
            str(sent_safeguards) if possibly_sent else "",
        )

    async def _create(self) -> Outcome:
        """Ask the PMS to make it, unless it is too late for that."""
        if self._late():
            return too_late()
        await self._pusher.before_sending(self._work, self._current)
        # What a failing adapter sent is not known.
        outcome: Outcome = await self._attempts.make("create", self._pms.create(self._booking), InDoubt)
        return while_leased(outcome)

    async def _find(self) -> LookupOutcome:
        await self._pusher.before_sending(self._work, self._current)
        found: LookupOutcome = await self._attempts.make("find", self._pms.find(self._booking), Deferred)
        return while_leased(found)


def _cannot_be_checked(current: Safeguards) -> InDoubt:
    if current.reference:
        return InDoubt("cannot_be_checked", "It may have been made, by a push that this PMS cannot be searched for.")
    return InDoubt("cannot_be_checked", "It may have been made, and this PMS cannot be searched.")


class Attempts:
    """What was tried with one submission, `earlier` attempts first. Each exchange with the PMS is timed, noted and counted."""

    def __init__(self, clock: Clock, kind: str, request_id: str, earlier: tuple[Attempt, ...]) -> None:
        self._clock = clock
        self._kind = kind
        self._request_id = request_id
        self.all = earlier

    async def make(self, action: str, asking: Awaitable[R], after_a_bug: Callable[[str, str], R]) -> R:
        """What `asking` comes to. An adapter's bug costs one row, not all: it is `after_a_bug`, of a reason and a detail."""
        began = self._clock.now(), self._clock.monotonic()
        try:
            outcome = await asking
        except Exception as error:  # noqa: BLE001 - as said
            _log.exception("adapter.failed", action=action, request_id=self._request_id)
            outcome = after_a_bug("adapter_failed", type(error).__name__)
        self.note(action, began, outcome)
        return outcome

    def note(self, action: str, began: tuple[datetime, float], outcome: AnyOutcome) -> None:
        """That `action` came to `outcome` now. `began`: when, on the wall and on the monotonic clock."""
        started_at, since = began
        seconds = self._clock.monotonic() - since
        self.all = with_attempt(self.all, action, iso(started_at), seconds, outcome)
        pushes, took = _pushes(self._kind, action, self.all[-1].outcome)
        pushes.inc()
        took.observe(seconds)


@cache
def _pushes(kind: str, action: str, outcome: str) -> tuple[Counter, Histogram]:
    """What counts and times them, kept: to look it up by its labels costs more than to count."""
    return metrics.PUSHES.labels(kind, action, outcome), metrics.PUSH_SECONDS.labels(kind, action)
