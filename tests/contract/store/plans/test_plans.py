"""How PostgreSQL carries out the statements that run all the time: by the indexes made for them, whatever the tables hold."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import date, timedelta
from itertools import product
from typing import Any, get_args

import asyncpg
import pytest
from sqlalchemy import Connection, Executable, event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.outcome import Status
from forwarder.store import deployment
from forwarder.store.batches import BATCH, as_batch, batch_with_texts
from forwarder.store.engine import open_engine
from forwarder.store.lists import overview
from forwarder.store.lists.port import Days, Filters, Order, SubmissionQuery, shape_of
from forwarder.store.lists.reader import (
    _BY_ID,
    _BY_REQUEST_IDS,
    LISTED,
    around,
    onward,
    page_statement,
    parameters_of,
)
from forwarder.store.submissions import cancellations, leases, recorder
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.tables import parked_cancellations
from tests.support.backends import only
from tests.support.profile import PROFILE
from tests.support.store.stored import lease
from tests.support.worker.works import NOW
from tools.generic_plan import generic_plan
from tools.servers.postgres.databases import new_database

_ROWS = 20_000 if PROFILE == "change" else 50_000
OUTCOME = {"status": "CONFIRMED", "updated_at": NOW, "due_at": NOW, "attempts": [], "possibly_sent": False}
_FILL = """
INSERT INTO reservations (request_id, record_id, workspace_id, account_id, partition, operation, property_id, room_id, arrival_date,
  departure_date, status, request, fingerprint, accepted_at, created_at, updated_at, deadline_at, due_at, leased_by)
SELECT 'rsv_' || n, n, 'demo', 'acc' || n % 5, n % 16, 'general', '1', '1', '2027-03-01', '2027-03-02',
  CASE WHEN n % 3 = 0 THEN 'PENDING' ELSE 'CONFIRMED' END, repeat('x', 500), 'f', :now, :now, :now, :now,
  CASE WHEN n % 3 = 0 THEN CAST(:now AS timestamptz) + (n % 2000 - 1000) * interval '1 second' END,
  CASE WHEN n % 3 = 0 AND n % 7 = 0 THEN 'w1' END
FROM generate_series(1, :rows) AS n
"""


@pytest.fixture(scope="module", params=[pytest.param("never analyzed", marks=pytest.mark.slow), "analyzed"])
def full_url(request: pytest.FixtureRequest, postgres_url: str, migrated_template: str) -> Iterator[str]:
    """Thousands of rows of five accounts, a third of them pending, with and without statistics. They stay as they are."""
    with asyncio.Runner() as runner:
        database = new_database(postgres_url, template=migrated_template)
        url = runner.run(database.__aenter__())
        runner.run(_fill(url, analyzed=request.param == "analyzed"))
        yield url
        runner.run(database.__aexit__(None, None, None))


async def _fill(url: str, *, analyzed: bool) -> None:
    engine = open_engine(url)
    await lease(Recorder(engine), "w1")
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE reservations SET (autovacuum_enabled = off)"))
        await connection.execute(text(_FILL), {"now": NOW, "rows": _ROWS})
        if analyzed:
            await connection.execute(text("ANALYZE reservations"))
    await engine.dispose()


@pytest.fixture
async def full(full_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on that database."""
    engine = open_engine(full_url)
    yield engine
    await engine.dispose()


@pytest.fixture
async def copy_url(postgres_url: str, full_url: str) -> AsyncIterator[str]:
    """The test's own copy of that database."""
    async with new_database(postgres_url, template=full_url) as url:
        yield url


async def lookup_plan(url: str, statement: Executable, parameters: Mapping[str, Any]) -> str:
    """What it does for a statement that readers look something up by."""
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        return await generic_plan(connection, statement, parameters)
    finally:
        await connection.close()


async def plan(engine: AsyncEngine, statement: Executable, parameters: Mapping[str, Any]) -> str:
    """What PostgreSQL does; nothing of it is committed. Not all of it shows unless it is carried out."""

    def explain(connection: Connection) -> str:
        def prefix(_c: Any, _cursor: Any, sql: str, given: Any, _context: Any, _many: bool) -> tuple[str, Any]:
            return f"EXPLAIN (ANALYZE, BUFFERS) {sql}", given

        event.listen(connection, "before_cursor_execute", prefix, retval=True)
        cursor = connection.execute(statement, parameters).cursor
        assert cursor is not None
        return "\n".join(line for (line,) in cursor.fetchall())

    async with engine.connect() as connection:
        return await connection.run_sync(explain)


