"""Lists of reservations by filter and order, on every backend: whole pages, both ways, while workers write."""

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import count
from random import Random
from typing import Any

import pytest
from pydantic_core import from_json
from sqlalchemy import Connection, Executable, event, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.outcome import LISTED_STATUSES, Status
from forwarder.store.lists.port import DEFAULT_FILTERS, FIRST, Days, Filters, Order, Page, shape_of
from forwarder.store.lists.reader import Reader, around, onward, parameters_of
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.tables import reservations
from tests.support.backends import only
from tests.support.store.stored import arrival, arrivals, final, lease, polled
from tests.support.worker.works import NOW

MARCH = date(2027, 3, 1)
Row = Mapping[str, Any]


@pytest.fixture
def reader(engine: AsyncEngine) -> Reader:
    return Reader(engine)


def drawn(random: Random, number: int, account: str) -> dict[str, Any]:
    """A row of few properties, days and moments, so that every filter lets some through."""
    stay = MARCH + timedelta(days=random.randrange(8))
    updated = NOW + timedelta(hours=random.randrange(96), milliseconds=random.choice([0, 1]))
    return {
        "request_id": f"rsv_{account}_{number}",
        "record_id": number,
        "workspace_id": "demo",
        "account_id": account,
        "partition": 0,
        "operation": "general",
        "property_id": random.choice(["1", "01", "ü"]),
        "room_id": "1",
        "arrival_date": stay,
        "departure_date": stay + timedelta(days=random.randrange(1, 5)),
        "status": random.choice(list(Status)),
        "request": "{}",
        "fingerprint": "f",
        "record": "",
        **dict.fromkeys(("accepted_at", "created_at", "deadline_at"), NOW),
        "updated_at": updated,
    }


@pytest.fixture
async def rows(engine: AsyncEngine) -> list[Row]:
    """300 rows of two accounts by turns; those of "acc", as they are."""
    random = Random(7)
    given = [drawn(random, number, ("acc", "other")[number % 2]) for number in range(300)]
    async with engine.begin() as connection:
        await connection.execute(insert(reservations), given)
        await connection.execute(reservations.update().values(record=reservations.c.id.concat("")))
        mine = select(reservations).where(reservations.c.account_id == "acc").order_by(reservations.c.id)
        return [dict(row) for row in (await connection.execute(mine)).mappings()]


def matches(row: Row, filters: Filters) -> bool:
    """What the filters mean, written down once more."""
    days = ((row["arrival_date"], filters.arrival), (row["departure_date"], filters.departure))
    return (
        row["status"] in filters.statuses
        and filters.property_id in {None, row["property_id"]}
        and all((span.first or date.min) <= day <= (span.last or date.max) for day, span in days)
        and (filters.updated_since is None or row["updated_at"] >= filters.updated_since)
    )


FILTERS = {
    "by default": DEFAULT_FILTERS,
    "one status": Filters(frozenset({Status.CONFIRMED})),
    "two statuses": Filters(frozenset({Status.PENDING, Status.REJECTED})),
    "every status": Filters(frozenset(Status)),
    "property": Filters(property_id="01"),
    "a property beyond ASCII": Filters(property_id="ü"),
    "no such property": Filters(property_id="2"),
    "one day": Filters(arrival=Days(MARCH, MARCH)),
    "days": Filters(arrival=Days(MARCH + timedelta(2), MARCH + timedelta(4))),
    "from a day on": Filters(arrival=Days(MARCH + timedelta(5), None)),
    "up to a day": Filters(departure=Days(None, MARCH + timedelta(3))),
    "departing on": Filters(departure=Days(MARCH + timedelta(4), MARCH + timedelta(4))),
    "before everything": Filters(arrival=Days(None, date(2026, 1, 1))),
    "updated since": Filters(updated_since=NOW + timedelta(hours=30)),
    "updated since a moment": Filters(updated_since=NOW + timedelta(hours=30, milliseconds=1)),
    "updated since ever": Filters(updated_since=datetime.min.replace(tzinfo=UTC)),
    "updated at the end of time": Filters(updated_since=datetime.max.replace(tzinfo=UTC)),
    "updated after everything": Filters(updated_since=NOW + timedelta(days=900)),
    "every status, updated since": Filters(frozenset(Status), updated_since=NOW + timedelta(hours=30)),
    "rejected, property": Filters(frozenset({Status.REJECTED}), property_id="01"),
    "all of them": Filters(
        frozenset({Status.CONFIRMED, Status.CANCELLED, Status.FAILED}),
        "1",
        Days(MARCH, MARCH + timedelta(6)),
        Days(MARCH + timedelta(1), None),
        NOW + timedelta(hours=3),
    ),
    "waiting, arriving soon": Filters(frozenset({Status.PENDING, Status.FAILED}), arrival=Days(MARCH, MARCH + timedelta(3))),
    "confirmed, arriving soon": Filters(frozenset({Status.CONFIRMED}), arrival=Days(MARCH, MARCH + timedelta(3))),
    "cancelled since": Filters(frozenset({Status.CANCELLED}), updated_since=NOW + timedelta(hours=50)),
    "there in between": Filters(arrival=Days(None, MARCH + timedelta(3)), departure=Days(MARCH + timedelta(4), None)),
}  # fmt: skip


