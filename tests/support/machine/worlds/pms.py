"""PMSs that make what they are asked to, count it for each reference, and answer as they were told: too late, or never, too.

What a PMS was sent, it works on, whatever becomes of the worker that sent it: it makes it within `SETTLE_SECONDS`, or never.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from forwarder.pms.port import Capabilities
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
)
from forwarder.reservation.problems.problem import Problem
from tests.support.machine.worlds.pushes import SETTLE_SECONDS, Push, Pushes
from tests.support.machine.worlds.virtual_time import VirtualTimeLoop

PUSH_SECONDS = SETTLE_SECONDS
"""The longest that a push waits for its answer."""

KINDS: Mapping[str, Capabilities] = {
    "keyed": Capabilities(idempotent_create=True, find_by_reference=True, cancel=True),
    "key-only": Capabilities(idempotent_create=True, find_by_reference=False, cancel=True),
    "searched": Capabilities(idempotent_create=False, find_by_reference=True, cancel=True, max_per_create=3),
    "calendar": Capabilities(idempotent_create=False, find_by_reference=True, cancel=True),
    "neither": Capabilities(idempotent_create=False, find_by_reference=False, cancel=False),
}
"""Kinds of PMS. A `calendar` does not take the same nights twice, not even of the same reservation."""


def capabilities_of(kind: str, options: Mapping[str, Any]) -> Capabilities:
    """What an account of this `kind` has of its PMS. Its options may say otherwise of `idempotent_create` and `find_by_reference`,
    as a mapping does, or a switch of its vendor's."""
    return replace(KINDS[kind], **options)


class Says(Enum):
    """What a PMS answers to a create."""

    YES = "made"
    NO = "no, for good"
    DOWN = "out of service"
    BUSY = "too many requests: wait a minute"
    NOTHING = "no answer, and made: in time, late, or never"


@dataclass(frozen=True, slots=True)
class Reply:
    """To one create: it is made, if at all, `made_after` so many seconds, and answered `after` so many. What is answered `YES` is
    made before that."""

    says: Says = Says.YES
    after: float = 0.0
    made_after: float | None = 0.0


@dataclass(frozen=True, slots=True)
class LookReply:
    """To one look-up, or cancellation: what is there when it is asked, told so much later; or that it is out of service."""

    down: bool = False
    after: float = 0.0


_REFUSED = Rejected(Problem("room_unavailable", "The room is not available", 409, "These nights are taken."))
_DOWN = Deferred("pms_unavailable", "The PMS is down.")
_MAKING = {Says.YES, Says.NOTHING}


class Pmss:
    """All of them, an account each, whose id is their kind."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop
        self.made: defaultdict[str, list[str]] = defaultdict(list)
        """The ids that were given for each reference."""
        self.cancelled: set[str] = set()
        """The references of what was made, and cancelled since."""
        self.under_way: Counter[str] = Counter()
        """How many creates were sent for each reference that may still be made."""
        self.pushes = Pushes()
        self.replies: defaultdict[str, deque[Reply]] = defaultdict(deque)
        self.look_replies: defaultdict[str, deque[LookReply]] = defaultdict(deque)
        self._down_until: dict[str, float] = {}
        self._under_key: dict[str, str] = {}

    def be_well(self) -> None:
        """From now on."""
        self.replies.clear()
        self.look_replies.clear()
        self._down_until.clear()

    def be_down(self, account_id: str, seconds: float) -> None:
        """Out of service, for so long."""
        self._down_until[account_id] = self._loop.time() + seconds

    def _reply(self, account_id: str) -> Reply:
        replies = self.replies[account_id]
        reply = replies.popleft() if replies else Reply()
        return Reply(Says.DOWN, reply.after, None) if self._is_down(account_id) else reply

    def _look_reply(self, account_id: str) -> LookReply:
        replies = self.look_replies[account_id]
        reply = replies.popleft() if replies else LookReply()
        return LookReply(True, reply.after) if self._is_down(account_id) else reply

    def _is_down(self, account_id: str) -> bool:
        return self._loop.time() < self._down_until.get(account_id, 0.0)

    def create(self, account_id: str, reference: str, *, keyed: bool) -> tuple[Push, asyncio.Future[Outcome]]:
        """The first byte arrives; `keyed`: with a key, under which it is made once. The answer, when it comes."""
        push = self.pushes.send(reference, self._loop.time(), keyed=keyed)
        reply = self._reply(account_id)
        if reply.says is Says.NO and keyed and reference in self._under_key:
            reply = Reply(Says.YES, reply.after, 0.0)  # under this key, it had said yes
        answered: asyncio.Future[Outcome] = self._loop.create_future()
        made: list[str] = []
        if reply.says in _MAKING and reply.made_after is not None:
            self.under_way[reference] += 1
            self._after(reply.made_after, lambda: made.extend(self._make(account_id, reference, keyed=keyed)))

        def answer() -> None:
            if not answered.done():
                answered.set_result(_outcome(reply.says, made))

        self._after(reply.after, answer)
        return push, answered

    def find(self, account_id: str, reference: str) -> tuple[LookupOutcome, float]:
        """What will be said, and after how long."""
        reply = self._look_reply(account_id)
        if reply.down:
            return _DOWN, reply.after
        if reference in self.cancelled:
            return Deferred("cancelled_in_pms", "It was cancelled in the PMS."), reply.after
        made = self.made.get(reference)
        if made:
            self.pushes.settle(reference)
            return Confirmed(made[0]), reply.after
        self.pushes.found_nothing(reference, self._loop.time())
        return Absent(), reply.after

    def cancel(self, account_id: str, reference: str) -> tuple[CancelOutcome, float]:
        """As `find`: what is said, and when. What is cancelled is so at once, whether that is heard of or not."""
        reply = self._look_reply(account_id)
        if reply.down:
            return _DOWN, reply.after
        if self.made.get(reference):
            self.cancelled.add(reference)
        return Cancelled(), reply.after

    def _make(self, account_id: str, reference: str, *, keyed: bool) -> list[str]:
        self.under_way[reference] -= 1
        ids = self.made[reference]
        if keyed and reference in self._under_key:
            return [self._under_key[reference]]
        if ids and account_id == "calendar":
            return []
        ids.append(f"pms-{reference}-{len(ids) + 1}")
        if keyed:
            self._under_key[reference] = ids[-1]
        return ids[-1:]

    def _after(self, seconds: float, happens: Callable[[], None]) -> None:
        if seconds > 0:
            self._loop.call_later(seconds, happens)
        else:
            happens()


def _outcome(says: Says, made: Sequence[str]) -> Outcome:
    match says:
        case Says.YES:
            return Confirmed(made[0]) if made else _REFUSED
        case Says.NO:
            return _REFUSED
        case Says.DOWN:
            return _DOWN
        case Says.BUSY:
            return Deferred("pms_throttled", "Too many requests.", 60.0)
        case Says.NOTHING:
            return InDoubt("pms_timed_out", "No answer.")
