"""How long the state machines and other drawn tests are, by `FORWARDER_TEST_PROFILE`.

`change`, the default, is for every change, `full` for `make test-all`; both live the same lives each time. `long` lives others.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast

from hypothesis import HealthCheck, Phase, settings

Profile = Literal["change", "full", "long"]

PROFILE: Final = cast("Profile", os.environ.get("FORWARDER_TEST_PROFILE", "change"))
TIMEOUT_SECONDS: Final = 7200 if PROFILE == "long" else 300
_STEPS: Final[Mapping[Profile, int]] = {"change": 20, "full": 25, "long": 50}


def examples(count: int) -> int:
    """Of a property that is drawn, for Hypothesis: a fifth for a change."""
    return count // 5 if PROFILE == "change" else count


def lives(lives_by_profile: Mapping[Profile, int], phases: Sequence[Phase] = tuple(Phase)) -> settings:
    """Hypothesis's settings for so many lives of a state machine."""
    return settings(
        max_examples=lives_by_profile[PROFILE],
        stateful_step_count=_STEPS[PROFILE],
        derandomize=PROFILE != "long",
        deadline=None,
        phases=phases,
        print_blob=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def some(corners: Sequence[Any], one_in: int, *, first: int = 0) -> Sequence[Any]:
    """Those that are gone through: for a change one in so many, from the one at `first` or the last, else all."""
    return corners[min(first, len(corners) - 1) :: one_in] if PROFILE == "change" else corners
