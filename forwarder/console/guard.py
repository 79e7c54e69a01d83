"""Access to the console: sign-in with an operator's key, sessions, and verification that a form is ours.

Sessions are in this process's memory: a restart ends all of them. A session holds the token of the key that it was opened with,
because only the token shows whether its key is still valid."""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import structlog
from starlette.requests import Request

from forwarder.console.responses import HOME, Go, RenderedPage, address, html, redirect
from forwarder.console.service import ConsoleParts
from forwarder.http.messages import BodyFault, Header, HttpRequest, Response, client_address
from forwarder.oversight.audit import Actor, acting_as
from forwarder.process.addresses import is_local
from forwarder.process.clock import Clock
from forwarder.reservation.problems import Problem
from forwarder.store.submissions.port import StoreUnavailable, Unstorable
from forwarder.tenancy.port import ApiKey, NotKnown, TenancyUnavailable
from forwarder.topics.port import LogUnavailable

IDLE_SECONDS: Final = 30 * 60.0
"""How long a session lasts without an action of its operator; a page that refreshes itself does not count."""
LONGEST_SECONDS: Final = 8 * 60 * 60.0


@dataclass(slots=True)
class Session:
    """One operator's browser. `form_token`: a token that each of its forms must carry. `notice`: for the next page to show."""

    token: str = field(repr=False)
    key_id: str
    form_token: str = field(repr=False)
    ends_at: float
    idle_at: float
    notice: str | None = None


class CookieSessions:
    """The sessions of this process, by their cookies. Keeps only hashes of the cookies."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: OrderedDict[str, Session] = OrderedDict()

    def open(self, token: str, key_id: str) -> str:
        """Opens a session; returns the value of its cookie, always a new one. At the maximum, ends the oldest session."""
        cookie, form_token, now = secrets.token_urlsafe(32), secrets.token_urlsafe(32), self._clock.monotonic()
        self._open[_hash(cookie)] = Session(token, key_id, form_token, now + LONGEST_SECONDS, now + IDLE_SECONDS)
        if len(self._open) > 1_000:  # noqa: PLR2004 - the maximum
            self._open.popitem(last=False)
        return cookie

    def find(self, cookie: str, *, in_use: bool) -> Session | None:
        """The session of that cookie, unless it has ended. `in_use`: the request is an action of the operator."""
        session, now = self._open.get(_hash(cookie)), self._clock.monotonic()
        if session is None:
            return None
        if now >= min(session.ends_at, session.idle_at):
            self.close(cookie)
            return None
        if in_use:
            session.idle_at = now + IDLE_SECONDS
        return session

    def close(self, cookie: str) -> None:
        self._open.pop(_hash(cookie), None)


def _hash(cookie: str) -> str:
    return sha256(cookie.encode("utf-8", "replace")).hexdigest()


SIGN_IN: Final = "/sign-in"
_SESSION_COOKIE: Final = "console_session"
_FORM_COOKIE: Final = "console_form"
_LIVE: Final = "x-console-live"
"""The header of requests with which a page refreshes itself."""


def _error(title: str, detail: str, status: int) -> RenderedPage:
    return RenderedPage("error.html", {"title": title, "detail": detail}, status)


_NOT_OURS: Final = _error(
    "This form was not accepted",
    "It did not come from a page of this console, or that page is too old. Nothing was changed: reload the page and try again.",
    403,
)

_log = structlog.get_logger(__name__)


class Form(dict[str, list[str]]):
    def text(self, name: str) -> str:
        return (self.get(name) or [""])[0].strip()


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a signed-in operator. `form` is empty unless a form was sent."""

    request: Request
    parts: ConsoleParts
    key: ApiKey
    session: Session
    form: Form

    def query(self, name: str) -> str:
        return self.request.query_params.get(name, "").strip()


View = Callable[[Visit], Awaitable[RenderedPage | Go]]
"""Renders a page, or carries out a form. May raise the errors of the store and the log; `NotKnown` becomes a page that says so."""


