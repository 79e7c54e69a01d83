"""How a mapped PMS is let into: tokens that are shared and not wasted, signatures, keys; and options of the account."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs

import pytest

from forwarder.pms.http.client import Request
from forwarder.pms.http.response import NotSent, Response
from forwarder.pms.kinds.generic import GENERIC
from forwarder.pms.mapping.adapter import MappedAdapter
from forwarder.pms.port import AccountConnection, BadOptions, Grant, MemoryGrants
from forwarder.pms.registry import check_options
from forwarder.process.clock import SystemClock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Confirmed, Deferred, Rejected
from forwarder_pms_kit.conformance.fields import unlike_its_table
from tests.support.memory.clock import ManualClock
from tests.support.pms.kinds.mapped import mapping_of
from tests.support.simulator.client import NOW
from tests.support.simulator.server import booking

BASE = "https://pms.test/api/v1"
OAUTH: dict[str, Any] = {"form": "oauth", "oauth": {"tokenUrl": "{host}/oauth2/token", "scope": "bookings"}}
CREATE: dict[str, Any] = {
    "path": "/b",
    "query": {"z": {"constant": "last"}, "a": {"field": "propertyId"}},
    "body": {"ref": "reference"},
    "errors": [{"status": [401], "matches": {"message": "available"}, "becomes": "room_unavailable"}],
}


class Pms:
    """Answers by what `book` says of a token, and gives out tokens t1, t2 …"""

    def __init__(self, book: Callable[[str], tuple[int, object]], refresh: str | None = None) -> None:
        self._book = book
        self._refresh = refresh
        self.tokens: list[dict[str, Any]] = []
        self.used: list[str] = []

    async def send(self, request: Request) -> Response:
        headers = {name.lower().decode(): value.decode() for name, value in request.headers}
        if request.url.endswith("/token"):
            content = request.content.decode()
            form = {"content-type": headers["content-type"], "url": request.url}
            self.tokens.append(
                form | (json.loads(content) if content[0] == "{" else {k: v[0] for k, v in parse_qs(content).items()})
            )
            number = len(self.tokens)
            granted = {"access_token": f"t{number}", "expires_in": 86400}
            if self._refresh:
                granted["refresh_token"] = f"{self._refresh}{number}"
            return Response(200, (), json.dumps(granted).encode())
        token = headers["authorization"].removeprefix("Bearer ")
        self.used.append(token)
        status, body = self._book(token)
        return Response(status, (), json.dumps(body).encode())


def adapter(
    auth: dict[str, Any], credential: str, *, clock: Any = None, grants: MemoryGrants | None = None, **more: Any
) -> MappedAdapter:
    connection = AccountConnection("acc", "generic", BASE, credential, grants=grants or MemoryGrants())
    mapping = mapping_of({"auth": auth, "create": CREATE, "reservation": {"reference": "ref"}} | more)
    return MappedAdapter(connection, mapping, clock or ManualClock(NOW))


MADE: Callable[[str], tuple[int, object]] = lambda _: (201, {"id": 1})  # noqa: E731


async def test_a_token_is_asked_for_once_and_shared() -> None:
    pms, grants = Pms(MADE), MemoryGrants()
    for _ in range(2):  # each as another worker would
        assert isinstance(await adapter(OAUTH, "me:s3cret", grants=grants).create(booking(), pms.send), Confirmed)
    assert pms.used == ["t1", "t1"]
    (asked,) = pms.tokens
    assert asked["url"] == "https://pms.test/oauth2/token"
    assert asked["content-type"] == "application/x-www-form-urlencoded"
    assert {asked[name] for name in ("grant_type", "client_id", "client_secret", "scope")} == {
        "client_credentials", "me", "s3cret", "bookings",
    }  # fmt: skip


async def test_a_token_that_is_refused_is_replaced_once() -> None:
    pms = Pms(lambda token: (201, {"id": 1}) if token == "t2" else (401, {}))
    assert isinstance(await adapter(OAUTH, "me:s3cret").create(booking(), pms.send), Confirmed)
    assert pms.used == ["t1", "t2"]
    never = Pms(lambda _: (401, {}))
    outcome = await adapter(OAUTH, "me:s3cret").create(booking(), never.send)
    assert isinstance(outcome, Deferred)
    assert len(never.tokens) == 2


async def test_a_refusal_in_the_same_status_costs_no_token() -> None:
    pms = Pms(lambda _: (401, {"message": "Listing is not available"}))
    outcome = await adapter(OAUTH, "me:s3cret").create(booking(), pms.send)
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "room_unavailable"
    assert len(pms.tokens) == 1


async def test_a_token_that_has_ended_is_replaced_whatever_else_is_said() -> None:
    ended = (401, {"message": "Access token has expired: the calendar is not available"})
    pms = Pms(lambda token: (201, {"id": 1}) if token == "t2" else ended)
    assert isinstance(await adapter(OAUTH, "me:s3cret").create(booking(), pms.send), Confirmed)


async def test_a_word_for_a_token_that_has_ended_goes_before_a_rule_for_all_errors() -> None:
    ended = {"status": [200], "when": {"ok": False, "code": "TOKEN_ENDED"}}
    create = {
        **CREATE,
        "success": {"status": [200], "when": {"ok": True}},
        "errors": [{"status": [200], "when": {"ok": False}, "becomes": "pms_refused"}],
    }
    auth = {**OAUTH, "oauth": {**OAUTH["oauth"], "ended": ended}}
    no_more = (200, {"ok": False, "code": "TOKEN_ENDED"})
    pms = Pms(lambda token: (200, {"ok": True, "id": 1}) if token == "t2" else no_more)
    assert isinstance(await adapter(auth, "me:s3cret", create=create).create(booking(), pms.send), Confirmed)
    assert pms.used == ["t1", "t2"]
    never = Pms(lambda _: no_more)
    with pytest.raises(NotSent) as raised:  # and never a refusal of the booking
        await adapter(auth, "me:s3cret", create=create).create(booking(), never.send)
    assert raised.value.reason == "pms_unauthorized"
    refused = Pms(lambda _: (200, {"ok": False, "code": "TAKEN"}))
    assert isinstance(await adapter(auth, "me:s3cret", create=create).create(booking(), refused.send), Rejected)


async def test_where_tokens_are_few_a_young_one_is_not_replaced() -> None:
    few = {**OAUTH, "oauth": {**OAUTH["oauth"], "tokensPerDay": 5}}
    clock, pms = ManualClock(NOW), Pms(lambda _: (401, {}))
    asked = adapter(few, "me:s3cret", clock=clock)
    for _ in range(20):
        assert isinstance(await asked.create(booking(), pms.send), Deferred)
    assert len(pms.tokens) == 1
    await clock.advance(timedelta(hours=4, minutes=49).total_seconds())
    await asked.create(booking(), pms.send)
    assert len(pms.tokens) == 2


async def test_a_refresh_token_follows_the_one_before() -> None:
    rotating = {
        "form": "oauth",
        "oauth": {"tokenUrl": "https://auth.test/token", "grant": "refresh_token", "encoding": "json"},
    }
    credential = json.dumps({"clientId": "me", "clientSecret": "s3cret", "refreshToken": "r0"})
    clock, pms = ManualClock(NOW), Pms(MADE, refresh="r")
    asked = adapter(rotating, credential, clock=clock)
    await asked.create(booking(), pms.send)
    await clock.advance(86_400)
    await asked.create(booking(), pms.send)
    assert [one["refresh_token"] for one in pms.tokens] == ["r0", "r1"]
    assert pms.tokens[0]["content-type"] == "application/json"
    plain = Pms(MADE)
    await adapter(rotating, "a-personal-token").create(booking(), plain.send)
    assert plain.used == ["a-personal-token"]


def test_a_grant_keeps_when_it_was_granted() -> None:
    grant = Grant("a", None, None, granted_at=NOW)
    assert Grant.from_text(grant.as_text()) == grant
    assert Grant.from_text('{"accessToken":"a","refreshToken":null,"expiresAt":null}').granted_at is None


SIGNED: dict[str, Any] = {
    "form": "signed",
    "signature": {
        "headers": {"X-API-Key": "key", "X-Timestamp": "timestamp", "X-Nonce": "nonce", "X-Signature": "signature"},
        "text": ["method", "path", "query", "timestamp", "nonce", "bodySha256", "key"],
    },
}


async def test_a_request_is_signed_as_a_whole() -> None:
    """By the vendor's recipe: HMAC over method, path, sorted query, moment, nonce, the body's hash, and the key."""
    seen: list[Request] = []

    async def send(request: Request) -> Response:
        seen.append(request)
        return Response(201, (), b'{"id": 1}')

    for _ in range(2):
        assert isinstance(await adapter(SIGNED, "k3y:s3cret").create(booking(), send), Confirmed)
    request = seen[0]
    headers = {name.decode(): value.decode() for name, value in request.headers}
    moment = NOW.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert headers["X-Timestamp"] == moment
    assert request.query.startswith("a=")
    hashed = hashlib.sha256(request.content).hexdigest()
    text = "\n".join(["POST", "/api/v1/b", request.query, moment, headers["X-Nonce"], hashed, "k3y"])
    expected = base64.b64encode(hmac.new(b"s3cret", text.encode(), hashlib.sha256).digest()).decode()
    assert headers["X-Signature"] == expected
    assert len({dict(one.headers)[b"X-Nonce"] for one in seen}) == 2
    for credential in ("k3y", "", "two words:s3cret"):
        with pytest.raises(Exception, match="credential"):
            await adapter(SIGNED, credential).create(booking(), send)


async def test_one_key_may_be_the_whole_of_basic() -> None:
    seen: list[Request] = []

    async def send(request: Request) -> Response:
        seen.append(request)
        return Response(201, (), b'{"id": 1}')

    await adapter({"form": "basic", "credential": "key"}, "k3y").create(booking(), send)
    assert dict(seen[0].headers)[b"Authorization"] == b"Basic " + base64.b64encode(b"k3y")


WITH_OPTIONS: dict[str, Any] = {
    "headers": {"X-Client": {"option": "client"}},
    "options": {
        "agency": {"description": "The agency.", "required": True},
        "client": {"description": "The client."},
        "channel": {"description": "The channel.", "default": 13},
    },
    "create": {
        "path": "/b",
        "body": {
            "agency": {"option": "agency"},
            "channel": {"option": "channel"},
            "from": {"field": "arrivalDate", "addDays": -1},
        },
    },
}


async def test_options_of_the_account() -> None:
    seen: list[Request] = []

    async def send(request: Request) -> Response:
        seen.append(request)
        return Response(201, (), b'{"id": 1}')

    connection = AccountConnection("acc", "generic", BASE, "k")
    asked = MappedAdapter(connection, mapping_of(WITH_OPTIONS), ManualClock(NOW), {"agency": "a7", "client": "c"})
    made = Booking("rsv_one", {**booking().fields, "arrivalDate": "2031-03-01", "departureDate": "2031-03-04"})
    await asked.create(made, send)
    assert json.loads(seen[0].content) == {
        "agency": "a7",
        "channel": 13,
        "from": "2031-02-28",
    }
    assert dict(seen[0].headers)[b"x-client"] == b"c"
    check_options("generic", {"mapping": WITH_OPTIONS, "settings": {"agency": "a7"}})
    for settings, fault in (
        ({}, "the mapping wants agency"),
        ({"agency": "a", "agenci": "b"}, "declares no option agenci"),
    ):
        with pytest.raises(BadOptions, match=fault):
            check_options("generic", {"mapping": WITH_OPTIONS, "settings": settings})


BY_PARTS: dict[str, Any] = {
    "rooms": False,
    "create": {
        "path": "/b",
        "body": {
            "listing": "propertyId",
            "first": "guest.first",
            "last": "guest.last",
            "guests": {"field": "guests.total", "default": 1},
            "adults": "guests.adults",
            "children": "numberOfChildren",
            "note": "notes",
        },
    },
}


async def test_names_and_counts_by_their_parts_lose_nothing() -> None:
    options = {"mapping": BY_PARTS}
    made = GENERIC(AccountConnection("acc", "generic", BASE, "k", options=options), SystemClock())
    assert [finding async for finding in unlike_its_table(made, "hostaway")] == []
    room = await made.create(booking(roomId="another"), _never)
    assert isinstance(room, Rejected)
    assert room.problem.code == "room_not_found"


async def _never(request: Request) -> Response:
    raise AssertionError(f"{request.method} was sent")


async def test_days_are_found_however_they_are_written() -> None:
    for form in ("%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d-%m-%Y"):
        dated = {name: {"field": name, "dateFormat": form} for name in ("arrivalDate", "departureDate")}
        made = adapter({}, "key", create={"path": "/b", "body": {**dated, "p": "propertyId", "notes": "notes"}})
        assert not [one async for one in unlike_its_table(made, "hostaway") if "Date" in one], form
