"""Random answers, in random order, at random times, of a PMS that goes away and comes back."""

import random

import pytest

from forwarder.worker.dispatch.breaker import BreakerState
from forwarder.worker.dispatch.throttle import Admission, Throttle
from forwarder.worker.push.health_signal import NOT_ATTEMPTED, HealthSignal
from tests.support.worker.lane_site import LaneSite
from tests.support.worker.pushes import DOWN, WELL


async def test_there_is_never_more_than_one_probe_and_no_row_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(7)
    site = LaneSite(concurrency=16, held_at_most=1000)
    probes = _watch(site.gate, monkeypatch)
    await site.offer(600)
    for _ in range(20_000):
        if not site.lanes.held:
            break
        await site.clock.advance(dice.choice([0.0, 0.1, 1.0, 30.0]))
        away = site.clock.monotonic() % 600 < 300
        for number in dice.sample(list(site.pushes.under_way), k=min(len(site.pushes.under_way), dice.randrange(3))):
            await site.pushes.answer(number, finding=DOWN if away else dice.choice([WELL, WELL, NOT_ATTEMPTED]))
    assert len(probes) > 10
    assert sorted(site.pushes.started) == list(range(1, 601))
    assert site.lanes.held == 0


def _watch(gate: Throttle, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every probe from now on, by the opening that it follows. Fails where one starts while another of its opening is under way."""
    probes: list[int] = []
    under_way: set[int] = set()
    enter, leave, breaker = gate.enter, gate.leave, gate._breaker

    def watched_enter() -> Admission:
        probe = breaker.state is BreakerState.OPEN
        entered = enter()
        if probe:
            assert entered.breaker not in under_way
            under_way.add(entered.breaker)
            probes.append(entered.breaker)
        else:
            assert breaker.state is BreakerState.CLOSED
        return entered

    def watched_leave(entered: Admission, finding: HealthSignal) -> None:
        if breaker.state is BreakerState.HALF_OPEN and entered.breaker == probes[-1]:
            under_way.discard(entered.breaker)
        leave(entered, finding)

    monkeypatch.setattr(gate, "enter", watched_enter)
    monkeypatch.setattr(gate, "leave", watched_leave)
    return probes
