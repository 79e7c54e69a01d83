"""The evidence of pushes in the store: kept through outcomes, read from rows of an older version; and doubles."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.evidence import NOTHING_SENT, Facts, LookUp, Park, Target, next_step
from forwarder.reservation.outcome import Confirmed, Status
from forwarder.store.engine import open_engine
from forwarder.store.lists.overview import Overview
from forwarder.store.migrate import migrate
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import Repairs
from tests.support.store.release_0_1 import make_tables_of_0_1
from tests.support.store.stored import LATER, arrivals, final, lease, row
from tests.support.worker.works import NOW, carried, doubtful

ENDPOINT = "0123456789abcdef"
_OLD_ROW = """INSERT INTO reservations (request_id, record_id, workspace_id, account_id, "partition", operation, property_id,
    room_id, arrival_date, departure_date, status, request, fingerprint, accepted_at, created_at, updated_at, deadline_at,
    due_at, possibly_sent, safeguards, sent_safeguards)
    VALUES ('rsv_{number}', {number}, 'demo', 'acc', 0, 'general', '7', '7', '2027-03-01', '2027-03-04', 'PENDING', '{{}}', 'f',
    '{now}', '{now}', '{now}', '{later}', '{now}', {possibly_sent}, {safeguards}, {sent})"""


@pytest.fixture
async def bare(database_url: str) -> AsyncIterator[AsyncEngine]:
    opened = open_engine(database_url)
    yield opened
    await opened.dispose()


OLD = [
    # what an older version recorded of a push in doubt; what is done about it now, where the PMS can be searched
    (f"'{ENDPOINT} key reference'", LookUp),
    (f"'{ENDPOINT} reference'", LookUp),
    (f"'{ENDPOINT} key'", Park),
    ("''", Park),
    ("'unknown'", Park),
    ("NULL", Park),
]


async def test_rows_of_an_older_version_are_pushes_whose_credential_nobody_noted(
    bare: AsyncEngine, database_url: str
) -> None:
    def old(connection: Connection) -> None:
        make_tables_of_0_1(connection)
        for number, (sent, _) in enumerate(OLD, 1):
            values = {"now": NOW.isoformat(), "later": (NOW + timedelta(1)).isoformat()}
            statement = _OLD_ROW.format(number=number, possibly_sent="true", safeguards=sent, sent=sent, **values)
            connection.execute(text(statement.replace(":", "\\:")))

    async with bare.begin() as connection:
        await connection.run_sync(old)
    await migrate(database_url)
    recorder = Recorder(bare)
    await lease(recorder, "w1")
    works = await recorder.claim("w1", "acc", range(16), now=LATER, limit=10, target="")
    assert len(works) == len(OLD)
    facts = Facts(Target(ENDPOINT, "us", reference="id"))
    for work, (_, step) in zip(sorted(works, key=lambda each: each.id), OLD, strict=True):
        assert work.possibly_sent
        assert work.evidence.open[0].at
        assert isinstance(next_step(work.evidence, facts, NOW, 0.0, may_create=True), step)


async def test_a_confirmed_row_remembers_where_it_was_made(engine: AsyncEngine) -> None:
    recorder = Recorder(engine)
    await lease(recorder, "w1")
    (work,) = await recorder.ingest("w1", arrivals([1]), now=NOW)
    made = NOTHING_SENT.found("4711", carried(), "2027-01-01T00:00:00.000Z")
    await recorder.record("w1", [replace(final(work), evidence=made)], [])
    kept = await row(engine, work.id)
    assert (kept["evidence"], kept["possibly_sent"]) == (made.text, False)


async def test_an_operators_not_made_settles_what_was_open(engine: AsyncEngine) -> None:
    recorder, repairs = Recorder(engine), Repairs(engine)
    await lease(recorder, "w1")
    (work,) = await recorder.ingest("w1", arrivals([1]), now=NOW)
    in_doubt = replace(final(work, status=Status.IN_DOUBT), evidence=doubtful(), look_at=LATER)
    await recorder.record("w1", [in_doubt], [])
    found = await repairs.in_doubt(work.submission.request_id)
    assert found is not None
    assert found.evidence == doubtful()
    assert await repairs.reopen(found, attempts=(), now=NOW, deadline_at=LATER + timedelta(1))
    (again,) = await recorder.claim("w1", "acc", range(16), now=LATER, limit=10, target="")
    assert (again.possibly_sent, again.evidence.ambiguous_creates) == (False, 0)


async def test_doubles_are_listed_until_they_are_cancelled(engine: AsyncEngine) -> None:
    recorder, repairs, overview = Recorder(engine), Repairs(engine), Overview(engine)
    await lease(recorder, "w1")
    first, second = await recorder.ingest("w1", arrivals([1, 2]), now=NOW)
    made = Confirmed("4711", doubles=("4712", "4713"))
    await recorder.record("w1", [replace(final(first), doubles=made.doubles), final(second)], [])
    (doubled,) = await overview.doubled()
    assert (doubled.request_id, doubled.doubles) == (first.submission.request_id, ("4712", "4713"))
    await repairs.undoubled(doubled.request_id, ["4713"])
    assert [each.doubles for each in await overview.doubled()] == [("4713",)]
    await repairs.undoubled(doubled.request_id, [])
    assert await overview.doubled() == []
