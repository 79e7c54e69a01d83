"""What the service shows of its own contract: the document, its page, and what each problem means. Touches the web framework."""

from asyncio import to_thread
from dataclasses import asdict
from functools import cache
from typing import Final

from pydantic_core import to_json
from starlette.requests import Request
from starlette.routing import Route

from forwarder.http.responses import JSON, Response, Routes, problem_response
from forwarder.process.on_demand import load
from forwarder.published.problem_pages import problem_page, problems_page
from forwarder.reservation.problems.chapters import CATALOGUE
from forwarder.reservation.problems.requests import NOT_FOUND

_HTML: Final = b"text/html; charset=utf-8"
_PAGE_HEADERS: Final = (
    # A page of ours runs nothing and fetches nothing.
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"max-age=300"),
)
_VARY: Final = (b"vary", b"Accept")


@cache
def published_routes() -> Routes:
    """`/openapi.json`, `/docs`, `/problems` and `/problems/<code>`; nobody needs a key for them. The document and its page are made
    when the first reader comes, beside the event loop: most processes are never asked for them."""
    return [
        Route("/openapi.json", _document, methods=["GET"]),
        Route("/docs", _docs, methods=["GET"]),
        Route("/problems", _problems, methods=["GET"]),
        Route("/problems/{code}", _problem),
    ]


async def _document(_: Request) -> Response:
    return (await to_thread(_contract))[0]


async def _docs(_: Request) -> Response:
    return (await to_thread(_contract))[1]


@cache
def _contract() -> tuple[Response, Response]:
    """The document, and its page."""
    document = load("forwarder.published.openapi:openapi")()
    return Response(200, to_json(document)), _page(load("forwarder.published.docs_page:docs_page")(document))


async def _problems(_: Request) -> Response:
    return _page(problems_page())


async def _problem(request: Request) -> Response:
    """A page; JSON to those who ask for that alone."""
    one = CATALOGUE.get(request.path_params["code"])
    if one is None:
        return problem_response(NOT_FOUND.problem("No problem has this code."))
    accept = request.headers.get("accept", "")
    if "application/json" in accept and "text/html" not in accept:
        return Response(200, to_json({"type": f"/problems/{one.code}", **asdict(one)}), (_VARY,), JSON)
    return _page(problem_page(one), _VARY)


def _page(html: str, *headers: tuple[bytes, bytes]) -> Response:
    return Response(200, html.encode(), (*_PAGE_HEADERS, *headers), _HTML)
