"""The simulated world outlives its process."""

import json
from pathlib import Path
from typing import Any

import pytest

from forwarder.simulator.world import World
from tests.support.memory.clock import ManualClock
from tests.support.simulator.client import NOW, SYNC, simulated


async def test_a_world_goes_on_where_it_was(tmp_path: Path) -> None:
    journal = tmp_path / "deep" / "world.jsonl"
    async with simulated(World(ManualClock(NOW), journal=journal)) as before:
        made = await before.book()
        [synced] = (await before.sync("S1")).json()["bookings"]
        await before.http.delete(f"{SYNC}/bookings/{synced['id']}")
        made_before = _all_but_requests(before.world)
    async with simulated(World(ManualClock(NOW), journal=journal)) as after:
        assert _all_but_requests(after.world) == made_before
        again = await after.book()
        assert again.status_code == 200
        assert again.json() == made.json()
        assert (await after.book("R2")).status_code == 409
        assert (await after.sync("S2")).status_code == 201
        assert after.world.stats()["made"] == 3


def _all_but_requests(world: World) -> dict[str, Any]:
    return {name: value for name, value in world.stats().items() if not name.startswith("requests")}


async def test_every_answered_booking_is_on_the_disk(tmp_path: Path) -> None:
    journal = tmp_path / "world.jsonl"
    async with simulated(World(ManualClock(NOW), journal=journal)) as client:
        for number in range(3):
            made = await client.book(f"R{number}", roomId=number)
            lines = journal.read_bytes().splitlines()
            assert len(lines) == number + 1
            assert json.loads(lines[-1])["answer"] == made.json()


async def test_a_line_that_was_cut_short_is_forgotten(tmp_path: Path) -> None:
    journal = tmp_path / "world.jsonl"
    async with simulated(World(ManualClock(NOW), journal=journal)) as client:
        await client.book()
        await client.book("R2", roomId="B")
    journal.write_bytes(journal.read_bytes()[:-5])
    for made in (1, 2):
        async with simulated(World(ManualClock(NOW), journal=journal)) as client:
            assert client.world.made == made
            await client.book("R2", roomId="B")
            assert client.world.made == 2


async def test_a_booking_that_cannot_be_written_down_is_not_made(tmp_path: Path) -> None:
    async with simulated(World(ManualClock(NOW), journal=tmp_path / "world.jsonl")) as client:
        client.world.close()
        with pytest.raises(ValueError, match="closed file"):
            await client.book()
        assert client.world.made == 0


async def test_a_reset_empties_the_journal(tmp_path: Path) -> None:
    journal = tmp_path / "world.jsonl"
    async with simulated(World(ManualClock(NOW), journal=journal)) as client:
        await client.book()
        await client.http.post("/reset")
        assert journal.read_bytes() == b""
        await client.book("R2")
    with World(ManualClock(NOW), journal=journal) as world:
        assert [made.reference for made in world.at("acme/generic")] == ["R2"]
