"""A push, step by step: from its account queue to the outcome recorder.

may it start → push (open the card, connect to the PMS, apply the rules; then look up, create or cancel) → decide → record

Some rows may kill workers in ways that no exception shows, such as exhausted memory or a crash of native code. A row that was taken
over repeatedly is marked in the store before it is pushed, and the mark is cleared once the push is over. A mark of another worker
shows that it died, or lost its lease, in the middle of that push. From then on the row is pushed alone, one such row at a time, so
that others are not suspected with it; after `MAX_DEATHS` it is no longer pushed.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

import structlog

from forwarder.observability import metrics
from forwarder.observability.logging import log_context
from forwarder.observability.tracing import trace_id_of
from forwarder.pms.accounts import connection_of, same_before, target_of, traits_of
from forwarder.pms.port import BadOptions, Capabilities, Pace, Pms, UnknownKind
from forwarder.process.clock import iso
from forwarder.process.loops import FAULTS, Blame, Where, as_fault, contained
from forwarder.reservation.booking import Booking, apply_rules, booking_without_card
from forwarder.reservation.evidence import ANOTHER_PMS, Facts, LookUp, SendAgain, Target
from forwarder.reservation.outcome import Cancelled, Deferred, InDoubt, Outcome, Rejected, Status, not_supported
from forwarder.reservation.problems import Problem
from forwarder.reservation.request import CardDetails
from forwarder.store.submissions.port import Postponed, StoreUnavailable, Work, with_attempt
from forwarder.tenancy.port import Account, CannotOpen, NotBound, TenancyUnavailable
from forwarder.worker.cards import CardGone, CardVault, CodeGone
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.policy import CARD_KEY_MISSING, after_fault, decide
from forwarder.worker.outcome.recorder import OutcomeRecorder
from forwarder.worker.parts import WorkerParts, WorkerSettings
from forwarder.worker.push.run import (
    NOT_ATTEMPTED,
    CancelledMeanwhile,
    HealthSignal,
    LeaseLost,
    PushClock,
    PushContext,
    PushRun,
    after_create,
    ask,
    combined_signal,
    health_signal,
    is_lease_lost,
    note_attempt,
    sound,
    step_of,
    too_late,
)

_log = structlog.get_logger(__name__)

_UNCONNECTED: Final = {UnknownKind: "unknown_kind", BadOptions: "bad_options"}
_NO_CARD: Final = {CardGone: "card_gone", CodeGone: "card_code_gone", NotBound: "card_not_bound"}
_SUSPECT_AFTER: Final = 2  # takeovers: most rows are taken over once at the most, as one of thousands
MAX_DEATHS: Final = 2
CLEAR_AGAIN_SECONDS: Final = 0.5


class EndsWorkers(Exception):
    """Workers died in the middle of pushes of this row, the last time while it was pushed alone."""


class _ConnectedAccount(NamedTuple):
    account: Account
    pms: Pms
    facts: Facts
    target: str


@dataclass(eq=False, repr=False)
class Pusher:
    """Pushes for every account. `may_send`: whether a row's lease still holds; `committed`: returns once the log knows that the
    message with that request id was ingested; `intend` makes the intent to push durable; `sure`: whether the store is known to be
    the one that granted the lease; `is_cancelled`: whether a cancellation was ingested since the row was leased; `pace`: the
    account's rate limit."""

    parts: WorkerParts
    cards: CardVault
    may_send: Callable[[Work], bool]
    committed: Callable[[str], Awaitable[None]]
    intend: Callable[[int], Awaitable[bool]]
    sure: Callable[[], Awaitable[bool]]
    is_cancelled: Callable[[Work], bool]
    pace: Callable[[Account], Pace]

    def __post_init__(self) -> None:
        self.clock = self.parts.clock
        self.pushes = PushClock(self.clock)
        self._connected: dict[str, _ConnectedAccount] = {}
        self._unusable: dict[str, tuple[Account, float, Deferred]] = {}

    async def push(self, push: PushContext) -> None:
        """Pushes it once, or cancels its reservation. Raises `LeaseLost` if the row is no longer this worker's."""
        try:
            await self._push(push)
        except LeaseLost:
            await self._note_use_of_card(push)
            raise
        except BaseException:  # the card may have been sent
            self.cards.used(push.work.submission.request_id)
            raise
        await self._note_use_of_card(push)

    async def push_together(self, pushes: Sequence[PushContext]) -> None:
        """Pushes first tries in one request. Each has its own outcome and attempts, or error."""

        async def prepared(push: PushContext) -> PushRun | None:
            """Ready to be sent; None if the push has its outcome or error before."""
            try:
                run = await self.prepare(push)
                if run is not None and self.clock.now() >= push.work.deadline_at:
                    push.outcome, run = too_late(), None
                if run is not None:
                    await self.before_sending(push, run.facts.target)
            except FAULTS as error:  # concerns this row only
                push.error, run = as_fault(error), None
            return run

        runs: list[PushRun] = []
        for run in await asyncio.gather(*(prepared(push) for push in pushes)):
            # The last check of the lease, for all of them: the remaining rows are held under the same one.
            if run is not None and not self.may_send(run.push.work):
                run.push.error = LeaseLost()
            elif run is not None and self.is_cancelled(run.push.work):
                run.push.error = CancelledMeanwhile()
            elif run is not None:
                runs.append(run)
        began = self.clock.now(), self.clock.monotonic()
        for run, outcome in zip(runs, await _create_many(runs) if runs else (), strict=True):
            push = run.push
            try:
                if is_lease_lost(outcome):
                    push.error = LeaseLost()
                    continue
                note_attempt(push, self.clock, "create", began, outcome)
                push.outcome, push.evidence = after_create(outcome, push.work.evidence, run.facts, self.clock)
                if push.evidence.open:
                    push.step = step_of(push.work, push.evidence, run.facts, self.clock.now(), 0.0)
            except Exception as error:  # noqa: BLE001 - an invalid outcome concerns this row only
                push.error = error
        for push in pushes:
            await self._note_use_of_card(push)

    async def _note_use_of_card(self, push: PushContext) -> None:
        """Restores the security code for the next attempt if this one surely did not use it."""
        work, request_id = push.work, push.work.submission.request_id
        if work.submission.card is None:
            return
        last = work.attempts[-1].number if work.attempts else 0
        if any(each.number > last and each.action == "create" and each.outcome != "deferred" for each in push.attempts):
            self.cards.used(request_id)
            return
        try:
            await self.cards.put_back(request_id)
        except StoreUnavailable as error:
            _log.warning("card.code_not_put_back", request_id=request_id, error=str(error))
        except FAULTS as error:  # the push's outcome is known, and must still be recorded
            contained(Where.CARD_KEYS, error, request_id=request_id)

    async def _push(self, push: PushContext) -> None:
        work, made, origin = push.work, push.work.pms_reservation, push.work.evidence.origin
        if work.cancellation is not None and work.status is Status.PENDING and not work.possibly_sent:
            push.outcome = Cancelled()
            return
        run = await self.prepare(push)
        if run is None:
            return
        if made is not None:
            if not run.pms.capabilities.cancel:
                push.outcome = Rejected(not_supported(run.booking.reference, push.account.kind))
            elif origin is not None and not run.facts.same_pms(origin):
                self._defer(push, Deferred("pms_is_another", ANOTHER_PMS))
            elif not await self.sure() or not self.may_send(work):
                raise LeaseLost
            else:
                asking = run.pms.cancel(run.booking, made.pms_reservation_id)
                push.outcome = await ask(push, self.clock, "cancel", asking, Deferred)
        elif work.possibly_sent or work.cancellation is not None or work.status is Status.IN_DOUBT:
            await run.resume()
        else:
            await run.create(work.evidence)  # as nearly always

    def max_per_create(self, account: Account) -> int:
        """How many reservations one request to `account`'s PMS can create; 1 if the account cannot be connected."""
        connected = self._connect(account)
        return 1 if isinstance(connected, Deferred) else connected.pms.capabilities.max_per_create

    def target(self, account: Account) -> str | None:
        """The current target of `account`'s pushes, as stored when rows are leased; None if the account cannot be connected."""
        connected = self._connect(account)
        return None if isinstance(connected, Deferred) else connected.target

    def seconds_to_wait(self, account: Account, work: Work) -> float:
        """How long to wait before the next look-up or repeat for the open pushes of `work`."""
        connected = self._connect(account)
        if work.pms_reservation is not None or isinstance(connected, Deferred):
            return 0.0  # the push says why it cannot be connected
        step = step_of(work, work.evidence, connected.facts, self.clock.now(), self.pushes.seconds(work))
        return step.seconds if isinstance(step, LookUp | SendAgain) else 0.0

    async def prepare(self, push: PushContext) -> PushRun | None:
        """The prepared push; None if its outcome is decided before anything is sent."""
        account, work, traits = push.account, push.work, traits_of(push.account.kind)
        submission = work.submission
        card: CardDetails | Deferred | None = None
        # Then its card is no longer needed: a submission in doubt is not sent again.
        only_looked_for = submission.card is not None and work.status is Status.IN_DOUBT
        without_card = work.pms_reservation is not None or only_looked_for
        if submission.card is not None and not without_card and traits.sends_card(submission.reservation):
            try:
                card = await self.cards.open(submission, account)
            except CannotOpen as error:
                reason = _NO_CARD.get(type(error), CARD_KEY_MISSING)
                if reason == CARD_KEY_MISSING:
                    metrics.CARD_KEYS_MISSING.inc()
                elif isinstance(error, NotBound):
                    _log.error("card.not_bound", request_id=submission.request_id, account_id=account.id)
                card = Deferred(reason, str(error))
            except (StoreUnavailable, TenancyUnavailable) as error:
                card = Deferred("store_unavailable", str(error))
        connected = self._connect(account)
        if isinstance(connected, Deferred):
            self._defer(push, connected)
            return None
        pms = connected.pms.while_held(partial(self.may_send, work))
        run = partial(PushRun, push, pms, connected.facts, self.clock, self.before_sending, self.pushes.seconds)
        if without_card:
            return run(booking_without_card(traits, submission))
        # The ingress applied the rules too, but the account may have changed since, or the card expired.
        given = card if isinstance(card, Deferred) else apply_rules(traits, submission, card, self.clock.now())
        if isinstance(given, Booking):
            return run(given)
        instead = Rejected(given) if isinstance(given, Problem) else given
        if work.possibly_sent:
            return run(booking_without_card(traits, submission), instead)
        if isinstance(instead, Deferred):
            self._defer(push, instead)
        else:
            push.outcome = instead
        return None

    def _defer(self, push: PushContext, deferred: Deferred) -> None:
        push.outcome = deferred
        push.attempts = with_attempt(push.work.attempts, "prepare", iso(self.clock.now()), 0, deferred)
        push.step = LookUp() if push.work.possibly_sent else None

    def _connect(self, account: Account) -> _ConnectedAccount | Deferred:
        """The account with its PMS; or why it cannot be connected."""
        known = self._connected.get(account.id)
        # Nearly always it is the very same, and need not be compared.
        if known is not None and (known.account is account or known.account == account):
            return known
        failed = self._unusable.get(account.id)
        if failed is not None and failed[0] == account and self.clock.monotonic() < failed[1]:
            return failed[2]
        try:
            connection = connection_of(account, self.parts.unsealer, self.pace(account))
            pms = self.parts.pms.connect(connection)
            can, key = pms.capabilities, self.parts.credential_key
            target = target_of(account.kind, account.base_url, connection.credential, can, key)
            facts = facts_of(target, can, account, self.parts.settings)
        except (UnknownKind, BadOptions, CannotOpen) as error:
            return Deferred(_UNCONNECTED.get(type(error), "cannot_open"), str(error))
        except FAULTS as error:
            fault = contained(Where.ADAPTER, error, account_id=account.id, adapter=account.kind)
            detail = f"The adapter of kind {account.kind} cannot be set up for this account. {fault}"
            deferred = Deferred("bad_options", detail)
            self._unusable[account.id] = account, self.clock.monotonic() + 60.0, deferred
            return deferred
        connected = self._connected[account.id] = _ConnectedAccount(account, pms, facts, target.text)
        return connected

    async def before_sending(self, push: PushContext, target: Target) -> None:
        """The last check of store, lease and cancellation. Waits until the log knows that the row was ingested, unless its PMS
        recognises a repeated push by its key; and makes the intent durable if nothing else could show later that the push may have
        been sent. Nothing was sent under this lease yet, or the row notes it; so a cancelled row can be given back."""
        if not target.key:
            await self.committed(push.work.submission.request_id)
        if not await self.sure():
            raise LeaseLost
        if not (target.key or target.reference) and not await self.intend(push.work.id):
            raise LeaseLost
        if not self.may_send(push.work):
            raise LeaseLost
        if self.is_cancelled(push.work):
            raise CancelledMeanwhile
        push.sent = True


