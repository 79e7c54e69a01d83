"""The simulator's own habits and faults, by injected time: a submission is pushed, looked up, created again or parked. At most one
booking is made, and no end is wrong. `tests/contract/pms/test_habits.py` tries every kind, and what the rules are."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import product
from typing import Any, Final, cast

import httpx
import pytest

from forwarder.pms.directory import open_directory
from forwarder.pms.encryption import Plaintext
from forwarder.pms.http.client import PushPolicy
from forwarder.reservation.outcome import Status
from forwarder.simulator.faults import Faults
from forwarder.simulator.world import World
from forwarder.store.submissions.port import Ended, Work
from forwarder.tenancy.port import Account
from forwarder.worker.cards import CardVault
from forwarder.worker.outcome.policy import decide
from forwarder.worker.push.pusher import Pusher, Timing
from forwarder_pms_kit.simulators import SITES, simulator_app
from tests.support.memory.clock import ManualClock, settle
from tests.support.pms.httpx_transport import HttpxTransport
from tests.support.worker.scripted_pms import CardsInTheClear, push_by
from tests.support.worker.works import NOW, work

LOST: Final = {"mode": "error500_after_booking", "count": 1, "scope": "bookings"}


def lost_and(*habits: str, seconds: float = 45.0) -> dict[str, Any]:
    return {**LOST, "habits": habits, "seconds": seconds}


def first(mode: str, **more: Any) -> dict[str, Any]:
    return {"mode": mode, "count": 1, "scope": "bookings", **more}


HABITS: Mapping[str, dict[str, Any]] = {
    "none": {},
    "answer lost": LOST,
    "never made, 500": first("error500"),
    "shows late": lost_and("shows_late"),
    "shows late, 60 s": lost_and("shows_late", seconds=60.0),
    "shows later than settles": lost_and("shows_late", seconds=400.0),
    "commits late": {"habits": ["commits_late"], "seconds": 75.0},
    "202 and later": {"habits": ["accepts"], "seconds": 90.0},
    "reference cut": {"habits": ["reference_cut"]},
    "reference upper-cased": {"habits": ["reference_upper"]},
    "reference replaced": {"habits": ["reference_replaced"]},
    "reference within a text": {"habits": ["reference_in_text"]},
    "reference cut, answer lost": lost_and("reference_cut"),
    "exists, 409": lost_and("shows_late", "exists", seconds=3600.0),
    "exists, 409 at once": first("exists_after_booking"),
    "exists, 422 at once": first("taken_after_booking"),
    "503": first("down_after_booking"),
    "503 with Retry-After": first("down_after_booking", retry_after=5),
    "408": first("timeout_after_booking"),
    "302": first("redirect_after_booking"),
    "303": first("see_other_after_booking"),
    "list shifts": lost_and("list_shifts"),
    "shown twice": lost_and("shows_twice"),
    "keys end": lost_and("keys_end", seconds=24 * 3600.0),
    "answer of somebody else": first("anothers_after_booking"),
    "garbage": first("garbage_after_booking"),
}
LATER_THAN_IT_STATES: Final = {"shows later than settles", "exists, 409"}
"""Beyond what anybody can know: a booking that is not shown for longer than `settles` may be made once more."""


@dataclass(frozen=True)
class End:
    status: Status
    made: int
    seconds: float
    steps: str


@asynccontextmanager
async def pushing(
    kind: str, habit: Mapping[str, Any], clock: ManualClock
) -> AsyncIterator[tuple[Pusher, Account, World]]:
    site = SITES[kind]
    with World(clock) as world:
        transport = HttpxTransport(httpx.ASGITransport(simulator_app(world)))
        world.faults.order("acme", Faults.model_validate({"mode": "none", **habit}))
        policy = PushPolicy(max_pause_seconds=0.01)
        async with open_directory(clock, policy=policy, transport=transport, plaintext=Plaintext.EVERYTHING) as pms:

            async def intend(_work_id: int) -> bool:
                return True

            vault: Any = type("Vault", (), {"open_text": lambda _self, sealed, _bound: sealed})()
            timing, cards = Timing(30.0, 120.0), cast("CardVault", CardsInTheClear())
            pusher = Pusher(pms, vault, clock, cards, may_send=lambda _: True, intend=intend, timing=timing)
            yield (
                pusher,
                Account("acc", "demo", kind, f"http://pms/acme/{site.path}", site.credential, options=site.options),
                world,
            )
            clock_end = asyncio.create_task(clock.advance(8 * 24 * 3600.0))
            await clock_end


async def pushed(pusher: Pusher, account: Account, row: Work, clock: ManualClock) -> Any:
    """One push, whose own short sleeps pass."""
    push = asyncio.ensure_future(push_by(pusher, account, row))
    while not push.done():
        await settle()
        if not push.done():
            await clock.advance(0.05)
    return push.result()


async def ending(kind: str, habit: Mapping[str, Any]) -> End:
    """What becomes of one submission within its deadline."""
    clock, steps = ManualClock(NOW), list[str]()
    async with pushing(kind, habit, clock) as (pusher, account, world):
        target = pusher.target(account)
        fields: dict[str, Any] = {"propertyId": 7, "roomId": 7, "paymentProviderId": "site-7", "numberOfGuests": 2}
        row = replace(work(1, **fields), target=target)
        status, due = Status.PENDING, clock.now()
        for _ in range(40):
            await clock.advance(max((due - clock.now()).total_seconds(), 0.0))
            if row.possibly_sent and (seconds := pusher.seconds_to_wait(account, row)) > 0:
                await clock.advance(seconds)
            result = await pushed(pusher, account, row, clock)
            known = row.attempts[-1].number if row.attempts else 0
            steps += [f"{one.action} {one.outcome} {one.reason or ''}" for one in result.attempts if one.number > known]
            pusher.pushes.note(row, result.evidence)
            decision = decide(result, now=clock.now(), jitter=0.0)
            status = decision.status if isinstance(decision, Ended) else status
            next_due = decision.look_at if isinstance(decision, Ended) else decision.due_at
            if (
                status not in (Status.PENDING, Status.IN_DOUBT)
                or next_due is None
                or next_due > NOW + timedelta(hours=30)
            ):
                break
            due, attempts = next_due, tuple(decision.attempts)
            row = replace(row, status=status, attempts=attempts, evidence=decision.evidence, tries=row.tries + 1)
        made, seconds = world.made, (clock.now() - NOW).total_seconds()
    return End(status, made, seconds, "; ".join(steps[:12]))


@pytest.mark.parametrize(("kind", "habit"), list(product(("generic", "hostaway"), HABITS)))
async def test_whatever_its_habits_a_pms_is_made_to_book_once(kind: str, habit: str) -> None:
    end = await ending(kind, HABITS[habit])
    assert end.made <= 1, end
    if end.made and habit not in LATER_THAN_IT_STATES:
        assert end.status in (Status.CONFIRMED, Status.IN_DOUBT), end
    if not end.made:
        assert end.status is not Status.CONFIRMED, end