def reads_every_row(steps: str) -> bool:
    return "Seq Scan on reservations" in steps


async def test_rows_are_claimed_by_the_index_of_due_rows(full: AsyncEngine) -> None:
    asked = {"worker_id": "w1", "account": "acc1", "partitions": [3, 4], "now": NOW, "limit": 200, "target": ""}
    steps = await plan(full, leases.claim(), asked)
    assert "reservations_due" in steps
    assert not reads_every_row(steps)


async def test_expired_rows_are_claimed_by_the_index_of_deadlines(full: AsyncEngine) -> None:
    asked = {"worker_id": "w1", "partitions": [3, 4], "now": NOW, "limit": 200}
    steps = await plan(full, leases.claim_expired(), asked)
    assert "reservations_deadline" in steps
    assert not reads_every_row(steps)


async def test_accounts_with_due_rows_are_found_by_the_index_of_due_rows(full: AsyncEngine) -> None:
    steps = await plan(full, leases.accounts_due(), {"partitions": [3, 4], "now": NOW + timedelta(days=1)})
    assert steps.count("reservations_due") == 3
    assert "reservations_listed" not in steps
    assert not reads_every_row(steps)


async def test_what_stands_is_counted_by_the_indexes_of_what_stands(full: AsyncEngine) -> None:
    steps = await plan(full, deployment.accounts(), {"now": NOW})
    assert indexes(steps) == {"reservations_status ", "reservations_due "}, steps
    assert not reads_every_row(steps)
    read = [
        int(rows) * int(loops) for rows, loops in re.findall(r"using reservations_.* rows=(\d+) loops=(\d+)\)", steps)
    ]
    assert sum(read) < _ROWS / 2, steps  # of which a third is pending; of the others none is looked at
    steps = await plan(full, deployment.failed, {})
    assert indexes(steps) == {"reservations_failed "}, steps
    steps = await plan(full, deployment.endpoints, {})
    assert "webhook_deliveries_due" in steps


async def test_a_workers_rows_are_found_by_the_index_of_held_rows(full: AsyncEngine) -> None:
    steps = await plan(full, leases.leased_ids, {"worker_id": "w1"})
    assert "reservations_leased" in steps
    assert not reads_every_row(steps)


async def test_rows_of_the_lost_are_found_by_the_index_of_held_rows(full: AsyncEngine) -> None:
    steps = await plan(full, leases.free_abandoned(), {"now": NOW, "stamp": ""})
    assert steps.count("reservations_leased") == 3
    assert not reads_every_row(steps)


async def test_outcomes_find_their_rows_by_id(full: AsyncEngine) -> None:
    rows = [OUTCOME | {"id": number} for number in range(21, 4221, 21)]
    alone, recorded = {BATCH: as_batch(rows)}, batch_with_texts("postgresql", rows, "record", [b"{}"] * len(rows))
    tried = (leases.postpone(), leases.release(), leases.mark_pushing)
    ended = (recorder.record(), recorder.finish)
    for statement, batch in (*((each, alone) for each in tried), *((each, recorded) for each in ended)):
        steps = await plan(full, statement, {"worker_id": "w1", **batch})
        assert "reservations_pkey" in steps
        assert not reads_every_row(steps)


async def test_the_submissions_of_a_bulk_are_found_by_request_id(full_url: str) -> None:
    for count in (1, 1000):
        asked = as_batch([{"request_id": f"rsv_{number}"} for number in range(1, count + 1)])
        steps = await lookup_plan(full_url, _BY_REQUEST_IDS, {"account_id": "acc1", BATCH: asked, "whole_up_to": 5_000})
        assert "reservations_request_id" in steps
        assert not reads_every_row(steps)


