"""Serves the API documentation: the contract's documents, the interactive page, the guides, and the problem pages, as
`python -m tools.contracts write` writes them. Files are tagged and compressed once, on the first request."""

import gzip
import re
from asyncio import to_thread
from collections.abc import Mapping
from functools import cache, partial
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final, cast

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Scope

from forwarder.http import messages
from forwarder.http.messages import JSON, Header, NotModified, Response, Routes, problem_response
from forwarder.reservation.problems import NOT_FOUND

_PUBLISHED: Final = Path(__file__).parent / "published"
_HTML: Final = b"text/html; charset=utf-8"
_CACHED: Final = (b"cache-control", b"max-age=300")
_FILE: Final = (_CACHED, (b"x-content-type-options", b"nosniff"))
_VARY: Final = (b"vary", b"Accept-Encoding")
_VARY_BY_ACCEPT: Final = (b"vary", b"Accept")
_VARY_BY_BOTH: Final = (b"vary", b"Accept, Accept-Encoding")
_REFUSED: Final = re.compile(r"gzip\s*;\s*q=0(\.0{0,3})?\s*(,|$)", re.IGNORECASE)
_TAKEN: Final = re.compile(r"(^|,)\s*(gzip|\*)\s*(;|,|$)", re.IGNORECASE)


def _policy(*sources: bytes) -> Header:
    framed = (b"default-src 'none'", *sources, b"base-uri 'none'", b"form-action 'none'", b"frame-ancestors 'none'")
    return (b"content-security-policy", b"; ".join(framed))


_READING: Final = _policy(b"style-src 'unsafe-inline'", b"img-src data:")
"""Our own pages run no scripts and fetch nothing."""
_TRYING: Final = _policy(
    b"script-src 'self'", b"style-src 'unsafe-inline'", b"img-src 'self' data:", b"connect-src 'self'"
)
"""Scripts come from this service and may connect only to it, so a token typed into the page cannot leak elsewhere."""
_DOCUMENTS: Final = {"/openapi.json": JSON, "/asyncapi.yaml": b"application/yaml", "/pms-openapi.json": JSON}
_START: Final = (
    b'{"service":"Reservation forwarder","docs":"/docs","guides":"/docs/guides","openapi":"/openapi.json",'
    b'"asyncapi":"/asyncapi.yaml","problems":"/problems"}'
)


def contract_routes() -> Routes:
    """`/`, `/docs` and the paths below it, the documents, and `/problems`. No authentication."""
    return [
        Route("/", _start, methods=["GET"]),
        *(Route(path, _document, methods=["GET"]) for path in _DOCUMENTS),
        Route("/docs", partial(_page, name="docs.html", policy=_TRYING), methods=["GET"]),
        Route("/docs/guides", partial(_page, name="guides.html"), methods=["GET"]),
        Route("/docs/guides/{guide}", _guide),
        Route("/docs/{script}.js", _script, methods=["GET"], include_in_schema=False),
        Route("/problems", partial(_page, name="problems.html"), methods=["GET"]),
        Route("/problems/{code}", _problem),
    ]


async def _start(request: Request) -> Response:
    """Redirects browsers to the docs; gives programs a JSON index."""
    if "text/html" in request.headers.get("accept", ""):
        return Response(303, b"", ((b"location", b"/docs"), _VARY_BY_ACCEPT), _HTML)
    return Response(200, _START, (_VARY_BY_ACCEPT, _CACHED))


async def _document(request: Request) -> Response | NotModified:
    file, media_type = _PUBLISHED / request.url.path.removeprefix("/"), _DOCUMENTS[request.url.path]
    return await to_thread(file_response, request.scope, file, media_type, _VARY, *_FILE)


async def _guide(request: Request) -> Response | NotModified:
    name = request.path_params["guide"]
    if name not in await to_thread(_guides):
        return problem_response(NOT_FOUND.problem("There is no guide of this name. All of them: /docs/guides"))
    return await _page(request, f"guides/{name}.html")


async def _script(request: Request) -> Response | NotModified:
    if (file := _scripts().get(request.path_params["script"])) is None:
        return problem_response(NOT_FOUND.problem("Unknown path."))
    return await to_thread(file_response, request.scope, file, b"text/javascript; charset=utf-8", _VARY, *_FILE)


async def _problem(request: Request) -> Response | NotModified:
    code = request.path_params["code"]
    if (known := (await to_thread(_problem_types)).get(code)) is None:
        return problem_response(NOT_FOUND.problem("No problem has this code. All of them: /problems"))
    accept = request.headers.get("accept", "")
    if "application/json" in accept and "text/html" not in accept:
        return Response(200, to_json(known), (_VARY_BY_BOTH,), JSON)
    return await _page(request, f"problems/{code}.html", _VARY_BY_BOTH)


async def _page(request: Request, name: str, vary: Header = _VARY, policy: Header = _READING) -> Response | NotModified:
    return await to_thread(file_response, request.scope, _PUBLISHED / name, _HTML, vary, policy, *_FILE)


def file_response(scope: Scope, path: Path, media_type: bytes, *headers: Header) -> Response | NotModified:
    """The file, compressed if the caller accepts that; 304 if it has it. Blocks on the first request. Raises `OSError`."""
    asked = messages.header_map(scope)
    encodings = asked.get("accept-encoding", "")
    zipped = _TAKEN.search(encodings) is not None and _REFUSED.search(encodings) is None
    body, tag = _read(path, zipped)
    headers = (*headers, (b"etag", tag.encode()))
    if messages.matches(asked.get("if-none-match", ""), tag):
        return NotModified(headers)
    return Response(200, body, (*headers, (b"content-encoding", b"gzip")) if zipped else headers, media_type)


@cache
def _read(path: Path, zipped: bool) -> tuple[bytes, str]:  # noqa: FBT001 - the key of the cache
    # Without the time in it, every process has the same tag.
    body = gzip.compress(path.read_bytes(), mtime=0) if zipped else path.read_bytes()
    return body, messages.entity_tag(body)


@cache
def _scripts() -> Mapping[str, Path]:
    # Scalar is the interactive page's script. The package reads all that it holds when it is imported, and is not.
    return {"docs": _PUBLISHED / "docs.js", "scalar": Path(str(distribution("offapi").locate_file("offapi/scalar.js")))}


@cache
def _guides() -> frozenset[str]:
    return frozenset(file.stem for file in (_PUBLISHED / "guides").glob("*.html"))


@cache
def _problem_types() -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", from_json((_PUBLISHED / "problems.json").read_bytes()))
