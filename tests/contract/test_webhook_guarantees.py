"""What is promised of webhook deliveries, through outages that are longer than every retention and deadline."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.engine import open_engine
from tests.contract.test_guarantees import PROFILE, _drop
from tests.support.machine.webhooks import WebhookLife
from tests.support.machine.worlds.sqlite_at_once import do_at_once

EXAMPLES = {"ci": {"sqlite": 30, "postgresql": 5}, "long": {"sqlite": 3000, "postgresql": 300}}
PHASES = {"ci": [Phase.generate], "long": [Phase.generate, Phase.shrink]}
"""A life is short enough to be read as it is; to find a shorter one takes minutes."""

STEPS = {"ci": 20, "long": 50}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    structlog.configure(processors=[_drop])
    yield
    structlog.reset_defaults()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture
def opened(migrated_url: str, loop: asyncio.AbstractEventLoop) -> Iterator[AsyncEngine]:
    engine = open_engine(migrated_url)
    if engine.dialect.name == "sqlite":
        do_at_once(engine)
    yield engine
    loop.run_until_complete(engine.dispose())


@pytest.mark.timeout(7200 if PROFILE == "long" else 300)
def test_deliveries_survive_outages_of_any_length(opened: AsyncEngine, loop: asyncio.AbstractEventLoop) -> None:
    profile = settings(
        max_examples=EXAMPLES[PROFILE][opened.dialect.name],
        stateful_step_count=STEPS[PROFILE],
        derandomize=PROFILE == "ci",
        deadline=None,
        phases=PHASES[PROFILE],
        print_blob=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )

    def life() -> WebhookLife:
        return WebhookLife(opened, loop)

    run_state_machine_as_test(cast("Any", life), settings=profile)
