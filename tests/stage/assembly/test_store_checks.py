"""The readiness checks of the store: a write that was refused for want of room counts for half a minute."""

from dataclasses import replace
from pathlib import Path

from forwarder.assembly.backend import open_backend
from forwarder.assembly.role import reading_health, store_checks
from forwarder.http.health import Health
from forwarder.settings import Environment, settings_of
from forwarder.store.engine import identity_of
from tests.support.memory.clock import ManualClock


async def test_the_store_takes_writes_again_half_a_minute_after_the_last_refusal(data_dir: Path) -> None:
    clock = ManualClock()
    async with open_backend(settings_of(Environment(data_dir=data_dir))) as opened:
        backend = replace(opened, clock=clock)
        health = Health(store_checks(backend))
        assert await health.failing() == []
        for _ in range(2):
            identity_of(backend.engine).refusals += 1
            assert await health.failing() == ["store_writes"]
            await clock.advance(20.0)
        assert await health.failing() == ["store_writes"]
        await clock.advance(10.0)
        assert await health.failing() == []


async def test_a_process_that_reads_stays_ready_while_the_store_takes_no_writes(data_dir: Path) -> None:
    async with open_backend(settings_of(Environment(data_dir=data_dir))) as backend:
        health = reading_health(backend)
        assert await health.failing() == []
        identity_of(backend.engine).refusals += 1
        assert await health.failing() == ["store_writes"]
        assert "store_writes" in health.lesser
