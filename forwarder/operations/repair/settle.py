"""An operator's decision about a submission in doubt: it was made, it was not made, or it is given up."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from forwarder.operations.audit import Audit
from forwarder.operations.repair.completion import completed, with_attempt
from forwarder.process.clock import Clock, iso
from forwarder.reservation.checks.card_numbers import mask
from forwarder.reservation.outcome import Absent, Confirmed, LookupOutcome, Rejected, Status
from forwarder.reservation.problems import endings
from forwarder.store.submissions.port import Attempt, Work
from forwarder.tenancy.port import DEFAULT_DEADLINE_SECONDS, Directory, NotKnown

if TYPE_CHECKING:
    from forwarder.store.lists.overview import Overview
    from forwarder.store.submissions.repairs import Repairs


class NotInDoubt(Exception):
    """The submission is not IN_DOUBT, or was settled meanwhile: nothing was changed."""


class Repair:
    """Settles what no look-up can. Each call changes everything or nothing, and raises `NotInDoubt` or `StoreUnavailable`.

    The same transaction puts the result event in the outbox; a worker publishes it. The decision is listed among the attempts, as
    `settle`.
    """

    def __init__(self, repairs: "Repairs", clock: Clock, audit: Audit, *, by: str = "", note: str = "") -> None:
        """`by` and `note`: who checked the PMS, and a note for the audit trail, where card numbers are masked."""
        self._repairs = repairs
        self._clock = clock
        self._audit = audit
        self._said = {name: mask(text.strip()) for name, text in (("by", by), ("note", note)) if text.strip()}

    async def confirm(
        self, request_id: str, pms_reservation_id: str, *, deadline_seconds: float = DEFAULT_DEADLINE_SECONDS
    ) -> None:
        """Confirms it under the PMS's id. A requested cancellation is tried for `deadline_seconds`."""
        async with self._settling(request_id, "confirmed") as work:
            decision = Confirmed(pms_reservation_id)
            attempts, now = self._with_decision(work, decision), self._clock.now()
            cancel_by = now + timedelta(seconds=deadline_seconds)
            ended = completed(work, attempts, Status.CONFIRMED, now=now, confirmed=decision, cancel_by=cancel_by)
            self._check(await self._repairs.settle(replace(ended, evidence=work.evidence)))

    async def reject(self, request_id: str, reason: str) -> None:
        """Rejects it: the PMS does not have it. The caller can read `reason`."""
        problem = endings.REJECTED_BY_OPERATOR.problem(mask(reason))
        async with self._settling(request_id, "rejected") as work:
            attempts, now = self._with_decision(work, Rejected(problem)), self._clock.now()
            ended = completed(work, attempts, Status.REJECTED, now=now, problem=problem)
            self._check(await self._repairs.settle(replace(ended, evidence=work.evidence)))

    async def push_again(self, request_id: str, *, deadline_seconds: float) -> None:
        """Makes it PENDING again, due at once, for `deadline_seconds`: the PMS does not have it."""
        async with self._settling(request_id, "not_made") as work:
            now = self._clock.now()
            attempts, deadline_at = self._with_decision(work, Absent()), now + timedelta(seconds=deadline_seconds)
            self._check(await self._repairs.reopen(work, attempts=attempts, now=now, deadline_at=deadline_at))

    @asynccontextmanager
    async def _settling(self, request_id: str, decision: str) -> AsyncIterator[Work]:
        """The submission, for the block to settle."""
        async with self._audit.operation(
            "submission.settle", target=request_id, decision=decision, **self._said
        ) as operation:
            work = await self._repairs.in_doubt(request_id)
            if work is None:
                raise NotInDoubt
            operation.workspace, operation.target = work.submission.workspace_id, work.submission.request_id
            yield work

    def _with_decision(self, work: Work, decision: LookupOutcome | Rejected) -> tuple[Attempt, ...]:
        return with_attempt(work.attempts, "settle", iso(self._clock.now()), 0, decision)

    def _check(self, changed: bool) -> None:  # noqa: FBT001 - what the store answered
        if not changed:
            raise NotInDoubt


async def account_deadline_seconds(request_id: str, overview: "Overview", directory: Directory) -> int:
    """How long the submission's account keeps trying, in seconds. Raises `NotInDoubt` if there is no such submission, `NotKnown` if
    its account is gone."""
    found = await overview.find(request_id)
    if found is None:
        raise NotInDoubt
    account = await directory.account(found[0].account_id)
    if account is None:
        raise NotKnown(f"its account {found[0].account_id} no longer exists, so nothing can be pushed for it")
    return account.deadline_seconds
