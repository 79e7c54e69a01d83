"""Random answers, in random order, at random times, of a PMS that goes away and comes back."""

import random

import pytest

from forwarder.worker.dispatch.throttle import BreakerState, PushStart, Throttle
from forwarder.worker.push.run import NOT_ATTEMPTED, HealthSignal
from tests.support.worker.pushes import DOWN, WELL
from tests.support.worker.queue_site import QueueSite


async def test_there_is_never_more_than_one_probe_and_no_row_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(7)
    site = QueueSite(concurrency=16, max_held=1000)
    probes = _watch(site.throttle, monkeypatch)
    await site.offer(600)
    for _ in range(20_000):
        if not site.dispatcher.held:
            break
        await site.clock.advance(dice.choice([0.0, 0.1, 1.0, 30.0]))
        away = site.clock.monotonic() % 600 < 300
        for number in dice.sample(list(site.pushes.under_way), k=min(len(site.pushes.under_way), dice.randrange(3))):
            await site.pushes.answer(number, signal=DOWN if away else dice.choice([WELL, WELL, NOT_ATTEMPTED]))
    assert len(probes) > 10
    assert sorted(site.pushes.started) == list(range(1, 601))
    assert site.dispatcher.held == 0


def _watch(throttle: Throttle, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every probe from now on, by the opening that it follows. Fails where one starts while another of its opening is under way."""
    probes: list[int] = []
    under_way: set[int] = set()
    start, end, breaker = throttle.start, throttle.end, throttle.breaker

    def watched_start(*, cancelling: bool = False) -> PushStart:
        probe = breaker.state is BreakerState.OPEN
        admission = start(cancelling=cancelling)
        if probe:
            assert admission.breaker not in under_way
            under_way.add(admission.breaker)
            probes.append(admission.breaker)
        else:
            assert breaker.state is BreakerState.CLOSED
        return admission

    def watched_end(admission: PushStart, signal: HealthSignal) -> None:
        if breaker.state is BreakerState.HALF_OPEN and admission.breaker == probes[-1]:
            under_way.discard(admission.breaker)
        end(admission, signal)

    monkeypatch.setattr(throttle, "start", watched_start)
    monkeypatch.setattr(throttle, "end", watched_end)
    return probes
