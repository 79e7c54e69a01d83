"""Bulk repairs on the store: what they change, what a second run changes, and what the audit trail has of it."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.operate.submissions.bulk import make_due, plan_retry
from forwarder.operate.submissions.settle import Repair, Settlements, read_settlements
from forwarder.oversight.audit import Audit
from forwarder.process.clock import iso
from forwarder.reservation.outcome import Status
from forwarder.store.audit import AuditFilter
from forwarder.store.deployment import AuditTrail
from forwarder.store.lists.overview import Overview
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import Repairs
from forwarder.tenancy.sql.directory import SqlDirectory
from tests.support.memory.clock import ManualClock
from tests.support.store.stored import LATER, arrivals, final, lease, postponed, row

SOON = LATER - timedelta(minutes=1)


async def test_waiting_submissions_are_made_due_once(engine: AsyncEngine) -> None:
    recorder, overview, trail = Recorder(engine), Overview(engine), AuditTrail(engine)
    await lease(recorder, "w1")
    works = await recorder.ingest("w1", arrivals(range(1, 4)), now=SOON)
    await recorder.record("w1", [], [postponed(work) for work in works[:2]])
    clock = ManualClock(SOON)
    desk = (Repairs(engine), clock, Audit(trail, clock))
    found = await overview.summaries([work.submission.request_id for work in works])
    plan = plan_retry(found, now=iso(SOON))
    assert {each.id for each in plan.chosen} == {work.id for work in works[:2]}
    outcome = await make_due(plan, *desk, stop=asyncio.Event())
    assert (outcome.done, outcome.already, outcome.left) == (2, 0, 0)
    assert (await row(engine, works[0].id))["due_at"] == SOON
    again = await make_due(plan, *desk, stop=asyncio.Event())
    assert (again.done, again.already) == (0, 2)
    entries = await trail.entries(AuditFilter(action="submissions.retry"), before=None, limit=9)
    assert all(works[0].submission.request_id in entry.details for entry in entries)
    assert len(entries) == 2


async def test_a_file_settles_what_is_in_doubt_and_a_second_time_nothing(engine: AsyncEngine) -> None:
    recorder, overview, trail = Recorder(engine), Overview(engine), AuditTrail(engine)
    await lease(recorder, "w1")
    works = await recorder.ingest("w1", arrivals(range(1, 4)), now=SOON)
    doubts = [replace(final(work, status=Status.IN_DOUBT), pms_reservation_id=None) for work in works[:2]]
    await recorder.record("w1", [*doubts, final(works[2])], [])
    ids = [work.submission.request_id for work in works]
    clock = ManualClock(LATER)
    repair = Repair(Repairs(engine), clock, Audit(trail, clock), by="Ann", note="ticket 7, 4111 1111 1111 1111")
    settling = Settlements(repair, overview, SqlDirectory(engine, clock))
    text = f"requestId,decision,pmsReservationId,reason\n{ids[0]},confirmed,4711,\n{ids[1]},rejected,,sold out\n"
    settlements, _ = read_settlements(f"{text}{ids[2]},rejected,,no\nrsv_none,not_made,,\n")
    plan = await settling.plan(settlements)
    assert [each.request_id for each in plan.chosen] == ids[:2]
    assert [*plan.refused] == [ids[2], "rsv_none"]
    outcome = await settling.run(plan, stop=asyncio.Event())
    assert (outcome.done, outcome.failed) == (2, {})
    assert {status for status, _ in (await overview.statuses(ids)).values()} == {Status.CONFIRMED, Status.REJECTED}
    again = await settling.plan(settlements)
    assert (list(again.chosen), list(again.settled)) == ([], ids[:2])
    assert (await settling.run(plan, stop=asyncio.Event())).already == 2
    entries = await trail.entries(AuditFilter(action="submission.settle"), before=None, limit=9)
    done = [entry.details for entry in entries if entry.result == "done"]
    assert all("Ann" in details and "ticket 7" in details and "4111 1111" not in details for details in done)
    assert len(done) == 2


async def test_a_line_with_an_id_and_a_reason_is_settled_by_what_its_decision_needs(engine: AsyncEngine) -> None:
    recorder, overview, trail = Recorder(engine), Overview(engine), AuditTrail(engine)
    await lease(recorder, "w1")
    works = await recorder.ingest("w1", arrivals([1, 2]), now=SOON)
    doubts = [replace(final(work, status=Status.IN_DOUBT), pms_reservation_id=None) for work in works]
    await recorder.record("w1", doubts, [])
    first, second = (work.submission.request_id for work in works)
    clock = ManualClock(LATER)
    settling = Settlements(Repair(Repairs(engine), clock, Audit(trail, clock)), overview, SqlDirectory(engine, clock))
    text = f"requestId,decision,pmsReservationId,reason\n{first},confirmed,4711,seen\n{second},rejected,4712,sold out\n"
    settlements, faults = read_settlements(text)
    assert faults == []
    outcome = await settling.run(await settling.plan(settlements), stop=asyncio.Event())
    assert (outcome.done, outcome.failed) == (2, {})
    confirmed, rejected = [await row(engine, work.id) for work in works]
    assert (confirmed["status"], confirmed["pms_reservation_id"]) == ("CONFIRMED", "4711")
    assert (rejected["status"], rejected["pms_reservation_id"]) == ("REJECTED", None)
    assert "sold out" in rejected["problem"]
