"""The guarantees as invariants of a state machine: real workers on the real store, and every mishap at every step of theirs."""

import os
from collections.abc import Iterator
from typing import Any, Final, cast

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.machine.corners import CORNERS, live_through
from tests.support.machine.life import Life
from tests.support.machine.site import OPERATOR
from tests.support.machine.worlds.store import Store, opened_store

PROFILE: Final = os.environ.get("FORWARDER_TEST_PROFILE", "ci")
"""`ci`, the same lives each time; or `long`, others each time."""

EXAMPLES: Final = {"ci": {"sqlite": 50, "postgresql": 15}, "long": {"sqlite": 2000, "postgresql": 300}}
STEPS: Final = {"ci": 25, "long": 50}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    structlog.configure(processors=[_drop])
    yield
    structlog.reset_defaults()


def _drop(_logger: object, _method: str, _event: Any) -> Any:
    raise structlog.DropEvent


@pytest.fixture
def store(migrated_url: str) -> Iterator[Store]:
    with opened_store(migrated_url, OPERATOR + 1) as opened:
        yield opened


@pytest.mark.parametrize("opening", CORNERS)
def test_the_guarantees_hold_at_every_corner_of(opening: str, store: Store) -> None:
    broken: list[str] = []
    for corner in CORNERS[opening]:
        try:
            live_through(store, opening, corner)
        except AssertionError as error:
            broken.append(f"{dict(corner)}\n    {error}")
    assert not broken, "\n".join([f"{len(broken)} of {len(CORNERS[opening])} corners:", *broken])


@pytest.mark.timeout(7200 if PROFILE == "long" else 300)
def test_the_guarantees_hold_whatever_happens(store: Store) -> None:
    profile = settings(
        max_examples=EXAMPLES[PROFILE][store.dialect],
        stateful_step_count=STEPS[PROFILE],
        derandomize=PROFILE == "ci",
        deadline=None,
        print_blob=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )

    def life() -> Life:
        return Life(store)

    run_state_machine_as_test(cast("Any", life), settings=profile)