def shown(page: Page) -> list[int]:
    return [int(record) for record in page.records]


async def followed(read: Callable[[int], Any], limit: int) -> list[Page]:
    """Every page, by `next`. All but the last are full."""
    pages: list[Page] = []
    cursor: int | None = FIRST
    while cursor is not None:
        pages.append(await read(cursor))
        assert pages[-1].current == cursor
        cursor = pages[-1].next
    assert all(len(page.records) == limit for page in pages[:-1])
    return pages


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_show_what_matches_once_and_lead_both_ways(reader: Reader, rows: list[Row], order: Order) -> None:
    for name, filters in FILTERS.items():  # on one database: to make one takes longer than all this
        expected = [row["id"] for row in rows if matches(row, filters)]
        if order == "desc":
            expected.reverse()
        for limit in (1, 7) if len(expected) < 30 else (21, 200):

            async def read(cursor: int, limit: int = limit, filters: Filters = filters) -> Page:
                return await reader.page("acc", cursor=cursor, limit=limit, filters=filters, order=order)

            pages = await followed(read, limit)
            assert [each for page in pages for each in shown(page)] == expected, name
            assert [page.previous for page in pages] == [None, *(page.current for page in pages[:-1])], name


def test_the_filters_of_these_tests_let_something_through_and_keep_something_out() -> None:
    random = Random(7)
    given = [drawn(random, number, "acc") for number in range(300)]
    trivial = {name for name, one in FILTERS.items() if sum(matches(row, one) for row in given) in {0, len(given)}}
    assert trivial == {
        "every status",
        "no such property",
        "before everything",
        "updated at the end of time",
        "updated after everything",
    }


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_a_cursor_may_be_any_number(reader: Reader, rows: list[Row], order: Order) -> None:
    filters = Filters(frozenset({Status.CONFIRMED}))
    ids = [row["id"] for row in rows if matches(row, filters)]
    for cursor in (2, ids[3], ids[3] + 1, ids[-1], ids[-1] + 1, 2**63 - 1):
        page = await reader.page("acc", cursor=cursor, limit=5, filters=filters, order=order)
        onward = (
            [each for each in ids if each >= cursor]
            if order == "asc"
            else [each for each in reversed(ids) if each < cursor]
        )
        assert shown(page) == onward[:5]
        assert (page.previous is None) == (len(onward) == len(ids))


@pytest.fixture
async def uneven(engine: AsyncEngine) -> list[tuple[int, date]]:
    """400 rows of "acc" over 40 days, as (id, day): most days have few, some many, or only old or only new ones, some none."""
    random = Random(11)
    given = []
    for number in range(400):
        late = number >= 200
        offset = random.choice([0, 1, 2, 11, 22, 25, *([3, 12, 33] * 5 if late else [5, 13, 38] * 5), *range(14, 21)])
        day = MARCH + timedelta(offset)
        stay = {"arrival_date": day, "departure_date": day + timedelta(1), "status": Status.CONFIRMED}
        given.append(drawn(random, number, "acc") | stay)
    async with engine.begin() as connection:
        await connection.execute(insert(reservations), given)
        await connection.execute(reservations.update().values(record=reservations.c.id.concat("")))
        found = await connection.execute(
            select(reservations.c.id, reservations.c.arrival_date).order_by(reservations.c.id)
        )
        return [(row.id, row.arrival_date) for row in found]


RANGES = {
    "every day looked at": Days(MARCH, MARCH + timedelta(39)),
    "some, none on the first": Days(MARCH + timedelta(4), MARCH + timedelta(24)),
    "one": Days(MARCH + timedelta(12), MARCH + timedelta(12)),
    "none": Days(MARCH + timedelta(6), MARCH + timedelta(10)),
    "the days found first": Days(MARCH, MARCH + timedelta(365)),
    "open": Days(MARCH + timedelta(2), None),
}


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_a_page_of_many_days_lacks_none_however_unlike_they_are(
    reader: Reader, uneven: list[tuple[int, date]], order: Order
) -> None:
    """A sample of the days says where a page may end at the latest: on each of these some of it come from days outside of it."""
    for name, days in RANGES.items():
        expected = [id_ for id_, day in uneven if (days.first or date.min) <= day <= (days.last or date.max)]
        assert bool(expected) == (name != "none")
        if order == "desc":
            expected.reverse()
        for limit, statuses in (
            (1 if name == "one" else 11, LISTED_STATUSES),
            (30, frozenset({Status.CONFIRMED, Status.FAILED})),
            (200, frozenset(Status)),
            (200, LISTED_STATUSES),
        ):
            filters = Filters(statuses, arrival=days)

            async def read(cursor: int, limit: int = limit, filters: Filters = filters) -> Page:
                return await reader.page("acc", cursor=cursor, limit=limit, filters=filters, order=order)

            pages = await followed(read, limit)
            assert [each for page in pages for each in shown(page)] == expected, name
            assert [page.previous for page in pages] == [None, *(page.current for page in pages[:-1])], name


