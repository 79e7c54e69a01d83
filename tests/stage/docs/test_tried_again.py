"""Which tests CI runs again when they failed: few, and none that shows that nothing is lost or made twice."""

import pytest

from tests.support.cases import for_each
from tools.tried_again import GUARANTEES, MAX_TRIED_AGAIN, never_again, why_not_again

HARMLESS = "tests/journey/test_proxy.py::test_what_the_proxy_says[distributed]"
NEVER = never_again(GUARANTEES.read_text(encoding="utf-8"))


def test_a_few_that_show_something_else_are() -> None:
    assert not why_not_again([HARMLESS] * MAX_TRIED_AGAIN, NEVER)


@pytest.mark.parametrize("count", [0, MAX_TRIED_AGAIN + 1])
def test_many_are_not(count: int) -> None:
    assert why_not_again([HARMLESS] * count, NEVER)


@for_each(
    "finding",
    [
        "tests/fault/outages/test_kafka.py::test_kafka_killed_and_brought_back",
        "tests/net/test_net.py::test_the_guarantees_hold_in_every_history",
        "tests/journey/test_main_job.py::test_killed_in_the_middle_every_submission_is_made_exactly_once[embedded]",
        "tests/journey/specification/test_lost_answers.py::test_what_was_wanted_is_made_once[embedded]",
        "tests/contract/store/test_possibly_sent.py::test_any",
    ],
)
def test_one_that_shows_that_nothing_is_lost_or_made_twice_is_not(finding: str) -> None:
    assert finding in why_not_again([HARMLESS, finding], NEVER)