async def test_cancellations_find_their_rows_by_request_id(full: AsyncEngine) -> None:
    names = [{"request_id": f"rsv_{number}", "account_id": "acc1"} for number in range(1, 500, 50)]
    asked = [each | {"revision": 0, "requested_at": NOW, "deadline_at": NOW} for each in names]
    steps = await plan(full, cancellations.note(), {BATCH: as_batch(asked), "now": NOW})
    assert "reservations_request_id" in steps
    assert not reads_every_row(steps)
    async with full.begin() as connection:
        await connection.execute(parked_cancellations.insert(), [each | {"requested_at": NOW} for each in names])
    for statement in (cancellations.unpark(), cancellations.forget_parked):
        steps = await plan(full, statement, {"now": NOW})
        assert "reservations_request_id" in steps
        assert not reads_every_row(steps)
    async with full.begin() as connection:
        await connection.execute(parked_cancellations.delete())


_ALONE: dict[str, Filters] = {
    "listed": Filters(),
    "status": Filters(frozenset(Status)),
    "property": Filters(property_id="1"),
    "arrival": Filters(arrival=Days(date(2027, 1, 1), date(2027, 12, 31))),
    "departure": Filters(departure=Days(date(2027, 2, 26), date(2027, 3, 8))),
    "updated": Filters(updated_since=NOW),
}
_TOGETHER: dict[str, Filters] = {
    "property": Filters(frozenset({Status.CONFIRMED}), "1", Days(date(2027, 1, 1), None), updated_since=NOW),
    "status": Filters(frozenset({Status.PENDING}), arrival=Days(date(2027, 1, 1), date(2027, 4, 1)), updated_since=NOW),
    "departure": Filters(frozenset({Status.CONFIRMED}), departure=Days(date(2027, 3, 2), date(2027, 3, 2))),
    "updated": Filters(frozenset({Status.CONFIRMED}), arrival=Days(None, date(2027, 4, 1)), updated_since=NOW),
}
_LISTS = [*_ALONE.items(), *_TOGETHER.items()]
_A_PAGE = 150
"""Blocks: what a page of ten may touch, out of some thousands, for three runs and the rows themselves."""


