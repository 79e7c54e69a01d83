"""Whatever bytes a PMS answers with, in whatever pieces: one response, or `NoResponse`, and no more than the limit."""

import gzip
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from forwarder.pms.http.response import NoResponse, ResponseReader
from tests.support.profile import Profile, lives

MOST = 2_000
LIVES: Final[Mapping[Profile, int]] = {"change": 100, "full": 8_000, "long": 300_000}
TOKENS = (
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 204 No Content\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.0 201 Created\n",
    b"HTTP/1.1 409 \r\n",
    b"content-length: 5\r\n",
    b"content-length: 0\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"transfer-encoding: chunked\r\n",
    b"transfer-encoding: gzip, chunked\r\n",
    b"content-encoding: gzip\r\n",
    b"connection: close\r\n",
    b"connection: upgrade\r\nupgrade: websocket\r\n",
    b"x: \x00\xff\r\n",
    b" folded\r\n",
    b"\r\n",
    b"5\r\nhello\r\n",
    b"5;a=b \nhello\n",
    b"ffffffffffffffff\r\n",
    b"0\r\n\r\n",
    b"0\r\nx-trailer: 1\r\n\r\n",
    b"hello",
    b'{"id":1}',
    gzip.compress(b"0" * 100_000),
    gzip.compress(b'{"id":1}'),
)
anything = st.lists(st.sampled_from(TOKENS) | st.binary(max_size=12), max_size=14).map(b"".join)
WHOLE = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n3;a=b\r\nabc\r\n0\r\nx-trailer: 1\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 28\r\n\r\n" + gzip.compress(b'{"id":1}', mtime=0),
)
answers = anything | st.tuples(st.sampled_from(WHOLE), anything).map(b"".join)


def read(pieces: Iterable[bytes]) -> tuple[object, ...]:
    """What comes of them, and then of the connection's end."""
    reader = ResponseReader(MOST)
    try:
        whole = any(reader.feed(piece) for piece in pieces) or reader.end()
        if not whole:
            return ("no whole response",)
        response = reader.response()
    except NoResponse as error:
        return (error.reason,)
    finally:
        reader.close()
    assert len(response.content) <= MOST
    return response.status_code, response.content, tuple(response.headers)


def cut(content: bytes, places: Sequence[int]) -> list[bytes]:
    edges = sorted({0, len(content), *(place % (len(content) + 1) for place in places)})
    return [content[first:last] for first, last in pairwise(edges)]


@lives(LIVES)
@given(answers, st.lists(st.integers(0, 10_000), max_size=6))
def test_an_answer_is_read_or_refused_alike_however_it_comes_in_pieces(answer: bytes, places: list[int]) -> None:
    whole = read([answer] if answer else [])
    assert read(cut(answer, places)) == whole
    assert read(bytes([each]) for each in answer) == whole


@lives(LIVES)
@given(answers, st.integers(0, 10_000))
def test_no_part_of_an_answer_is_more_than_the_whole(answer: bytes, place: int) -> None:
    """What ended early is no other response than the one that was meant, unless the end is what makes it whole."""
    part = read([answer[: place % (len(answer) + 1)] or b"\r\n"])
    whole = read([answer or b"\r\n"])
    framed = b"content-length" in answer.lower() or b"chunked" in answer
    if framed and len(part) > 1 and len(whole) > 1 and part[0] == whole[0]:
        assert isinstance(whole[1], bytes)
        assert isinstance(part[1], bytes)
        assert part[1] == whole[1] or whole[1].startswith(part[1])
