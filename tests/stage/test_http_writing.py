"""What is written to a connection in one turn of the event loop leaves in one piece."""

import asyncio
from typing import Any

from forwarder.runtime.http_writing import GatheringTransport


class _Wire(asyncio.Transport):
    """Notes what reaches it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bytes | str] = []

    def write(self, data: Any) -> None:
        self.seen.append(bytes(data))

    def close(self) -> None:
        self.seen.append("closed")

    def abort(self) -> None:
        self.seen.append("aborted")


async def test_what_is_written_in_one_turn_leaves_in_one_piece() -> None:
    wire = _Wire()
    gathering = GatheringTransport(wire, asyncio.get_running_loop())
    gathering.write(b"head ")
    gathering.write(bytearray(b"body"))
    assert wire.seen == []
    await asyncio.sleep(0)
    assert wire.seen == [b"head body"]


async def test_closing_sends_what_was_written_before_it() -> None:
    wire = _Wire()
    gathering = GatheringTransport(wire, asyncio.get_running_loop())
    gathering.write(b"last")
    gathering.close()
    await asyncio.sleep(0)
    assert wire.seen == [b"last", "closed"]


async def test_aborting_sends_nothing_more() -> None:
    wire = _Wire()
    gathering = GatheringTransport(wire, asyncio.get_running_loop())
    gathering.write(b"last")
    gathering.abort()
    await asyncio.sleep(0)
    assert wire.seen == ["aborted"]


async def test_much_does_not_wait_for_the_turns_end() -> None:
    wire = _Wire()
    gathering = GatheringTransport(wire, asyncio.get_running_loop())
    gathering.write(b"x" * 40_000)
    gathering.write(b"y" * 40_000)
    assert wire.seen == [b"x" * 40_000 + b"y" * 40_000]
    await asyncio.sleep(0)
    assert len(wire.seen) == 1
