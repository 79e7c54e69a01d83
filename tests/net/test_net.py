"""Some histories of the whole deployment, and some mutants. `make net` lives through many more."""

from typing import Final

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.hunting import hunt
from tests.net.histories import live, plan_of, shrink
from tests.net.moves import MOVES
from tests.support.profile import PROFILE, TIMEOUT_SECONDS

pytestmark = pytest.mark.usefixtures("no_log_lines")

SEEDS: Final = {"change": 2, "full": 30, "long": 1000}[PROFILE]


@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_the_guarantees_hold_in_every_history(migrated_sqlite_url: str) -> None:
    for seed in range(1, SEEDS + 1):
        outcome = live(migrated_sqlite_url, plan_of(seed))
        if outcome.wrong:
            pytest.fail(shrink(migrated_sqlite_url, outcome).told())


def test_a_seed_always_makes_the_same_history(migrated_sqlite_url: str) -> None:
    plan = plan_of(2)
    assert plan == plan_of(2)
    one, other = (live(migrated_sqlite_url, plan) for _ in range(2))
    assert [_without_ids(line) for line in one.story] == [_without_ids(line) for line in other.story]


def _without_ids(line: str) -> str:
    return " ".join(word for word in line.split() if not word.startswith("rsv.."))


@pytest.mark.slow  # `make net` takes back each mend
def test_a_mend_taken_back_is_found_and_the_history_is_shrunk() -> None:
    (mutant,) = [each for each in MUTANTS if each.id == "others-can-read"]
    assert hunt(mutant, 3).rule == "workspaces_are_apart"


def test_every_move_says_what_it_is() -> None:
    assert all(each.__doc__ for each in MOVES)
