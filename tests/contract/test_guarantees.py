"""The guarantees as invariants of a state machine: real workers on the real store, and every mishap at every step of theirs."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.support.machine.corners import CORNERS, live_through
from tests.support.machine.life import Life
from tests.support.machine.site import OPERATOR
from tests.support.machine.worlds.store import Store, opened_store
from tests.support.profile import TIMEOUT_SECONDS, Profile, lives, some

pytestmark = pytest.mark.usefixtures("no_log_lines")

EXAMPLES: Final[Mapping[str, Mapping[Profile, int]]] = {
    "sqlite": {"change": 2, "full": 50, "long": 2000},
    "postgresql": {"change": 3, "full": 15, "long": 300},
}


@pytest.fixture
def store(migrated_url: str) -> Iterator[Store]:
    with opened_store(migrated_url, OPERATOR + 1) as opened:
        yield opened


@pytest.mark.parametrize("opening", CORNERS)
def test_the_guarantees_hold_at_every_corner_of(opening: str, store: Store) -> None:
    broken: list[str] = []
    corners = some(CORNERS[opening], 12, first=0 if store.dialect == "postgresql" else 3)
    for corner in corners:
        try:
            live_through(store, opening, corner)
        except AssertionError as error:
            broken.append(f"{dict(corner)}\n    {error}")
    assert not broken, "\n".join([f"{len(broken)} of {len(corners)} corners:", *broken])


@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_the_guarantees_hold_whatever_happens(store: Store) -> None:
    def life() -> Life:
        return Life(store)

    run_state_machine_as_test(cast("Any", life), settings=lives(EXAMPLES[store.dialect]))
