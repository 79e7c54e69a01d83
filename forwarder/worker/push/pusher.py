"""Prepares one submission's push: connect to the account's PMS, open the card, apply the rules; then create, look up or cancel."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import structlog

from forwarder.observability import metrics
from forwarder.pms.accounts import connection_of, same_before, target_of, traits_of
from forwarder.pms.port import BadOptions, Capabilities, Pace, Pms, PmsDirectory, UnknownKind
from forwarder.process.clock import Clock, iso
from forwarder.process.containment import FAULTS, Where, contained
from forwarder.reservation.booking import Booking, apply_rules, booking_without_card
from forwarder.reservation.evidence import ANOTHER_PMS, Facts, LookUp, SendAgain, Target
from forwarder.reservation.outcome import Cancelled, Deferred, Rejected, Status, not_supported
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.request import CardDetails
from forwarder.store.submissions.port import PmsReservation, StoreUnavailable, Work, with_attempt
from forwarder.tenancy.port import Account, CannotOpen, NotBound, TenancyUnavailable, Unsealer
from forwarder.worker.cards import CardGone, CardVault, CodeGone
from forwarder.worker.outcome.policy import CARD_KEY_MISSING
from forwarder.worker.parts import WorkerSettings
from forwarder.worker.push.run import CancelledMeanwhile, LeaseLost, PushClock, PushContext, PushRun, ask, step_of

_log = structlog.get_logger(__name__)

_UNUSABLE_SECONDS: Final = 60.0  # how long an account whose adapter raised during set-up is not retried
_UNCONNECTED: Final = {UnknownKind: "unknown_kind", BadOptions: "bad_options"}

MaySend = Callable[[Work], bool]


class _ConnectedAccount(NamedTuple):
    account: Account
    pms: Pms
    facts: Facts
    written: str


@dataclass(eq=False, repr=False)
class Pusher:
    """Pushes for every account. `may_send`: whether a row's lease still holds; `intend` makes the intent to push durable; `sure`:
    whether the store is known to be the one that granted the lease; `is_cancelled`: whether a cancellation was ingested since the
    row was leased; `pace`: the account's rate limit; `credential_key`: of the hash that distinguishes credentials."""

    pms: PmsDirectory
    unsealer: Unsealer
    clock: Clock
    cards: CardVault
    settings: WorkerSettings
    credential_key: bytes
    may_send: MaySend
    intend: Callable[[int], Awaitable[bool]]
    sure: Callable[[], Awaitable[bool]]
    is_cancelled: Callable[[Work], bool]
    pace: Callable[[Account], Pace]

    def __post_init__(self) -> None:
        self.pushes = PushClock(self.clock)
        self._connected: dict[str, _ConnectedAccount] = {}
        self._unusable: dict[str, tuple[Account, float, str]] = {}

    async def push(self, push: PushContext) -> None:
        """Pushes it once, or cancels its reservation. Raises `LeaseLost` if the row is no longer this worker's."""
        if push.work.submission.card is None:
            return await self._push(push)
        try:
            await self._push(push)
        except LeaseLost:
            await self.note_use_of_card(push)
            raise
        except BaseException:  # the card may have been sent
            self.cards.used(push.work.submission.request_id)
            raise
        return await self.note_use_of_card(push)

    async def note_use_of_card(self, push: PushContext) -> None:
        """Restores the security code for the next attempt if this one surely did not use it."""
        work, request_id = push.work, push.work.submission.request_id
        last = work.attempts[-1].number if work.attempts else 0
        tried = [each for each in push.attempts if each.number > last]
        if any(each.action == "create" and each.outcome != "deferred" for each in tried):
            self.cards.used(request_id)
            return
        try:
            await self.cards.put_back(request_id)
        except StoreUnavailable as error:
            _log.warning("card.code_not_put_back", request_id=request_id, error=str(error))
        except FAULTS as error:  # the push's outcome is known, and must still be recorded
            contained(Where.CARD_KEYS, error, request_id=request_id)

    async def _push(self, push: PushContext) -> None:
        work = push.work
        if work.cancellation is not None and work.status is Status.PENDING and not work.possibly_sent:
            push.outcome = Cancelled()
            return
        run = await self.prepare(push)
        if run is None:
            return
        if work.pms_reservation is not None:
            await self._cancel(run, work.pms_reservation)
        elif work.possibly_sent or work.cancellation is not None or work.status is Status.IN_DOUBT:
            await run.resume()
        else:
            await run.create(work.evidence)  # as nearly always

    def max_per_create(self, account: Account) -> int:
        """How many reservations one request to `account`'s PMS can create; 1 if the account cannot be connected."""
        connected = self._connected_or_none(account)
        return 1 if connected is None else connected.pms.capabilities.max_per_create

    def target(self, account: Account) -> str | None:
        """The current target of `account`'s pushes, as stored when rows are leased; None if the account cannot be connected."""
        connected = self._connected_or_none(account)
        return None if connected is None else connected.written

    def seconds_to_wait(self, account: Account, work: Work) -> float:
        """How long to wait before the next look-up or repeat for the open pushes of `work`."""
        connected = self._connected_or_none(account)
        if work.pms_reservation is not None or connected is None:
            return 0.0  # the push says why it cannot be connected
        now, waited = self.clock.now(), self.pushes.seconds(work)
        match step_of(work, work.evidence, connected.facts, now, waited):
            case LookUp(seconds) | SendAgain(seconds):
                return seconds
            case _:
                return 0.0

    async def _cancel(self, run: PushRun, made: PmsReservation) -> None:
        push, work, kind = run.push, run.push.work, run.push.account.kind
        if not run.pms.capabilities.cancel:
            push.outcome = Rejected(not_supported(run.booking.reference, kind))
            return
        origin = work.evidence.origin
        if origin is not None and not run.facts.same_pms(origin):
            self._defer(push, Deferred("pms_is_another", ANOTHER_PMS))
            return
        if not await self.sure() or not self.may_send(work):
            raise LeaseLost
        asking = run.pms.cancel(run.booking, made.pms_reservation_id)
        push.outcome = await ask(push, self.clock, "cancel", asking, Deferred)

    async def prepare(self, push: PushContext) -> PushRun | None:
        """The prepared push; None if its outcome is decided before anything is sent."""
        account, work = push.account, push.work
        card = None if work.submission.card is None else await self._open_card(account, work)
        traits = traits_of(account.kind)
        try:
            connected = self._connect(account)
            pms = connected.pms.while_held(partial(self.may_send, work))
        except (UnknownKind, BadOptions, CannotOpen) as error:
            self._defer(push, Deferred(_UNCONNECTED.get(type(error), "cannot_open"), str(error)))
            return None
        run = partial(PushRun, push, pms, connected.facts, self.clock, self.before_sending, self.pushes.seconds)
        if work.pms_reservation is not None or _is_only_looked_for(work):
            return run(booking_without_card(traits, work.submission))
        # The ingress applied the rules too, but the account may have changed since, or the card expired.
        given = card if isinstance(card, Deferred) else apply_rules(traits, work.submission, card, self.clock.now())
        if isinstance(given, Booking):
            return run(given)
        instead = Rejected(given) if isinstance(given, Problem) else given
        if work.possibly_sent:
            return run(booking_without_card(traits, work.submission), instead)
        if isinstance(instead, Deferred):
            self._defer(push, instead)
        else:
            push.outcome = instead
        return None

    def _defer(self, push: PushContext, deferred: Deferred) -> None:
        push.outcome = deferred
        push.attempts = with_attempt(push.work.attempts, "prepare", iso(self.clock.now()), 0, deferred)
        push.step = LookUp() if push.work.possibly_sent else None

    def _connected_or_none(self, account: Account) -> _ConnectedAccount | None:
        try:
            return self._connect(account)
        except (UnknownKind, BadOptions, CannotOpen):
            return None

    def _connect(self, account: Account) -> _ConnectedAccount:
        known = self._connected.get(account.id)
        # Nearly always it is the very same, and need not be compared.
        if known is not None and (known.account is account or known.account == account):
            return known
        failed = self._unusable.get(account.id)
        if failed is not None and failed[0] == account and self.clock.monotonic() < failed[1]:
            raise BadOptions(failed[2])
        connection = connection_of(account, self.unsealer, self.pace(account))
        try:
            pms = self.pms.connect(connection)
            can = pms.capabilities
            target = target_of(account.kind, account.base_url, connection.credential, can, self.credential_key)
            facts = facts_of(target, can, account, self.settings)
        except (UnknownKind, BadOptions, CannotOpen):
            raise
        except FAULTS as error:
            fault = contained(Where.ADAPTER, error, account_id=account.id, adapter=account.kind)
            told = f"The adapter of kind {account.kind} cannot be set up for this account. {fault}"
            self._unusable[account.id] = account, self.clock.monotonic() + _UNUSABLE_SECONDS, told
            raise BadOptions(told) from error
        connected = self._connected[account.id] = _ConnectedAccount(account, pms, facts, target.text)
        return connected

    async def _open_card(self, account: Account, work: Work) -> CardDetails | Deferred | None:
        """The card, None where none is sent; or why there is none."""
        if work.pms_reservation is not None or _is_only_looked_for(work):
            return None
        if not traits_of(account.kind).sends_card(work.submission.reservation):
            return None
        try:
            return await self.cards.open(work.submission, account)
        except CardGone as error:
            return Deferred("card_gone", str(error))
        except CodeGone as error:
            return Deferred("card_code_gone", str(error))
        except NotBound as error:
            _log.error("card.not_bound", request_id=work.submission.request_id, account_id=account.id)
            return Deferred("card_not_bound", str(error))
        except CannotOpen as error:
            metrics.CARD_KEYS_MISSING.inc()
            return Deferred(CARD_KEY_MISSING, str(error))
        except (StoreUnavailable, TenancyUnavailable) as error:
            return Deferred("store_unavailable", str(error))

    async def before_sending(self, push: PushContext, target: Target) -> None:
        """The last check of store, lease and cancellation. Makes the intent durable if nothing else could show later that the push
        may have been sent. Nothing was sent under this lease yet, or the row notes it; so a cancelled row can be given back."""
        if not await self.sure():
            raise LeaseLost
        if not (target.key or target.reference) and not await self.intend(push.work.id):
            raise LeaseLost
        if not self.may_send(push.work):
            raise LeaseLost
        if self.is_cancelled(push.work):
            raise CancelledMeanwhile
        push.sent = True


def _is_only_looked_for(work: Work) -> bool:
    """Whether its card is no longer needed: a submission in doubt is not sent again."""
    return work.submission.card is not None and work.status is Status.IN_DOUBT


def facts_of(target: Target, can: Capabilities, account: Account, settings: WorkerSettings) -> Facts:
    """The facts about the account's PMS that `next_step` needs. A simulated PMS shows bookings at once."""
    stated = 0.0 if account.test else can.settles
    immediate = account.settles_seconds is None and stated == 0.0
    settles = max(settings.settles_seconds if stated is None else stated, account.settles_seconds or 0.0)
    return Facts(target, settles, immediate, settings.push_seconds, can.key_seconds, same_before(account))
