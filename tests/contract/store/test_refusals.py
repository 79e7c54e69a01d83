"""What PostgreSQL cannot hold: it is told from an outage, so that nobody tries it again for ever. SQLite holds nearly anything."""

import random
import string
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Integer, bindparam, select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.database import Database
from forwarder.store.submissions.port import Unstorable
from forwarder.store.submissions.recorder import Recorder
from tests.support.backends import only
from tests.support.store.stored import arrival, lease
from tests.support.worker.works import NOW

pytestmark = only("distributed")

LONG = "".join(random.Random(7).choices(string.ascii_letters, k=20_000))
"""As good as not to be compressed: it fits in no index."""


@pytest.mark.parametrize("field", ["request_id", "account_id"])
async def test_what_fits_in_no_index_is_refused_and_nothing_that_came_with_it_is_kept(
    engine: AsyncEngine, field: str
) -> None:
    recorder, odd = Recorder(engine), arrival(2)
    await lease(recorder, "w1")
    given: dict[str, Any] = {field: LONG}
    odd = replace(odd, submission=replace(odd.submission, **given))
    with pytest.raises(Unstorable) as caught:
        await recorder.ingest("w1", [arrival(1), odd], now=NOW)
    assert LONG[:10] not in str(caught.value)
    assert len(await recorder.ingest("w1", [arrival(1)], now=NOW)) == 1


@pytest.mark.parametrize(("value", "kind"), [(2**70, Integer()), ("a\0b", None)])
async def test_what_it_has_no_value_for_is_refused_by_the_driver_or_by_itself(
    engine: AsyncEngine, value: object, kind: Integer | None
) -> None:
    statement = select(bindparam("value", type_=kind).label("value"))
    with pytest.raises(Unstorable):
        await Database(engine).run(statement, {"value": value})
