"""One submission's push: open the card, apply the rules, look before pushing where a push is in doubt, create.

Here is decided what an ambiguous push costs. A PMS that takes an idempotency key is simply asked again with the same key. One
that can be searched is searched first. One that can neither is never asked twice. After its deadline a submission is looked for,
where it may have been made, and no longer sent.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import assert_never

import structlog

from forwarder.pms.port import UNPACED, BadOptions, Connection, Pace, Pms, PmsDirectory, UnknownKind
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, InDoubt, Lookup, Outcome, Rejected, Status
from forwarder.reservation.problem import Problem
from forwarder.reservation.request import CardDetails
from forwarder.reservation.rules import apply_rules
from forwarder.runtime import metrics
from forwarder.runtime.clock import Clock, iso
from forwarder.store.port import Attempt, Work
from forwarder.tenancy.port import Account, CannotOpen, Vault

_log = structlog.get_logger(__name__)

_ATTEMPTS_KEPT = 50


class LeaseLost(Exception):
    """The row may be another worker's by now: nothing more may be sent for it, and nothing recorded."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push came to. `attempts` are the last there were, earlier ones first; `doubtful`: one of them may have been made.

    `settleable`: the PMS can be asked again about a doubtful one, by key or by look-up; `findable`: by look-up.
    """

    outcome: Outcome
    attempts: tuple[Attempt, ...]
    doubtful: bool
    settleable: bool = True
    findable: bool = True


class Pusher:
    """Pushes for every account. `may_send` tells whether the lease still holds; `intend` makes an intent to push durable; `pace` is
    who minds how fast an account's PMS is asked."""

    def __init__(
        self,
        pms: PmsDirectory,
        vault: Vault,
        clock: Clock,
        *,
        may_send: Callable[[], bool],
        intend: Callable[[int], Awaitable[bool]],
        pace: Callable[[Account], Pace] = lambda _: UNPACED,
    ) -> None:
        self._pms = pms
        self._vault = vault
        self._clock = clock
        self._may_send = may_send
        self._intend = intend
        self._pace = pace
        self._connected: dict[str, tuple[Account, Pms]] = {}

    async def push(self, account: Account, work: Work) -> Pushed:
        """Push `work` once to `account`'s PMS. Raises `LeaseLost` where that was no longer this worker's to do."""
        ready = self._prepare(account, work)
        if isinstance(ready, Rejected):
            return Pushed(ready, work.attempts, work.doubtful)
        if isinstance(ready, Deferred):
            attempts = with_attempt(work.attempts, "prepare", iso(self._clock.now()), 0, ready)
            return Pushed(ready, attempts, work.doubtful)
        pms, booking = ready
        return await _Push(self, self._clock, account.kind, pms, booking, work).run()

    def _prepare(self, account: Account, work: Work) -> tuple[Pms, Booking] | Rejected | Deferred:
        try:
            pms = self._connect(account)
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
        if known is not None and known[0] == account:
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
        settleable = pms.capabilities.idempotent_create or pms.capabilities.find_by_reference
        if not settleable and not await self._intend(work.id):
            raise LeaseLost
        if not self._may_send():
            raise LeaseLost


