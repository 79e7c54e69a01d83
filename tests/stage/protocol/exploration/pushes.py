"""A worker's push as a function: the product's pipeline, pusher, lease and policy, from a leased row to a request or decision.

The pipeline is a coroutine that stops at each request to the PMS. It is run from the start with the answers so far: so a push under
way is a value, and any answer can be tried.
"""

from collections.abc import Coroutine, Generator, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast
from unittest import mock

from forwarder.pms.port import Capabilities
from forwarder.reservation.outcome import CancelOutcome, LookupOutcome, Outcome
from forwarder.store.submissions.port import Ended, Heartbeat, Postponed, Work
from forwarder.worker.lease import Lease, LeaseWatch
from forwarder.worker.outcome.policy import decide
from forwarder.worker.outcome.recorder import OutcomeRecorder
from forwarder.worker.parts import WorkerParts, WorkerSettings
from forwarder.worker.push.pipeline import PushPipeline
from forwarder.worker.push.run import PushClock, PushContext, too_late
from tests.stage.protocol.exploration.rows import run
from tests.support.memory.clock import ManualClock
from tests.support.worker.scripted_pms import ScriptedPms, pusher_to
from tests.support.worker.works import NOW, account

PUSH: Final = 30.0
LEASE: Final = 45.0
ACCOUNT: Final = account()

Answer = Outcome | LookupOutcome | CancelOutcome
Seen = tuple[int, int, float] | None
"""The open push that a worker's `PushClock` knows of a row: takeovers, its number, and for how many seconds."""


class Asks(NamedTuple):
    """It waits for the PMS to answer: `create`, `find` or `cancel`; `intend`: for the store to note the intent."""

    what: str


class Decides(NamedTuple):
    """It ends with this decision. `seen`: what the worker's clock knows of the row afterwards."""

    decision: Ended | Postponed
    seen: Seen


class GivesBack(NamedTuple):
    """The row goes back unsent."""


Step = Asks | Decides | GivesBack


class _Request:
    """Awaited by the push; stops the coroutine until the answer is sent into it."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __await__(self) -> Generator["_Request", Any, Any]:
        return (yield self)


class _Pms(ScriptedPms):
    """Asks whoever runs the coroutine."""

    async def create(self, booking: Any) -> Outcome:
        return cast("Outcome", await _Request("create"))

    async def find(self, booking: Any) -> LookupOutcome:
        return cast("LookupOutcome", await _Request("find"))

    async def cancel(self, booking: Any, pms_reservation_id: str) -> CancelOutcome:
        return cast("CancelOutcome", await _Request("cancel"))


class _Clock(ManualClock):
    """The wall clock stands still; `age` moves the monotonic one."""

    def now(self) -> datetime:
        return NOW

    def age(self, seconds: float) -> None:
        self._elapsed += seconds


class _Outcomes:
    def __init__(self) -> None:
        self.decided: PushContext | None = None

    def enqueue(self, push: PushContext) -> None:
        self.decided = push


class _NoSuspects:
    async def suspect(self, _worker_id: str, _work_id: int) -> int:
        return 0

    async def clear_suspects(self, _work_ids: Sequence[int]) -> None:
        pass


class Pushes:
    """Pushes of one account to a PMS with these capabilities."""

    def __init__(self, capabilities: Capabilities, settles: float) -> None:
        self._pms = _Pms(capabilities)
        self._settings = WorkerSettings(push_seconds=PUSH, settles_seconds=settles)
        self._known: dict[Any, Step] = {}
        self.runs = 0
        self.target = pusher_to(self._pms, settings=self._settings).target(ACCOUNT)

    def step(
        self,
        key: Any,
        work: Work,
        answers: Sequence[Answer | bool],
        seen: Seen,
        lost_after: int | None = None,
        cancelled_after: int | None = None,
    ) -> Step:
        """What the push of `work` does next, after these answers. `key` identifies all of the arguments. `lost_after`,
        `cancelled_after`: how many answers it had when its lease ended, or its cancellation was ingested."""
        known = self._known.get(key)
        if known is None:
            self.runs += 1
            known = self._known[key] = self._step(work, answers, seen, lost_after, cancelled_after)
        return known

    def _step(
        self,
        work: Work,
        answers: Sequence[Answer | bool],
        seen: Seen,
        lost_after: int | None,
        cancelled_after: int | None,
    ) -> Step:
        clock, outcomes, given = _Clock(), _Outcomes(), 0
        lease = Lease(mock.Mock(renew=_renewed), clock, LEASE)
        lease.worker_id = work.leased_by

        async def intend(_work_id: int) -> bool:
            return cast("bool", await _Request("intend"))

        pusher = pusher_to(
            self._pms,
            may_send=lease.covers,
            settings=self._settings,
            clock=clock,
            is_cancelled=lambda _: cancelled_after is not None and given > cancelled_after,
        )
        pusher.intend = intend
        if seen is not None:
            takeovers, number, age = seen
            push = SimpleNamespace(id=work.id, takeovers=takeovers, evidence=SimpleNamespace(number=number))
            pusher.pushes.seconds(cast("Work", push))
            clock.age(age)
        run(lease.renew())
        if lost_after == -1:
            clock.age(LEASE)
        pipeline = PushPipeline(
            cast("WorkerParts", SimpleNamespace(clock=clock, recorder=_NoSuspects(), settings=self._settings)),
            pusher,
            cast("OutcomeRecorder", outcomes),
            lease,
        )
        running = cast("Coroutine[Any, Any, Any]", pipeline.run([PushContext(ACCOUNT, work)]))
        try:
            asked: _Request = running.send(None)
            for given, answer in enumerate(answers, 1):
                if lost_after is not None and given == lost_after + 1:
                    clock.age(LEASE)
                asked = running.send(answer)
        except StopIteration:
            if outcomes.decided is None or outcomes.decided.decision is None:
                return GivesBack()
            return Decides(outcomes.decided.decision, _seen(pusher.pushes, work.id, clock))
        running.close()
        return Asks(asked.what)


def _seen(pushes: PushClock, row_id: int, clock: _Clock) -> Seen:
    found = vars(pushes)["_since"].get(row_id)
    return None if found is None else (*found[0], clock.monotonic() - found[1])


async def _renewed(_worker_id: str, *, seconds: float) -> bool:
    return seconds > 0


def ended_at_the_deadline(work: Work) -> Ended | Postponed:
    """As the deadline keeper decides."""
    return decide(PushContext(ACCOUNT, work, outcome=too_late()), now=NOW, jitter=0.0)


def lease_is_over(seconds: float) -> bool:
    """Whether a watcher takes a lease for over that it has seen unchanged for so long."""
    clock = _Clock()
    watch, heartbeats = LeaseWatch(clock), [Heartbeat("w", 1, LEASE)]
    watch.stopped(heartbeats)
    clock.age(seconds)
    return bool(watch.stopped(heartbeats))
