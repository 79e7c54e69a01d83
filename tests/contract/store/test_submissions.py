"""Many submissions looked up at once, in every store: what is said of each is what is said of it alone."""

from collections.abc import Sequence

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.outcome import Status
from forwarder.store.engine import SessionRow, Sessions, Values
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.recorder import Recorder
from tests.support.store.stored import LATER, arrivals, final, lease
from tests.support.worker.works import submission

UNKNOWN = "rsv_unknown"


@pytest.fixture
async def recorder(engine: AsyncEngine) -> Recorder:
    """A store with the worker "w1" holding its lease."""
    opened = Recorder(engine)
    await lease(opened, "w1")
    return opened


async def test_each_is_told_as_it_is_alone(recorder: Recorder, engine: AsyncEngine) -> None:
    works = await recorder.ingest("w1", arrivals(range(5)), now=LATER)
    await recorder.record("w1", [final(works[1])], [])
    reader = Reader(engine)
    wanted = [work.submission.request_id for work in works[:3]]
    found = await reader.submissions("acc", [*wanted, UNKNOWN])
    assert found == {request_id: await reader.submission("acc", request_id) for request_id in wanted}
    assert [found[request_id].status for request_id in wanted] == [Status.PENDING, Status.CONFIRMED, Status.PENDING]


async def test_only_an_accounts_own_are_found(recorder: Recorder, engine: AsyncEngine) -> None:
    await recorder.ingest("w1", [*arrivals([1]), *arrivals([2], account="other")], now=LATER)
    ours, theirs = submission(1).request_id, submission(2, account="other").request_id
    reader = Reader(engine)
    assert list(await reader.submissions("acc", [ours, theirs])) == [ours]
    assert list(await reader.submissions("other", [ours, theirs])) == [theirs]


async def test_a_thousand_are_one_statement(
    recorder: Recorder, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = await recorder.ingest("w1", arrivals(range(1000)), now=LATER)
    statements: list[str] = []

    def carried_out(_connection: Connection, _cursor: object, sql: str, *_: object) -> None:
        statements.append(sql)

    fetch = Sessions.fetch

    async def fetched(self: Sessions, sql: str, values: Values) -> Sequence[SessionRow]:
        statements.append(sql)
        return await fetch(self, sql, values)

    monkeypatch.setattr(Sessions, "fetch", fetched)
    event.listen(engine.sync_engine, "before_cursor_execute", carried_out)
    found = await Reader(engine).submissions("acc", {work.submission.request_id for work in works})
    event.remove(engine.sync_engine, "before_cursor_execute", carried_out)
    assert len(found) == 1000
    assert [sql.split()[0] for sql in statements if sql != "BEGIN"] == ["SELECT"]


async def test_none_are_none(engine: AsyncEngine) -> None:
    assert await Reader(engine).submissions("acc", []) == {}
    assert await Reader(engine).submissions("acc", [UNKNOWN, UNKNOWN]) == {}