class _Push:
    """One run of the steps, with the attempts it makes."""

    def __init__(self, pusher: Pusher, clock: Clock, kind: str, pms: Pms, booking: Booking, work: Work) -> None:
        self._pusher = pusher
        self._clock = clock
        self._kind = kind
        self._pms = pms
        self._booking = booking
        self._work = work
        self._attempts = tuple(work.attempts)
        self._can = pms.capabilities

    async def run(self) -> Pushed:
        maybe_made = self._maybe_made()
        if maybe_made and (self._late() or self._work.status is Status.IN_DOUBT):
            return await self._look(self._too_late)
        if maybe_made and not self._can.idempotent_create:
            return await self._look(self._create)
        return self._pushed(await self._create(), still_doubtful=maybe_made)

    def _maybe_made(self) -> bool:
        # Where the intent is durable before the first byte, a row without one was taken over before anything was sent.
        marked_first = not (self._can.idempotent_create or self._can.find_by_reference)
        return self._work.doubtful and (self._work.pushing or not marked_first or self._work.status is Status.IN_DOUBT)

    def _late(self) -> bool:
        return self._clock.now() >= self._work.deadline_at

    async def _too_late(self) -> Outcome:
        return too_late()

    async def _look(self, go_on: Callable[[], Awaitable[Outcome]]) -> Pushed:
        """Look it up; `go_on` where it was surely not made."""
        if not self._can.find_by_reference:
            return self._pushed(InDoubt("cannot_be_checked", "It may have been made, and this PMS cannot be searched."))
        found = await self._find()
        match found:
            case Confirmed():
                return self._pushed(found)
            case Deferred():
                return self._pushed(found, still_doubtful=True)
            case Absent():
                pass
            case _:
                assert_never(found)
        outcome = await go_on()
        if not isinstance(outcome, Rejected):
            return self._pushed(outcome)
        # The no may be to ourselves: an earlier push that came through only now holds these nights.
        late = await self._find()
        return self._pushed(outcome) if isinstance(late, Absent) else self._pushed(late, still_doubtful=True)

    def _pushed(self, outcome: Outcome, *, still_doubtful: bool = False) -> Pushed:
        doubtful = isinstance(outcome, InDoubt) or (still_doubtful and isinstance(outcome, Deferred))
        settleable = self._can.idempotent_create or self._can.find_by_reference
        return Pushed(outcome, self._attempts, doubtful, settleable, self._can.find_by_reference)

    async def _create(self) -> Outcome:
        if self._late():
            return too_late()
        await self._pusher.before_sending(self._pms, self._work)
        started = self._start()
        try:
            outcome = await self._pms.create(self._booking)
        except Exception as error:  # noqa: BLE001 - an adapter's bug costs one row, not all; what it sent is unknown
            _log.exception("adapter.failed", action="create", request_id=self._booking.reference)
            outcome = InDoubt("adapter_failed", type(error).__name__)
        self._note("create", started, outcome)
        return outcome

    async def _find(self) -> Lookup:
        await self._pusher.before_sending(self._pms, self._work)
        started = self._start()
        try:
            found = await self._pms.find(self._booking)
        except Exception as error:  # noqa: BLE001 - as above; a look-up changes nothing.
            _log.exception("adapter.failed", action="find", request_id=self._booking.reference)
            found = Deferred("adapter_failed", type(error).__name__)
        self._note("find", started, found)
        return found

    def _start(self) -> tuple[str, float]:
        return iso(self._clock.now()), self._clock.monotonic()

    def _note(self, action: str, started: tuple[str, float], outcome: Outcome | Lookup) -> None:
        started_at, began = started
        seconds = self._clock.monotonic() - began
        self._attempts = with_attempt(self._attempts, action, started_at, seconds, outcome)
        metrics.PUSH_SECONDS.labels(self._kind, action).observe(seconds)
        metrics.PUSHES.labels(self._kind, action, self._attempts[-1].outcome).inc()


def too_late() -> Deferred:
    """What becomes of a submission that was surely not made by its deadline."""
    return Deferred("deadline_passed", "It had not been made when its deadline came.")


def with_attempt(
    attempts: tuple[Attempt, ...], action: str, started_at: str, seconds: float, outcome: Outcome | Lookup
) -> tuple[Attempt, ...]:
    """`attempts` and one more. Of a great many the first are forgotten; the numbers go on."""
    number = attempts[-1].number + 1 if attempts else 1
    name, reason, detail = describe(outcome)
    latest = Attempt(number, action, started_at, round(seconds * 1000), name, reason, detail)
    return (*attempts, latest)[-_ATTEMPTS_KEPT:]


def describe(outcome: Outcome | Lookup) -> tuple[str, str | None, str | None]:
    """An outcome's name, reason and detail, as attempts and log lines show them."""
    match outcome:
        case Confirmed():
            return "confirmed", None, None
        case Absent():
            return "absent", None, None
        case Rejected(problem):
            return "rejected", problem.code, problem.detail
        case Deferred(reason, detail):
            return "deferred", reason, detail
        case InDoubt(reason, detail):
            return "in_doubt", reason, detail
        case _:
            assert_never(outcome)
