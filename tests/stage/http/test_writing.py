"""What is written to a connection in one turn of the event loop leaves in one piece."""

import asyncio
from typing import Any

from forwarder.http.writing import GatheringTransport


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


async def test_connections_are_written_to_in_the_order_in_which_they_were_answered() -> None:
    loop, written = asyncio.get_running_loop(), list[str]()

    class Named(_Wire):
        def write(self, data: Any) -> None:
            written.append(bytes(data).decode())

    first, second = GatheringTransport(Named(), loop), GatheringTransport(Named(), loop)
    first.write(b"1")
    second.write(b"2")
    first.write(b"1")
    await asyncio.sleep(0)
    assert written == ["11", "2"]


async def test_a_connection_that_cannot_be_written_to_keeps_no_other_from_it() -> None:
    loop, reported = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _loop, context: reported.append(context))

    class Broken(_Wire):
        def write(self, data: Any) -> None:
            raise RuntimeError("closed")

    broken, wire = GatheringTransport(Broken(), loop), _Wire()
    broken.write(b"lost")
    GatheringTransport(wire, loop).write(b"sent")
    await asyncio.sleep(0)
    assert wire.seen == [b"sent"]
    assert [str(context["exception"]) for context in reported] == ["closed"]
