"""What a push tells of its PMS, by what was last seen of it."""

import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

import forwarder.pms
from forwarder.pms import port
from forwarder.pms.http.outcomes import outcome_of, unexpected
from forwarder.pms.http.response import Response
from forwarder.pms.port import (
    NOT_ABOUT_THE_PMS,
)
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome, Rejected, describe
from forwarder.reservation.problems import Problem
from forwarder.store.submissions.port import Attempt, Work
from forwarder.worker.push.run import NOT_ATTEMPTED, HealthSignal, PmsHealth, PushContext, health_signal
from tests.support.cases import for_each
from tests.support.pms.httpx_transport import failure_of
from tests.support.worker.works import NOW, account, work

BEFORE = Attempt(1, "create", "2027-01-01T00:00:00.000Z", 5, "deferred", "pms_unavailable", "Down.")
REFUSED = Rejected(Problem("room_unavailable", "Taken", 409, "These nights are taken.", None))


def _found(of: Work, outcome: Outcome, *attempts: Attempt) -> HealthSignal:
    return health_signal(PushContext(account(), of, outcome=outcome, attempts=(*of.attempts, *attempts)))


def _attempt(outcome: Outcome, number: int = 2) -> Attempt:
    name, reason, detail = describe(outcome)
    return Attempt(number, "create", "2027-01-01T00:00:01.000Z", 5, name, reason, detail)


@for_each("earlier", [(), (BEFORE,)])
@for_each(
    "outcome", [REFUSED, Deferred("unknown_kind", ""), Deferred("cannot_open", ""), InDoubt("cannot_be_checked", "")]
)
def test_what_never_asked_the_pms_is_not_attempted(outcome: Outcome, earlier: tuple[Attempt, ...]) -> None:
    assert _found(work(attempts=earlier), outcome) == NOT_ATTEMPTED


@pytest.mark.parametrize("reason", ["unknown_kind", "bad_options", "cannot_open"])
def test_a_push_that_was_not_even_prepared_is_not_attempted(reason: str) -> None:
    outcome = Deferred(reason, "")
    prepared = Attempt(2, "prepare", "2027-01-01T00:00:01.000Z", 0, *describe(outcome))
    assert _found(work(), outcome, prepared) == NOT_ATTEMPTED


@pytest.mark.parametrize("outcome", [Confirmed("7"), REFUSED])
def test_its_own_yes_and_its_own_no_show_it_well(outcome: Outcome) -> None:
    assert _found(work(attempts=(BEFORE,)), outcome, _attempt(outcome)) == HealthSignal(PmsHealth.WELL)


def test_the_last_that_was_seen_of_it_counts() -> None:
    absent = Attempt(1, "find", "2027-01-01T00:00:00.000Z", 5, "absent")
    unsure = InDoubt("pms_timed_out", "")
    assert _found(work(), unsure, absent, _attempt(unsure)) == HealthSignal(PmsHealth.FAILING, "pms_timed_out")
    assert _found(work(), Deferred("deadline_passed", ""), absent) == HealthSignal(PmsHealth.WELL)


@for_each(
    "reason", ["pms_throttled", "pms_unavailable", "pms_unauthorized", "pms_redirected", "pms_failed", "adapter_failed"]
)
def test_what_it_did_not_do_shows_it_failing(reason: str) -> None:
    for outcome in (Deferred(reason, ""), InDoubt(reason, "")):
        assert _found(work(), outcome, _attempt(outcome, 1)) == HealthSignal(PmsHealth.FAILING, reason)


@for_each("reason", sorted(NOT_ABOUT_THE_PMS))
def test_what_speaks_of_one_reservation_or_of_us_says_nothing(reason: str) -> None:
    outcome = Deferred(reason, "")
    assert _found(work(), outcome, _attempt(outcome, 1)).health is PmsHealth.UNKNOWN


@pytest.mark.parametrize(
    ("action", "health"), [("cancel", PmsHealth.UNKNOWN), ("find", PmsHealth.UNKNOWN), ("create", PmsHealth.FAILING)]
)
def test_a_refused_cancellation_or_look_up_says_nothing_of_the_pms(action: str, health: PmsHealth) -> None:
    """A PMS without an endpoint for it answers 404 or 405, and takes reservations."""
    outcome = unexpected(Response(404), NOW)
    assert _found(work(), outcome, replace(_attempt(outcome, 1), action=action)).health is health


def test_those_reasons_are_ones_that_the_seam_gives() -> None:
    seam = Path(forwarder.pms.__file__).parent
    given = "".join(path.read_text() for path in seam.rglob("*.py") if path.name != "port.py")
    for name in ("CANCELLED_IN_PMS", "LEASE_LOST", "LOOKS_ALIKE", "REFUSED_IN_WORDS", "SEARCH_UNPROVEN"):
        given = re.sub(rf"(Deferred|NotSent)\((sdk\.)?{name}", rf'\1("{getattr(port, name)}"', given)
    assert not [reason for reason in NOT_ABOUT_THE_PMS if f'"{reason}"' not in given]


@for_each(
    ("error", "health"),
    [
        (httpx.PoolTimeout("full"), PmsHealth.UNKNOWN),
        (httpx.UnsupportedProtocol("ftp"), PmsHealth.UNKNOWN),
        (httpx.ConnectError("refused"), PmsHealth.FAILING),
        (httpx.ConnectTimeout("late"), PmsHealth.FAILING),
        (httpx.ReadTimeout("late"), PmsHealth.FAILING),
        (httpx.ReadError("reset"), PmsHealth.FAILING),
        (httpx.RemoteProtocolError("odd"), PmsHealth.FAILING),
        (TimeoutError(), PmsHealth.FAILING),
    ],
)
def test_of_what_happens_on_the_wire_only_our_own_doing_is_not_the_pms(
    error: httpx.HTTPError | TimeoutError, health: PmsHealth
) -> None:
    outcome = outcome_of(failure_of(error))
    assert _found(work(), outcome, _attempt(outcome, 1)).health is health
