"""Operators' searches: each filter finds what it should and nothing else, newest first, in as many steps as it takes."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.operate.submissions.search import SubmissionSearch, history_of
from forwarder.process.clock import iso
from forwarder.reservation.outcome import Status
from forwarder.reservation.submission import NaturalKey, RequestIds
from forwarder.store.deliveries import NewDelivery
from forwarder.store.delivery_queue import Deliveries
from forwarder.store.lists.overview import Overview
from forwarder.store.lists.port import SubmissionQuery
from forwarder.store.submissions.port import Arrival, Attempt, Ended
from forwarder.store.submissions.recorder import Recorder
from tests.support.store.stored import LATER, arrival, final, lease, postponed
from tests.support.worker.works import NOW

IDS = RequestIds(b"a key of a test's own")
GUESTS = (
    {"firstName": "Åsa", "lastName": 'O"Brien', "email": "asa@example.com", "phone": "+34 600-111 222"},
    {"name": "Maria Rene\u0301e Gonzalez", "phone": 600333444},
)


def _arrival(number: int, *, account: str, workspace: str, transaction: str = "", guest: int = 1) -> Arrival:
    made = arrival(number, account=account, guest=GUESTS[guest], propertyId=7 + number % 2)
    key = IDS.content_key(account, "transaction", transaction.encode()) if transaction else None
    natural = NaturalKey(f"{number}", key, window_seconds=1)
    accepted_at = NOW + timedelta(minutes=number)
    return replace(
        made, submission=replace(made.submission, workspace_id=workspace, natural=natural, accepted_at=accepted_at)
    )


@pytest.fixture
async def searched(engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> SubmissionSearch:
    """Twelve submissions of two workspaces, looked through four at a time: 1 to 4 were refused, 5 to 8 confirmed, 9 and 10 tried in
    vain, 11 and 12 just stored."""
    monkeypatch.setattr("forwarder.store.lists.overview._CANDIDATES", 4)
    recorder = Recorder(engine)
    await lease(recorder, "w1")
    arrivals = [
        _arrival(
            number,
            account=("one", "two")[number % 2],
            workspace=("acme", "other")[number % 2],
            transaction={3: "T-3", 5: "T-5"}.get(number, ""),
            guest=0 if number in {1, 6} else 1,
        )
        for number in range(1, 13)
    ]
    works = await recorder.ingest("w1", arrivals, now=NOW)
    refused = [final(work, status=Status.REJECTED) for work in works[:4]]
    made = [_made(final(work), f"pms-{number}") for number, work in enumerate(works[4:8], 5)]
    tried = Attempt(1, "create", iso(NOW), 12, "deferred", "pms_unreachable", "nobody there")
    waiting = [replace(postponed(work), attempts=[tried]) for work in works[8:10]]
    await recorder.record("w1", [*refused, *made], waiting)

    async def ids() -> RequestIds:
        return IDS

    return SubmissionSearch(Overview(engine), ids)


def _made(ended: Ended, pms_id: str) -> Ended:
    return replace(ended, pms_reservation_id=pms_id)


QUERIES: Sequence[tuple[SubmissionQuery, list[int]]] = (
    (SubmissionQuery(), [*range(12, 0, -1)]),
    (SubmissionQuery(workspace_id="acme"), [12, 10, 8, 6, 4, 2]),
    (SubmissionQuery(workspace_id="acme", account_id="two"), []),
    (SubmissionQuery(account_id="two", statuses=frozenset({Status.REJECTED, Status.PENDING})), [11, 9, 3, 1]),
    (SubmissionQuery(statuses=frozenset({Status.CONFIRMED})), [8, 7, 6, 5]),
    (SubmissionQuery(property_id="8", statuses=frozenset({Status.CONFIRMED})), [7, 5]),
    (SubmissionQuery(reason="pms_unreachable"), [10, 9]),
    (SubmissionQuery(reason="said_no", account_id="one"), [4, 2]),
    (SubmissionQuery(accepted_before=NOW + timedelta(minutes=3)), [2, 1]),
    (SubmissionQuery(accepted_since=NOW + timedelta(minutes=11)), [12, 11]),
    (SubmissionQuery(accepted_before=datetime.max.replace(tzinfo=UTC), account_id="one"), [12, 10, 8, 6, 4, 2]),
    (SubmissionQuery(accepted_since=datetime.min.replace(tzinfo=UTC), account_id="one"), [12, 10, 8, 6, 4, 2]),
    (SubmissionQuery(pms_reservation_id="pms-6"), [6]),
    (SubmissionQuery(pms_reservation_id="pms-6", workspace_id="other"), []),
    (SubmissionQuery(transaction_id=" T-5"), [5]),
    (SubmissionQuery(transaction_id="T-3"), [3]),
    (SubmissionQuery(transaction_id="T-3", account_id="one"), []),
    (SubmissionQuery(guest='åsa o"b'), [6, 1]),
    (SubmissionQuery(guest="ASA@example.com", statuses=frozenset({Status.CONFIRMED})), [6]),
    (SubmissionQuery(guest="+34 600 111222"), [6, 1]),
    (SubmissionQuery(guest="600333444", account_id="two"), [11, 9, 7, 5, 3]),
    (SubmissionQuery(guest="100%"), []),
    (SubmissionQuery(guest="A\u030asa"), [6, 1]),
    (SubmissionQuery(guest="renee"), []),
    (SubmissionQuery(guest="Ren\u00e9e"), [12, 11, 10, 9, 8, 7, 5, 4, 3, 2]),
    (SubmissionQuery(guest="a b " * 2000, account_id="one"), [6]),
    (SubmissionQuery(guest="a" * 60_000), []),
    (SubmissionQuery(reason="a" * 60_000), []),
)


async def test_each_filter_finds_its_own_newest_first(searched: SubmissionSearch) -> None:
    for query, numbers in QUERIES:
        asked = [arrival(number).submission.request_id for number in numbers]
        assert [summary.request_id for summary in await searched.newest(query, 100)] == asked, query
        assert [summary.request_id for summary in await searched.newest(query, 2)] == asked[:2], query
        one_by_one = [summary.request_id async for rows, _ in searched.pages(query, page=1) for summary in rows]
        assert one_by_one == asked, query


async def test_a_timeline_has_what_happened_and_what_comes_next(
    engine: AsyncEngine, searched: SubmissionSearch
) -> None:
    (confirmed,) = await searched.newest(SubmissionQuery(pms_reservation_id="pms-6"), 1)
    event_id = f"{confirmed.request_id}.1"
    for endpoint in ("whk_1", "whk_2"):
        await Deliveries(engine).queue([NewDelivery(endpoint, event_id, "reservation.confirmed.v1", "{}")], now=LATER)
    overview, deliveries = Overview(engine), Deliveries(engine)
    found = await history_of(confirmed.request_id, overview, deliveries)
    assert found is not None
    steps = [(step.what, step.outcome, step.planned) for step in found.steps()]
    assert sorted(steps[:4]) == sorted(
        [
            ("accepted", None, False),
            ("stored", None, False),
            ("create", "confirmed", False),
            ("CONFIRMED", "not published yet", False),
        ]
    )
    assert steps[4:] == [("webhook whk_1", None, True), ("webhook whk_2", None, True)]

    (waiting, _) = await searched.newest(SubmissionQuery(reason="pms_unreachable"), 2)
    tried = await history_of(waiting.request_id, overview, deliveries)
    assert tried is not None
    assert [(step.what, step.reason) for step in tried.steps()[-3:]] == [
        ("accepted", None),
        ("try", None),
        ("deadline", None),
    ]
    assert ("create", "pms_unreachable") in [(step.what, step.reason) for step in tried.steps()]
    assert await history_of("rsv_unknown", overview, deliveries) is None
