"""What is written in one turn of the loop leaves at its end, together; what is large leaves at once, and what is given up never."""

import asyncio

from forwarder.http.connections import GatheringTransport


class _Sent(asyncio.Transport):
    """Notes what the system was handed."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.ended = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return self.ended != ""

    def get_write_buffer_size(self) -> int:
        return 5


def _connection() -> tuple[GatheringTransport, _Sent]:
    sent = _Sent()
    return GatheringTransport(sent), sent


async def test_what_is_written_in_one_turn_leaves_together_at_its_end() -> None:
    connection, sent = _connection()
    connection.write(b"head")
    connection.write(b"body")
    assert not sent.pieces
    assert connection.get_write_buffer_size() == 5 + len(b"headbody")
    await asyncio.sleep(0)
    connection.write(b"next")
    await asyncio.sleep(0)
    assert sent.pieces == [b"headbody", b"next"]


async def test_connections_keep_to_themselves() -> None:
    first, second = _Sent(), _Sent()
    one, other = GatheringTransport(first), GatheringTransport(second)
    one.write(b"a")
    other.write(b"b")
    one.write(b"c")
    await asyncio.sleep(0)
    assert (first.pieces, second.pieces) == ([b"ac"], [b"b"])


async def test_what_is_large_is_not_held_and_nothing_overtakes_it() -> None:
    connection, sent = _connection()
    connection.write(b"head")
    connection.write(b"x" * 20_000)
    assert sent.pieces == [b"head" + b"x" * 20_000]
    for _ in range(40):  # as of a response that is made piece by piece
        connection.write(b"yy")
    connection.write(b"end")
    await asyncio.sleep(0)
    assert len(sent.pieces) == 4
    assert b"".join(sent.pieces[1:]) == b"yy" * 40 + b"end"


async def test_closing_sends_what_is_held_and_aborting_drops_it() -> None:
    closed, of_closed = _connection()
    closed.write(b"last words")
    closed.close()
    assert (of_closed.pieces, of_closed.ended) == ([b"last words"], "closed")
    aborted, of_aborted = _connection()
    aborted.write(b"half of")
    aborted.abort()
    await asyncio.sleep(0)
    assert (of_aborted.pieces, of_aborted.ended) == ([], "aborted")


async def test_a_connection_that_fails_takes_nobody_s_response() -> None:
    class Failing(_Sent):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            raise RuntimeError("the handle is closed")

    bad, good, closing = Failing(), _Sent(), _Sent()
    connections = [GatheringTransport(sent) for sent in (bad, closing, good)]
    for connection in connections:
        connection.write(b"a")
    closing.ended = "closed"
    await asyncio.sleep(0)
    assert (bad.ended, closing.pieces, good.pieces) == ("aborted", [], [b"a"])
    connections[2].write(b"b")
    await asyncio.sleep(0)
    assert good.pieces == [b"a", b"b"]
