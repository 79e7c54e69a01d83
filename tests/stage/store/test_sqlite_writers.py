"""Writers of one SQLite file in one process: they take turns in the order in which they came, and readers do not wait for them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from forwarder.store.engine import Engine, open_engine
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.store.submissions.recorder import Recorder
from forwarder.tenancy.sql.database import shared_keys, transaction
from tests.support.store.stored import lease


@pytest.fixture
async def engines(data_dir: Path) -> AsyncIterator[Sequence[Engine]]:
    """As in `forwarder up`: each role has an engine of its own. One was given the file by another path."""
    file = data_dir / "store.sqlite3"
    opened = [open_engine(file), open_engine(f"sqlite:///{data_dir}/../{data_dir.name}/store.sqlite3")]
    yield opened
    for engine in opened:
        await engine.dispose()


async def test_writers_of_a_file_get_their_turns_in_order_while_others_read(engines: Sequence[Engine]) -> None:
    order: list[int] = []

    async def write(number: int) -> None:
        engine = engines[number % 2]
        if number % 3:
            async with engine.begin():
                order.append(number)
        else:  # tenancy's way
            async with transaction(engine, writes=True):
                order.append(number)

    async with engines[0].begin():
        writing = [asyncio.create_task(write(number)) for number in range(30)]
        assert await Reader(engines[0]).ready()
        assert await Reader(engines[1]).ready()
        assert await shared_keys(engines[1]) == {}
        writing[4].cancel()
        assert order == []
    await asyncio.gather(*writing, return_exceptions=True)
    assert order == [number for number in range(30) if number != 4]


async def test_the_wait_for_a_turn_is_bounded_and_a_failed_transaction_ends_it(
    engines: Sequence[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(engines[1])

    async def fail() -> None:
        async with engines[0].begin():
            with monkeypatch.context() as patched:
                patched.setattr("forwarder.store.database._LIMIT_SECONDS", 0.05)
                with pytest.raises(StoreUnavailable, match="TimeoutError"):
                    await asyncio.create_task(lease(recorder, "w1"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await lease(recorder, "w1")


async def test_a_task_that_would_wait_for_itself_is_refused(engines: Sequence[Engine]) -> None:
    async with engines[0].begin():
        with pytest.raises(RuntimeError, match="already has a write transaction"):
            await lease(Recorder(engines[1]), "w1")
    await lease(Recorder(engines[1]), "w1")