class Guard:
    def __init__(self, parts: ConsoleParts) -> None:
        self._parts, self._access, self._sessions = parts, parts.backend.access, CookieSessions(parts.backend.clock)

    def view(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                visit = await self._visit(request)
            except TenancyUnavailable:
                visit = _away("database")
            if visit is None and _LIVE in request.headers:  # redirect the whole page, not the refreshed part
                visit = _error("Signed out", "Sign in again.", 401)
            if visit is None:
                query = f"?{request.url.query}" if request.url.query else ""
                return redirect(address(SIGN_IN, next=request.url.path + query if request.method == "GET" else ""))
            if isinstance(visit, RenderedPage):
                return html(visit, _shared(None))
            shown: RenderedPage | Go
            try:
                with acting_as(Actor("key", visit.key.id, client_address(request.scope))):
                    shown = await view(visit)
            except NotKnown as error:
                shown = _error("Not found", str(error), 404)
            except (StoreUnavailable, TenancyUnavailable):
                shown = _away("database")
            except LogUnavailable:
                shown = _away("log (Kafka)")
            except Unstorable:
                unstored = "It has characters that no stored text has, such as U+0000. Nothing was changed."
                shown = _error("Not found", unstored, 404)
            session, notice = visit.session, None
            if isinstance(shown, Go):
                session.notice = shown.notice
                return redirect(shown.path)
            if _LIVE not in request.headers:
                notice, session.notice = session.notice, None
            return html(shown, {**_shared(session), "notice": notice, "path": request.url.path})

        return endpoint

    async def _visit(self, request: Request) -> Visit | RenderedPage | None:
        """The visit of the signed-in operator; None if there is none, an error page if the form is not from this console."""
        cookie = _cookie(request, _SESSION_COOKIE)
        session = self._sessions.find(cookie, in_use=_LIVE not in request.headers)
        if session is None:
            return None
        # Checked on each request: revoking the key, its expiry or a lost scope ends its sessions.
        key = await self._access.operator(session.token, client_address(request.scope))
        if isinstance(key, Problem):
            self._sessions.close(cookie)
            return None
        form = await _read_form(request, session.form_token) if request.method == "POST" else Form()
        return form if isinstance(form, RenderedPage) else Visit(request, self._parts, key, session, form)

    async def sign_in_page(self, request: Request) -> Response:
        wanted = _next(request.query_params.get("next"))
        return self._ask(request, RenderedPage("sign_in.html", {"problem": None, "next": wanted}))

    async def sign_in(self, request: Request) -> Response:
        form = await _read_form(request, _cookie(request, _FORM_COOKIE))
        if isinstance(form, RenderedPage):
            return self._ask(request, form)
        token, next_page = form.text("key"), _next(form.text("next"))
        origin = client_address(request.scope)
        try:
            key = await self._access.operator(token, origin)
        except TenancyUnavailable:
            return self._ask(request, _away("database"))
        if isinstance(key, Problem):
            _log.info("console.sign_in_refused", address=origin, code=key.code)
            refused = RenderedPage("sign_in.html", {"problem": key.detail, "next": next_page}, key.status)
            return self._ask(request, refused)
        _log.info("console.signed_in", key_id=key.id, address=origin)
        self._sessions.close(_cookie(request, _SESSION_COOKIE))
        cookie = self._sessions.open(token, key.id)
        return redirect(next_page, _set_cookie(request, _SESSION_COOKIE, cookie, int(LONGEST_SECONDS)))

    async def sign_out(self, visit: Visit) -> Go:
        self._sessions.close(_cookie(visit.request, _SESSION_COOKIE))
        return Go(address(SIGN_IN))

    def _ask(self, request: Request, page: RenderedPage) -> Response:
        token = secrets.token_urlsafe(32)
        page = replace(page, values={**page.values, "form_token": token})
        return html(page, _shared(None), _set_cookie(request, _FORM_COOKIE, token, 3600))


def _away(what: str) -> RenderedPage:
    detail = f"The {what} cannot be reached, or did not answer in time."
    detail += " The action may or may not have been carried out: check before you repeat it."
    return _error(f"The {what} is away", detail, 503)


def _shared(session: Session | None) -> dict[str, Any]:
    return {"session": session, "form_token": session and session.form_token, "notice": None, "path": ""}


def _next(path: str | None) -> str:
    inside = path is not None and path.isascii() and path.isprintable() and path.startswith((HOME + "/", HOME + "?"))
    return path if path is not None and inside and not path.startswith(HOME + SIGN_IN) else HOME


async def _read_form(request: Request, token: str) -> Form | RenderedPage:
    """The form; an error page if it is too large, or lacks `token`, or comes from another origin (any scheme)."""
    body = await HttpRequest(request.scope, request.receive).body(64 * 1024, within_seconds=10.0)
    if isinstance(body, BodyFault):
        return _error("This form was not accepted", "It is too large, or too slow.", 413)
    try:
        form = Form(parse_qs(body.decode(), keep_blank_values=True, max_num_fields=2_000))
        origin = urlsplit(request.headers.get("origin", ""))
    except ValueError:
        return _NOT_OURS
    here = origin.scheme in {"http", "https"} and origin.netloc != "" and origin.netloc == request.headers.get("host")
    same = token != "" and hmac.compare_digest(form.text("form_token").encode(), token.encode())
    return form if here and same else _NOT_OURS


def _cookie(request: Request, name: str) -> str:
    """Empty if there is none. In one pass, without clients' quotes; the standard library's `SimpleCookie` does not promise that."""
    for pair in request.headers.get("cookie", "").split(";"):
        named, _, text = pair.partition("=")
        if named.strip() == name:
            return text.strip().strip('"')
    return ""


def _set_cookie(request: Request, name: str, value: str, max_age: int) -> Header:
    """A cookie hidden from scripts and not sent with cross-site requests; TLS only, except on this machine."""
    secure = "" if is_local(request.url.hostname or "") else "; Secure"
    text = f"{name}={value}; Path={HOME}; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}"
    return b"set-cookie", text.encode("ascii")