def facts_of(target: Target, can: Capabilities, account: Account, settings: WorkerSettings) -> Facts:
    """The facts about the account's PMS that `next_step` needs. A simulated PMS shows bookings at once."""
    stated = 0.0 if account.test else can.settles
    immediate = account.settles_seconds is None and stated == 0.0
    settles = max(settings.settles_seconds if stated is None else stated, account.settles_seconds or 0.0)
    return Facts(target, settles, immediate, settings.push_seconds, can.key_seconds, same_before(account))


async def _create_many(runs: Sequence[PushRun]) -> Sequence[Outcome]:
    try:
        outcomes = await runs[0].pms.create_many([run.booking for run in runs])
    except FAULTS as error:  # an adapter's bug costs these rows, not all; what it sent is unknown
        fault = contained(Where.ADAPTER, error, action="create_many", count=len(runs))
        return [InDoubt("adapter_failed", str(fault))] * len(runs)
    if len(outcomes) != len(runs):
        _log.error("adapter.failed", action="create_many", count=len(runs), outcomes=len(outcomes))
        return [InDoubt("adapter_failed", "It did not say what became of each.")] * len(runs)
    return [sound(each, InDoubt) for each in outcomes]


@dataclass(eq=False, repr=False)
class PushPipeline:
    parts: WorkerParts
    pusher: Pusher
    outcomes: OutcomeRecorder
    lease: Lease
    _alone: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _blame: Blame = field(default_factory=lambda: Blame(Where.PUSH), init=False)

    async def run(self, pushes: Sequence[PushContext]) -> HealthSignal:
        """Pushes these rows once, in one request. Enqueues each outcome to be recorded, which also releases the row."""
        trace = pushes[0].work.submission.trace
        with nullcontext() if trace is None else log_context(trace_id=trace_id_of(trace)):
            # Also where nothing is sent: an outcome that this database lacks must not get another one.
            if not await self.pusher.sure():
                for push in pushes:
                    self._give_back(push, "store_in_doubt")
                return NOT_ATTEMPTED
            ready = []
            for push in pushes:
                work = push.work
                try:
                    seconds = self.pusher.seconds_to_wait(push.account, work) if work.possibly_sent else 0.0
                    if seconds > 0.0:
                        now = self.parts.clock.now()
                        due = now + timedelta(seconds=seconds)
                        push.decision = Postponed(work, work.attempts, now, due, work.evidence)
                        self.outcomes.enqueue(push)
                    elif self.pusher.target(push.account) != work.target:
                        # The target recorded with the row must be the one that a push would use now.
                        self._give_back(push, "options_changed")
                    else:
                        ready.append(push)
                except FAULTS as error:  # concerns this row only
                    self._set_aside(push, error)
            if not ready:
                return NOT_ATTEMPTED
            try:
                if len(ready) > 1:
                    await self.pusher.push_together(ready)
                elif ready[0].work.takeovers < _SUSPECT_AFTER:  # as nearly always
                    await self.pusher.push(ready[0])
                else:
                    await self._push_suspect(ready[0])
                signal = combined_signal([health_signal(push) for push in ready if push.error is None])
            except FAULTS as error:  # these rows are at stake, not the worker
                for push in ready:
                    push.error = as_fault(error)
                signal = NOT_ATTEMPTED
            for push in ready:
                self._conclude(push)
            return signal

    async def _push_suspect(self, push: PushContext) -> None:
        """Pushes a row under its mark in the store. Raises `EndsWorkers`, and `LeaseLost` if the store is unavailable."""
        work_id = push.work.id
        try:
            deaths = await self.parts.recorder.suspect(self.lease.worker_id, work_id)
        except StoreUnavailable as error:
            raise LeaseLost from error
        try:
            if deaths >= MAX_DEATHS:
                raise EndsWorkers(f"{deaths} workers ended while they pushed it")
            if deaths:
                _log.warning("push.suspected", reservation_id=work_id, deaths=deaths)
            async with self._alone if deaths else nullcontext():
                await self.pusher.push(push)
        finally:
            # A mark that stays counts as a death: waits for the store while the lease lasts. Once cancelled, tries only once.
            while True:
                try:
                    await self.parts.recorder.clear_suspects([work_id])
                    break
                except StoreUnavailable as error:
                    task = asyncio.current_task()
                    if not self.lease.held() or (task is not None and task.cancelling()):
                        _log.warning("push.still_suspected", reservation_id=work_id, error=str(error))
                        break
                await asyncio.sleep(CLEAR_AGAIN_SECONDS)

    def _conclude(self, push: PushContext) -> None:
        if isinstance(push.error, LeaseLost):
            self._give_back(push, "cancelled" if isinstance(push.error, CancelledMeanwhile) else "lease_lost")
        elif push.error is not None:
            self._set_aside(push, push.error)
        else:
            try:
                self.pusher.pushes.note(push.work, push.evidence)
                push.decision = decide(push, now=self.parts.clock.now(), jitter=random.random())  # noqa: S311 - not a secret
                self.outcomes.enqueue(push)
                self._blame.works()
            except FAULTS as error:  # as above
                self._set_aside(push, error)

    def _give_back(self, push: PushContext, reason: str) -> None:
        _log.warning("reservation.given_back", request_id=push.work.submission.request_id, reason=reason)
        self.lease.note_unpushed(push.work.id)
        push.release()

    def _set_aside(self, push: PushContext, error: BaseException) -> None:
        """After an unexpected exception: retries the row later, or ends it if that happens repeatedly, and not to all rows."""
        request_id = push.work.submission.request_id
        fault = contained(Where.PUSH, error, request_id=request_id, reservation_id=push.work.id)
        push.error = fault.error
        if push.came is None:
            push.outcome = None  # not believed: what matters is whether it may have been sent
        deadly = isinstance(error, EndsWorkers)
        push.sent = push.sent or deadly
        to_blame = deadly or self._blame.on_units(1)
        if not to_blame:
            self._blame.outage(fault)
        now, seconds = self.parts.clock.now(), self.parts.settings.push_seconds
        push.decision = after_fault(
            push, fault, now=now, push_seconds=seconds, last=deadly, look=not deadly, give_up=to_blame
        )
        self.outcomes.enqueue(push)
