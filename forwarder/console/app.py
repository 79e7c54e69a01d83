"""The console's routes."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.routing import Route

from forwarder.console.guard import SIGN_IN, Guard, View, Visit
from forwarder.console.pages.accounts import AccountPages
from forwarder.console.pages.dead_letters import DeadLetterPages
from forwarder.console.pages.overview import OverviewPage
from forwarder.console.pages.records import AuditPages, TopicPages, WebhookPages
from forwarder.console.pages.submissions import SubmissionPages
from forwarder.console.responses import HOME, Page, redirect, static_route
from forwarder.console.service import ConsoleParts
from forwarder.http.messages import Response, Routes
from forwarder.tenancy.port import NotKnown


def console_routes(parts: ConsoleParts) -> Routes:
    """The routes below `/console`. GET shows, POST acts."""
    guard = Guard(parts.backend.access, parts.backend.clock)
    submissions, letters, accounts = SubmissionPages(parts), DeadLetterPages(parts), AccountPages(parts)
    topics, webhooks = TopicPages(parts), WebhookPages(parts)
    shown: Sequence[tuple[str, View]] = (
        ("", OverviewPage(parts).show),
        ("/submissions", submissions.search),
        ("/submissions/{request_id}", submissions.show),
        ("/bulk", submissions.preview),
        ("/in-doubt", submissions.in_doubt),
        ("/dead-letters", letters.groups),
        ("/dead-letters/replay", letters.preview),
        ("/dead-letters/replays/{id}", letters.progress),
        ("/accounts", accounts.list),
        ("/accounts/{id}", accounts.show),
        ("/topics", topics.list),
        ("/topics/{name}", topics.browse),
        ("/webhooks", webhooks.list),
        ("/webhooks/{id}", webhooks.show),
        ("/audit", AuditPages(parts).list),
    )
    done: Sequence[tuple[str, View]] = (
        ("/sign-out", guard.sign_out),
        ("/submissions/{request_id}", submissions.act),
        ("/bulk", submissions.run_bulk),
        ("/dead-letters/replay", letters.replay),
        ("/dead-letters/replays/{id}", letters.stop),
        ("/accounts/{id}", accounts.act),
        ("/webhooks/{id}", webhooks.act),
    )
    return [
        static_route(),
        Route(HOME + "/", _home),
        Route(HOME + SIGN_IN, guard.sign_in_page),
        Route(HOME + SIGN_IN, guard.sign_in, methods=["POST"]),
        *(Route(HOME + path, guard.view(view)) for path, view in shown),
        *(Route(HOME + path, guard.view(view), methods=["POST"]) for path, view in done),
        Route(HOME + "/{path:path}", guard.view(_unknown)),
    ]


async def _unknown(_visit: Visit) -> Page:
    raise NotKnown("The console has no page at this address.")


async def _home(_request: Request) -> Response:
    return redirect(HOME)