async def test_newest_first_shows_what_was_there_once_while_more_come(engine: AsyncEngine, reader: Reader) -> None:
    recorder = Recorder(engine)
    await lease(recorder, "w1")
    numbers = count(1)
    works = [work for _ in range(4) for work in await recorder.ingest("w1", arrivals([next(numbers)]), now=NOW)]
    there = [work.record_id for work in works]

    async def read(cursor: int) -> Page:
        page = await reader.page("acc", cursor=cursor, limit=2, order="desc")
        await recorder.ingest("w1", arrivals([next(numbers)]), now=NOW)
        return page

    pages = await followed(read, 2)
    seen = [from_json(record)["id"] for page in pages for record in page.records]
    assert seen == there[::-1]
    back = await reader.page("acc", cursor=pages[1].current, limit=2, order="desc")
    assert back.previous is not None
    assert back.previous > pages[1].current


async def test_a_poller_of_a_status_misses_none_while_workers_write(engine: AsyncEngine, reader: Reader) -> None:
    """Many intakes at once, whose transactions may end in any order; what is confirmed already is none of the list's."""
    numbers = count(1)

    async def write(worker_id: str) -> list[tuple[int, int]]:
        recorder = Recorder(engine)
        await lease(recorder, worker_id)
        kept: list[tuple[int, int]] = []
        for _ in range(15):
            works = await recorder.ingest(worker_id, [arrival(next(numbers)), arrival(next(numbers))], now=NOW)
            await recorder.record(worker_id, [final(works[0])], [])
            kept.append((works[1].id, works[1].record_id))
        return kept

    writing = asyncio.gather(*(write(f"w{number}") for number in range(3)))
    pending = Filters(frozenset({Status.PENDING}))
    seen = await polled(reader, writing.done, pending)
    kept = [record_id for _, record_id in sorted(each for mine in await writing for each in mine)]
    assert len(kept) == 45
    assert [each for each in seen if each in kept] == kept


@pytest.fixture
async def waits_in_doubt(engine: AsyncEngine) -> datetime:
    """One reservation that was taken in long before it was changed; the moment of the change."""
    recorder = Recorder(engine)
    await lease(recorder, "w1")
    (work,) = await recorder.ingest("w1", arrivals([1]), now=NOW)
    changed = NOW + timedelta(days=40)
    await recorder.record("w1", [final(work, status=Status.IN_DOUBT, at=changed)], [])
    return changed


async def test_what_was_changed_is_found_by_when_it_was_changed(reader: Reader, waits_in_doubt: datetime) -> None:
    async def since(moment: datetime) -> int:
        page = await reader.page("acc", cursor=FIRST, limit=5, filters=Filters(updated_since=moment))
        return len(page.records)

    assert await since(waits_in_doubt) == 1
    assert await since(waits_in_doubt + timedelta(milliseconds=1)) == 0


@only("embedded")
async def test_on_sqlite_a_page_is_read_by_the_index_of_its_list(engine: AsyncEngine) -> None:
    """On PostgreSQL: tests/contract/store/plans/test_plans.py."""
    for name, filters in FILTERS.items():
        shape = shape_of(filters, "asc")
        asked = {"account_id": "acc", "max_rows": 11, **parameters_of(filters, shape, FIRST)}
        for statement in (
            onward("sqlite", shape, (reservations.c.id, reservations.c.record)),
            around("sqlite", shape, (reservations.c.id, reservations.c.record)),
        ):
            steps = await plan(engine, statement, asked)
            assert "SCAN reservations" not in steps, name
            assert f"INDEX reservations_{shape.lead} (account_id" in steps, name
            key = "" if shape.lead == "listed" else " AND [^)]+=\\?"
            assert re.search(rf"\(account_id=\?{key} AND id[<>]\?", steps), name


async def plan(engine: AsyncEngine, statement: Executable, asked: Mapping[str, Any]) -> str:
    def explain(connection: Connection) -> str:
        def prefix(_c: Any, _cursor: Any, sql: str, given: Any, _context: Any, _many: bool) -> tuple[str, Any]:
            return f"EXPLAIN QUERY PLAN {sql}", given

        event.listen(connection, "before_cursor_execute", prefix, retval=True)
        cursor = connection.execute(statement, asked).cursor
        assert cursor is not None
        return "\n".join(row[-1] for row in cursor.fetchall())

    async with engine.connect() as connection:
        return await connection.run_sync(explain)
