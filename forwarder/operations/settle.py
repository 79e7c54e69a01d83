"""An operator's word on a submission that is in doubt: it was made, it was not, or it is not to be."""

from datetime import timedelta

from forwarder.operations.completion import completed, with_attempt
from forwarder.process.clock import Clock, iso
from forwarder.reservation.outcome import Absent, Confirmed, LookupOutcome, Rejected, Status
from forwarder.reservation.problems import endings
from forwarder.store.lists.port import Overview
from forwarder.store.submissions.port import Repairs
from forwarder.store.submissions.work import Attempt, Work
from forwarder.tenancy.port import DEFAULT_DEADLINE_SECONDS, Directory, NotKnown


class NotInDoubt(Exception):
    """The submission is not IN_DOUBT, or was settled meanwhile: nothing was changed."""


class Repair:
    """Settles by hand what no look-up can. Each call changes all or nothing, and raises `NotInDoubt` or `StoreUnavailable`.

    Its event is in the outbox with it: a worker publishes it. The operator's word shows among the attempts, as `settle`.
    """

    def __init__(self, repairs: Repairs, clock: Clock) -> None:
        self._repairs = repairs
        self._clock = clock

    async def confirm(
        self, request_id: str, pms_reservation_id: str, *, deadline_seconds: float = DEFAULT_DEADLINE_SECONDS
    ) -> None:
        """The PMS has it, under that id. Where it is to be cancelled, that is tried for so long."""
        work, word = await self._in_doubt(request_id), Confirmed(pms_reservation_id)
        attempts, now = self._with_word(work, word), self._clock.now()
        cancel_by = now + timedelta(seconds=deadline_seconds)
        final = completed(work, attempts, Status.CONFIRMED, now=now, confirmed=word, cancel_by=cancel_by)
        self._check(await self._repairs.settle(final))

    async def reject(self, request_id: str, reason: str) -> None:
        """The PMS has it not, and it is not to be tried again, because of `reason`, which the caller reads."""
        problem = endings.REJECTED_BY_OPERATOR.problem(reason)
        work = await self._in_doubt(request_id)
        attempts, now = self._with_word(work, Rejected(problem)), self._clock.now()
        self._check(await self._repairs.settle(completed(work, attempts, Status.REJECTED, now=now, problem=problem)))

    async def push_again(self, request_id: str, *, deadline_seconds: float) -> None:
        """The PMS has it not: it is PENDING again, due at once, for so long."""
        work, now = await self._in_doubt(request_id), self._clock.now()
        attempts, deadline_at = self._with_word(work, Absent()), now + timedelta(seconds=deadline_seconds)
        self._check(await self._repairs.reopen(work, attempts=attempts, now=now, deadline_at=deadline_at))

    async def _in_doubt(self, request_id: str) -> Work:
        work = await self._repairs.in_doubt(request_id)
        if work is None:
            raise NotInDoubt
        return work

    def _with_word(self, work: Work, word: LookupOutcome | Rejected) -> tuple[Attempt, ...]:
        return with_attempt(work.attempts, "settle", iso(self._clock.now()), 0, word)

    def _check(self, changed: bool) -> None:  # noqa: FBT001 - what the store answered
        if not changed:
            raise NotInDoubt


async def account_deadline_seconds(request_id: str, overview: Overview, directory: Directory) -> int:
    """For how long the submission's account has it tried. Raises `NotInDoubt` where there is no such submission, `NotKnown` where
    its account is gone."""
    found = await overview.find(request_id)
    if found is None:
        raise NotInDoubt
    account = await directory.account(found[0].account_id)
    if account is None:
        raise NotKnown(f"its account {found[0].account_id} is not there any more, and so nothing can be pushed for it")
    return account.deadline_seconds