async def test_a_page_is_read_by_the_index_of_its_list(full: AsyncEngine, full_url: str) -> None:
    """Of ten thousand rows of the account, nearly all with the same property, day and moment."""
    async with full.connect() as connection:
        statistics = await connection.execute(text("SELECT count(*) FROM pg_stats WHERE tablename = 'reservations'"))
    analyzed = statistics.scalar_one() > 0
    for (name, filters), order, cursor in product(_LISTS, get_args(Order), (1, _ROWS // 2, _ROWS)):
        shape = shape_of(filters, order)
        asked = {"account_id": "acc1", "max_rows": 11, **parameters_of(filters, shape, cursor)}
        for statement in (onward("postgresql", shape, LISTED), around("postgresql", shape, LISTED)):
            steps = await lookup_plan(full_url, statement, asked)
            used = indexes(steps)
            assert f"reservations_{name} " in used, steps
            assert used <= {f"reservations_{name} ", "reservations_pkey "}, steps
            assert not reads_every_row(steps)
            # Without statistics it takes one day's changes for so few that it sorts them.
            assert blocks(steps) < _A_PAGE or (name == "updated" and not analyzed), steps


async def test_where_nearly_everything_was_refused_the_default_list_passes_none_of_it_over(copy_url: str) -> None:
    """Of the account's ten thousand rows a hundred are left, far apart."""
    connection = await asyncpg.connect(copy_url.replace("+asyncpg", ""))
    await connection.execute("UPDATE reservations SET status = 'REJECTED' WHERE id % 500 > 4")
    await connection.execute("VACUUM (ANALYZE) reservations")
    await connection.close()
    for order, cursor in product(get_args(Order), (1, _ROWS // 2, _ROWS)):
        shape = shape_of(Filters(), order)
        asked = {"account_id": "acc1", "max_rows": 11, **parameters_of(Filters(), shape, cursor)}
        steps = await lookup_plan(copy_url, page_statement("postgresql", shape, is_first=cursor == 1), asked)
        assert indexes(steps) == {"reservations_listed "}, steps
        assert "Removed" not in steps, steps
        assert blocks(steps) < 40, steps


@pytest.mark.parametrize(
    ("wanted", "index", "most"),
    [
        (SubmissionQuery(["acc1"]), "status", 6 * 30),
        (SubmissionQuery(["acc1", "acc2"], frozenset({Status.PENDING})), "status", 2 * 30),
        (SubmissionQuery(["acc1", "acc2"], property_id="1"), "property", 2 * 30),
        (SubmissionQuery(["acc1"], pms_reservation_id="pms-1"), "pms_id", 30),
        (SubmissionQuery([str(number) for number in range(200)]), "pkey", 30),
    ],
)
async def test_what_operators_search_for_is_found_without_reading_all_of_it(
    full: AsyncEngine, wanted: SubmissionQuery, index: str, most: int
) -> None:
    lead = overview.lead_of(wanted)
    asked = {"before": _ROWS, "max_rows": 20, BATCH: as_batch(overview.runs_of(wanted, lead))}
    steps = await plan(full, overview.candidates("postgresql", lead), asked)
    assert f"reservations_{index} " in indexes(steps), steps
    assert not reads_every_row(steps)
    assert blocks(steps) < most, steps


async def test_what_has_a_transaction_is_found_by_the_index_of_what_is_recognised(full: AsyncEngine) -> None:
    steps = await plan(full, overview.of_transactions(), {BATCH: as_batch([{"transaction_key": "a key"}])})
    assert indexes(steps) == {"reservations_recognised "}, steps
    assert blocks(steps) < 30, steps


async def test_of_many_days_none_is_read_further_than_the_page_can_reach(copy_url: str) -> None:
    """22 days, 450 rows each: a page of eleven from the middle, and as many before it. Two days' runs are read for eleven rows;
    of the others no more than what lies among these."""
    connection = await asyncpg.connect(copy_url.replace("+asyncpg", ""))
    await connection.execute("UPDATE reservations SET arrival_date = DATE '2027-03-01' + CAST(id AS int) % 22")
    await connection.close()
    filters = Filters(arrival=Days(date(2027, 3, 1), date(2027, 3, 22)))
    shape = shape_of(filters, "asc")
    asked = {"account_id": "acc1", "max_rows": 11, **parameters_of(filters, shape, _ROWS // 2)}
    steps = await lookup_plan(copy_url, page_statement("postgresql", shape, is_first=False), asked)
    assert indexes(steps) == {"reservations_arrival ", "reservations_pkey "}, steps
    read = re.findall(r"using reservations_arrival .*rows=(\d+) loops=(\d+)\)", steps)
    assert sum(int(loops) for _, loops in read) == 2 * 22, steps
    assert sum(int(rows) * int(loops) for rows, loops in read) < 2 * 22 * 11 * 0.7, steps


@only("distributed")
@pytest.mark.parametrize("rows", [0, 20])
async def test_a_plan_that_was_made_while_there_was_little_is_no_other(
    engine: AsyncEngine, migrated_url: str, rows: int
) -> None:
    """It is kept while the table grows."""
    async with engine.begin() as connection:
        await connection.execute(text(_FILL), {"now": NOW, "rows": rows})
    async with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        await connection.execute(text("VACUUM ANALYZE reservations"))
    for (name, filters), order, is_first in product(_LISTS, get_args(Order), (True, False)):
        shape = shape_of(filters, order)
        asked = {"account_id": "acc1", "max_rows": 11, **parameters_of(filters, shape, 1 if is_first else 10)}
        steps = await lookup_plan(migrated_url, page_statement("postgresql", shape, is_first=is_first), asked)
        assert f"reservations_{name} " in indexes(steps), steps
        assert indexes(steps) <= {f"reservations_{name} ", "reservations_pkey "}, steps
        assert not reads_every_row(steps)
    for statement, index in ((_BY_ID, "record_id"), (_BY_REQUEST_IDS, "request_id")):
        asked = {"account_id": "acc1", "id": 1, "request_id": "rsv_1", BATCH: as_batch([{"request_id": "rsv_1"}])}
        asked["whole_up_to"] = 5_000
        steps = await lookup_plan(migrated_url, statement, asked)
        assert indexes(steps) == {f"reservations_{index} "}, steps


def indexes(steps: str) -> set[str]:
    return set(re.findall(r"reservations_[a-z_]+ ", steps))


def blocks(steps: str) -> int:
    found = re.search(r"Buffers: shared (?:hit=(\d+))?(?: ?read=(\d+))?", steps)
    assert found is not None
    return sum(int(count or 0) for count in found.groups())
