"""The judge finds what it is there to find: each of these breaks one thing in evidence that is otherwise as it must be."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.fault.campaign.judge import ALL_CONFIRMED, Evidence, Expected, judge
from tests.fault.campaign.ledger import Event
from tests.fault.campaign.load import Submission
from tests.support.cases import for_each

CONFIRMED, REJECTED = "reservation.confirmed.v1", "reservation.rejected.v1"
Break = Callable[[Evidence], Evidence]


def test_nothing_is_found_where_all_is_as_it_must_be() -> None:
    assert judge(_evidence(), Expected(all_accepted=True)) == []
    assert _evidence().is_quiet(ALL_CONFIRMED)


@for_each(
    ("found", "broken"),
    [
        ("accepted, and not on the log", lambda e: replace(e, logged={"b"})),
        ("lost", lambda e: replace(e, logged={"a", "b", "c"})),
        ("lost", lambda e: replace(e, pages={"acc": [_record("a")]})),
        ("made twice", lambda e: replace(e, made={"a": 2, "b": 1})),
        ("CONFIRMED, and not made", lambda e: replace(e, made={"a": 1})),
        ("made, and not CONFIRMED", lambda e: replace(e, made={"a": 1, "b": 1, "c": 1})),
        ("in the store, and never on the log", lambda e: replace(e, logged={"a"})),
        ("accepted, and its status said not to exist", lambda e: replace(e, unknown=["a"])),
        ("not CONFIRMED", lambda e: replace(e, pages={"acc": [_record("a"), _record("b", status="PENDING")]})),
        ("not CONFIRMED", lambda e: replace(e, pages={"acc": [_record("a"), _record("b", status="IN_DOUBT")]})),
        ("answered otherwise than it may be", lambda e: replace(e, answers={"500": 1})),
        ("two request ids for one key", lambda e: replace(e, submissions=[_submission("a", "b")])),
        ("two records of one submission", lambda e: replace(e, pages={"acc": [_record("a"), _record("b", room="Ra")]})),
        ("twice in the pages", lambda e: replace(e, pages={"acc": [_record("a"), _record("b"), _record("b")]})),
        ("final, and not announced", lambda e: replace(e, events={"a": e.events["a"]})),
        ("final, and not announced", lambda e: _with_events(e, Event("b.1", REJECTED, "b", b"1"))),
        (
            "announced under one id with two contents",
            lambda e: _with_events(e, Event("b.1", CONFIRMED, "b", b"1"), Event("b.1", CONFIRMED, "b", b"2")),
        ),
        (
            "confirmed under two ids",
            lambda e: _with_events(e, Event("b.1", CONFIRMED, "b", b"1"), Event("b.2", CONFIRMED, "b", b"1")),
        ),
        (
            "announced out of order",
            lambda e: _with_events(e, Event("b.2", CONFIRMED, "b", b"1"), Event("b.1", REJECTED, "b", b"1")),
        ),
        ("shown twice to a poller", lambda e: replace(e, polled={"acc": ["a", "b", "a"]})),
        ("never shown to a poller", lambda e: replace(e, polled={"acc": ["a"]})),
    ],
)
def test_it_finds(found: str, broken: Break) -> None:
    assert found in [finding.partition(":")[0] for finding in judge(broken(_evidence()), ALL_CONFIRMED)]


def test_what_was_refused_may_be_made_all_the_same_but_not_where_all_must_be_accepted() -> None:
    evidence = replace(_evidence(), submissions=[_submission("a"), Submission("acc", "Rb", {}, None)])
    assert judge(evidence, ALL_CONFIRMED) == []
    assert judge(evidence, Expected(all_accepted=True)) == ["not accepted: 1 (Rb)"]


def test_an_event_that_is_published_again_is_one_event() -> None:
    evidence = _evidence()
    again = replace(evidence, events={**evidence.events, "b": [*evidence.events["b"]] * 2})
    assert judge(again, ALL_CONFIRMED) == []


@pytest.mark.parametrize("waits_for", ["pending", "unannounced", "not taken in"])
def test_it_is_not_quiet_while_something_is_to_come(waits_for: str) -> None:
    evidence = _evidence()
    unquiet = {
        "pending": replace(evidence, pages={"acc": [_record("a"), _record("b", status="PENDING")]}),
        "unannounced": replace(evidence, events={"a": evidence.events["a"]}),
        "not taken in": replace(evidence, pages={"acc": [_record("a")]}),
    }
    assert not unquiet[waits_for].is_quiet(ALL_CONFIRMED)


def _evidence() -> Evidence:
    """Two submissions, accepted, made and announced."""
    return Evidence(
        submissions=[_submission("a"), _submission("b")],
        answers={"202": 2},
        unknown=[],
        logged={"a", "b"},
        pages={"acc": [_record("a"), _record("b")]},
        polled={"acc": ["a", "b"]},
        made={"a": 1, "b": 1},
        events={request_id: [Event(f"{request_id}.1", CONFIRMED, request_id, b"1")] for request_id in ("a", "b")},
    )


def _submission(*request_ids: str) -> Submission:
    return Submission("acc", f"R{request_ids[0]}", {}, "key", set(request_ids))


def _record(request_id: str, *, room: str | None = None, status: str = "CONFIRMED") -> dict[str, str]:
    return {"requestId": request_id, "roomId": room or f"R{request_id}", "status": status}


def _with_events(evidence: Evidence, *events: Event) -> Evidence:
    return replace(evidence, events={**evidence.events, "b": list(events)})
