"""Files that the service shows: sent as they are or compressed, and not again to those who have them."""

import gzip
from pathlib import Path

import pytest

from forwarder.http.contract import file_response
from forwarder.http.messages import NotModified, Response

TEXT = b"<p>" + b"always the same words " * 200
NAME = b"text/html"


def asked(path: Path, **headers: str) -> Response | NotModified:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return file_response({"type": "http", "headers": lines}, path, NAME, (b"vary", b"Accept-Encoding"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "page.html"
    path.write_bytes(TEXT)
    return path


@pytest.mark.parametrize("encodings", ["gzip", "br, gzip;q=0.8", "*", "GZIP"])
def test_it_is_compressed_for_those_who_take_that(file: Path, encodings: str) -> None:
    response = asked(file, accept_encoding=encodings)
    assert isinstance(response, Response)
    assert (b"content-encoding", b"gzip") in response.headers
    assert gzip.decompress(response.body) == TEXT
    assert len(response.body) < len(TEXT) / 10


@pytest.mark.parametrize("encodings", ["", "br", "gzip;q=0", "gzip; q=0.000, br", "xgzip"])
def test_it_is_sent_as_it_is_to_all_others(file: Path, encodings: str) -> None:
    response = asked(file, accept_encoding=encodings)
    assert isinstance(response, Response)
    assert response.body == TEXT
    assert b"content-encoding" not in dict(response.headers)
    assert (b"vary", b"Accept-Encoding") in response.headers


def test_who_has_it_is_not_sent_it_again(file: Path) -> None:
    plain, zipped = asked(file), asked(file, accept_encoding="gzip")
    assert isinstance(plain, Response)
    assert isinstance(zipped, Response)
    tags = [dict(each.headers)[b"etag"].decode() for each in (plain, zipped)]
    assert tags[0] != tags[1], "two representations have a tag each"
    again = asked(file, if_none_match=f'"other", {tags[0]}')
    assert isinstance(again, NotModified)
    assert dict(again.headers) == {b"etag": tags[0].encode(), b"vary": b"Accept-Encoding"}
    assert isinstance(asked(file, if_none_match=tags[0], accept_encoding="gzip"), Response)
    assert isinstance(asked(file, if_none_match=tags[1], accept_encoding="gzip"), NotModified)
