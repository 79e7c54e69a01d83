"""What is promised of webhook deliveries, through outages that are longer than every retention and deadline."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import pytest
from hypothesis import Phase
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.engine import open_engine
from tests.contract.webhook_life import WebhookLife
from tests.net.worlds.sqlite_at_once import do_at_once
from tests.support.profile import PROFILE, TIMEOUT_SECONDS, Profile, lives

pytestmark = pytest.mark.usefixtures("no_log_lines")

EXAMPLES: Final[Mapping[str, Mapping[Profile, int]]] = {
    "sqlite": {"change": 4, "full": 30, "long": 3000},
    "postgresql": {"change": 2, "full": 5, "long": 300},
}
PHASES = [Phase.generate, Phase.shrink] if PROFILE == "long" else [Phase.generate]
"""A life is short enough to be read as it is; to find a shorter one takes minutes."""


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


@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_deliveries_survive_outages_of_any_length(opened: AsyncEngine, loop: asyncio.AbstractEventLoop) -> None:
    def life() -> WebhookLife:
        return WebhookLife(opened, loop)

    run_state_machine_as_test(cast("Any", life), settings=lives(EXAMPLES[opened.dialect.name], PHASES))
