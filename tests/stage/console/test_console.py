"""The console on the embedded log and store, called without a socket: who gets in, what is shown, and what its forms change."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote

import httpx
import pytest
from sqlalchemy import update

from forwarder.assembly.backend import Backend, open_backend
from forwarder.console import service
from forwarder.console.guard import IDLE_SECONDS, LONGEST_SECONDS, CookieSessions
from forwarder.console.service import console_refusal, open_console
from forwarder.http.server import HttpApp
from forwarder.operate.deployment.conditions import span
from forwarder.operate.deployment.status import StatusReader
from forwarder.operate.tenants.accounts import Accounts
from forwarder.pms.accounts import connection_of
from forwarder.pms.directory import open_directory
from forwarder.process.clock import Clock, iso
from forwarder.process.supervision import bind
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Confirmed, Status
from forwarder.reservation.request import SealedCard
from forwarder.reservation.submission import NaturalKey, RequestIds
from forwarder.settings import Settings
from forwarder.settings.environment import Environment
from forwarder.settings.reading import settings_of
from forwarder.store.audit import AuditEntry, AuditFilter
from forwarder.store.deployment import AuditTrail, ProcessRegister, RunningProcess
from forwarder.store.engine import Engine, open_engine
from forwarder.store.submissions.port import Arrival, ThrottleState, Unstorable
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.tables import reservations
from forwarder.tenancy.access import Access, BadTokens
from forwarder.tenancy.port import Account, Scope, read_networks
from forwarder.tenancy.sql.database import shared_key
from forwarder.tenancy.sql.directory import CacheTimes, SqlDirectory
from forwarder.topics.codec import decode_cancellation, encode_submission, header, is_cancellation
from forwarder.topics.port import Log, LogUnavailable, Message, Tail, read_to_end
from forwarder.worker.outcome.recorder import DeadLetterWriter, letter_message
from tests.support.memory.clock import ManualClock
from tests.support.simulator.server import running_simulator
from tests.support.store.stored import NOBODY_LISTENS, final, postponed
from tests.support.worker.works import NOW, submission
from tools.servers.certificates import Authority

T = TypeVar("T")
ORIGIN = "http://localhost:8080"
HOSTILE = "<script>alert('x')</script>"
NOT_REPORTED = "; the backlog is not reported to Prometheus, and old data is not removed"
TURNED = "Ann\u202eeva\u2066\u061c\x9b31m\x85\x7f"


@dataclass
class Console:
    """An operator's browser on a console."""

    backend: Backend
    http: httpx.AsyncClient
    token: str
    key_id: str

    async def form_token(self, page: str) -> str:
        shown = await self.http.get(page)
        found = re.search(r'name="form_token" value="([^"]+)"', shown.text)
        assert found is not None, shown.text
        return found[1]

    async def sign_in(self, token: str | None = None, **headers: str) -> httpx.Response:
        fields = {
            "key": token or self.token,
            "next": "/console",
            "form_token": await self.form_token("/console/sign-in"),
        }
        return await self.http.post("/console/sign-in", data=fields, headers={"Origin": ORIGIN, **headers})

    async def send(self, page: str, **fields: str) -> httpx.Response:
        """Send a form of that page."""
        fields["form_token"] = await self.form_token(page)
        return await self.http.post(page, data=fields, headers={"Origin": ORIGIN})

    async def audited(self, action: str) -> list[AuditEntry]:
        return [*await self.backend.trail.entries(AuditFilter(action=action), before=None, limit=10)]


@pytest.fixture
async def console(data_dir: Path) -> AsyncIterator[Console]:
    settings = settings_of(Environment(data_dir=data_dir, partitions=1))
    async with open_backend(settings) as backend:
        await backend.create_topics()
        await backend.tenancy.add_workspace("casa")
        await backend.tenancy.put_account(Account("casa-1", "casa", "generic", "https://pms.test", ""))
        key, token = await backend.tenancy.add_key("casa", scopes=frozenset[Scope]({"operate"}))
        async with visited(backend, token, key.id) as console:
            yield console


@asynccontextmanager
async def visited(backend: Backend, token: str = "", key_id: str = "") -> AsyncIterator[Console]:
    """A console of that backend."""
    # A key that is revoked is remembered for no time at all.
    directory = SqlDirectory(backend.engine, backend.clock, CacheTimes(known=0.0))
    served = replace(backend, access=Access(directory, backend.clock, BadTokens(ManualClock(), 60)))
    transport = httpx.ASGITransport(HttpApp(await open_console(served), backend.clock), client=("203.0.113.7", 1))
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as http:
        yield Console(backend, http, token, key_id)


async def taken_in(
    console: Console,
    number: int,
    *,
    status: Status | None = None,
    due_at: datetime | None = None,
    natural: NaturalKey | None = None,
    **fields: Any,
) -> str:
    """A submission of the account, that ended so if that is given; a FAILED one with its dead letter. `due_at`: when it is tried
    again. Its request id."""
    recorder, backend = Recorder(console.backend.engine), console.backend
    await recorder.renew("w1", seconds=30.0)
    submitted = replace(submission(number, account="casa-1", **fields), natural=natural)
    arriving = Arrival(submitted, 0, NOW + timedelta(days=1), held=True)
    (work,) = await recorder.ingest("w1", [arriving], now=NOW)
    if due_at is not None:
        await recorder.record("w1", [], [postponed(work, due_at=due_at)])
    if status is None:
        return work.submission.request_id
    ended = final(work, status=status)
    topics = backend.settings.topics
    if status is Status.FAILED:
        ended = replace(ended, dead_letter=DeadLetterWriter(topics, "workers").failed(work, ended))
        async with backend.log.publisher() as publisher:
            await publisher.publish(topics.dead_letters, [letter_message(not_none(ended.dead_letter))])
    await recorder.record("w1", [ended], [])
    return work.submission.request_id


async def test_nobody_gets_in_without_a_key_that_may_operate(console: Console) -> None:
    tenancy = console.backend.tenancy
    _, of_an_engine = await tenancy.add_key("casa")
    _, for_tests = await tenancy.add_key("casa", test=True, scopes=frozenset[Scope]({"operate"}))
    away = frozenset[Scope]({"operate"})
    _, from_elsewhere = await tenancy.add_key("casa", scopes=away, networks=read_networks(["198.51.100.0/24"]))
    for path in ("", "/submissions", "/audit", "/accounts/casa-1", "/dead-letters", "/topics/reservations.requests"):
        asked = await console.http.get(f"/console{path}")
        assert asked.status_code == 303
        assert asked.headers["location"].startswith("/console/sign-in")
    for token, status in ((of_an_engine, 403), (for_tests, 401), (from_elsewhere, 403), ("fwd_live_guess", 401)):
        refused = await console.sign_in(token)
        assert (refused.status_code, "console_session" in console.http.cookies) == (status, False)

    assert (await console.sign_in()).headers["location"] == "/console"
    assert (await console.http.get("/console")).status_code == 200
    live = await console.http.get("/console", headers={"X-Console-Live": "1"})
    assert live.status_code == 200
    out = await console.send("/console/accounts/casa-1", do="nothing that there is")
    assert out.status_code == 303
    token = await console.form_token("/console")
    await console.http.post("/console/sign-out", data={"form_token": token}, headers={"Origin": ORIGIN})
    assert (await console.http.get("/console")).status_code == 303


async def test_guessing_keys_is_throttled(console: Console) -> None:
    answers = [(await console.sign_in("fwd_live_guess")).status_code for _ in range(62)]
    assert answers[0] == 401
    assert answers[-1] == 429
    assert (await console.sign_in()).status_code == 303  # the right one is let in from there all the same


async def test_a_session_ends_with_its_key(console: Console) -> None:
    await console.sign_in()
    await console.backend.tenancy.revoke_key(console.key_id)
    assert (await console.http.get("/console/audit")).headers["location"].startswith("/console/sign-in")
    await console.sign_in()
    assert (await console.http.get("/console/audit")).status_code == 303


async def test_a_session_ends_by_itself() -> None:
    clock = ManualClock()
    sessions = CookieSessions(clock)
    left, used = sessions.open("token", "key_1"), sessions.open("token", "key_1")
    await clock.advance(IDLE_SECONDS - 1)
    assert sessions.find(left, in_use=False) is not None
    assert sessions.find(used, in_use=True) is not None
    await clock.advance(2)
    assert sessions.find(left, in_use=True) is None
    for _ in range(int(LONGEST_SECONDS / IDLE_SECONDS) + 1):
        sessions.find(used, in_use=True)
        await clock.advance(IDLE_SECONDS - 1)
    assert sessions.find(used, in_use=True) is None


async def test_a_form_of_another_site_changes_nothing(console: Console) -> None:
    await console.sign_in()
    page = "/console/accounts/casa-1"
    token = await console.form_token(page)
    wrong: list[tuple[dict[str, str], dict[str, str]]] = [
        ({"form_token": token}, {"Origin": "https://evil.example"}),
        ({"form_token": token}, {"Origin": "null"}),
        ({"form_token": token}, {}),
        ({"form_token": "guess"}, {"Origin": ORIGIN}),
        ({}, {"Origin": ORIGIN}),
    ]
    for fields, headers in wrong:
        refused = await console.http.post(page, data={"do": "pause", **fields}, headers=headers)
        assert refused.status_code == 403
    assert not (await console.backend.tenancy.accounts())[0].paused
    assert [each for each in await console.audited("account") if each.actor_kind == "key"] == []
    # Nor is anybody signed in as somebody else by a form that comes from elsewhere.
    fields = {"key": console.token, "form_token": await console.form_token("/console/sign-in")}
    elsewhere = await console.http.post("/console/sign-in", data=fields, headers={"Origin": "https://evil.example"})
    assert elsewhere.status_code == 403
    large = await console.http.post(page, content=b"a" * 70_000, headers={"Origin": ORIGIN})
    assert large.status_code == 413


async def test_a_cookie_is_found_among_others_and_an_endless_one_is_read_once(console: Console) -> None:
    signed_in = await console.sign_in()
    value = signed_in.headers["set-cookie"].partition("=")[2].partition(";")[0]
    console.http.cookies.clear()
    quoted = 'a="' + '\\"' * 15_000 + '"'  # seconds, where each of them is looked for from the beginning
    for cookies, status in (
        (f"console_session={value}", 200),
        (f'other=1;console_session="{value}"; last', 200),
        (f"{quoted}; console_session={value}", 200),
        (f"xconsole_session={value}", 303),
        (f"console_session={value}x", 303),
        ("console_session", 303),
        ("; =;;\xe9=\xff", 303),
    ):
        page = await console.http.get("/console", headers=[(b"Cookie", cookies.encode("latin-1"))])
        assert page.status_code == status, cookies[:80]


async def test_a_form_from_an_origin_that_is_no_address_is_not_taken(console: Console) -> None:
    assert (await console.sign_in(Origin="http://[")).status_code == 403


async def test_browsers_are_told_to_keep_and_run_nothing(console: Console) -> None:
    signed_in = await console.sign_in()
    cookie = signed_in.headers["set-cookie"]
    assert "HttpOnly; SameSite=Strict" in cookie
    assert "Secure" not in cookie  # localhost has no TLS
    public = await console.http.get("/console/sign-in", headers={"Host": "console.example.com"})
    assert public.headers["set-cookie"].endswith("; Secure")
    page = await console.http.get("/console")
    policy = page.headers["content-security-policy"]
    assert "unsafe-inline" not in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "style=" not in page.text
    for asset in re.findall(r'(?:src|href)="(/console/static/[^"]+)"', page.text):
        assert (await console.http.get(asset)).status_code == 200
    assert (await console.http.get("/console/static/..%2fguard.py")).status_code == 404
    outside = {"key": console.token, "next": "https://evil.example", "form_token": ""}
    outside["form_token"] = await console.form_token("/console/sign-in")
    onward = await console.http.post("/console/sign-in", data=outside, headers={"Origin": ORIGIN})
    assert onward.headers["location"] == "/console"


async def test_an_address_without_a_page_is_not_found_within_the_console(console: Console) -> None:
    unknown = await console.http.get("/console/nothing/here")
    assert (unknown.status_code, unknown.headers["location"].partition("?")[0]) == (303, "/console/sign-in")
    await console.sign_in()
    unknown = await console.http.get("/console/nothing/here")
    assert (unknown.status_code, "<h1>Not found</h1>" in unknown.text) == (404, True)


async def test_what_guests_and_pmss_say_is_text(console: Console) -> None:
    guest = {"firstName": HOSTILE, "lastName": "Novak", "email": "novak@example.com"}
    request_id = await taken_in(console, 1, status=Status.FAILED, guest=guest, propertyId=HOSTILE)
    await console.sign_in()
    for path in (
        f"/submissions/{request_id}",
        f"/submissions?guest=novak&account={HOSTILE}",
        "/submissions?guest=novak",
        f"/submissions?property={HOSTILE}",
        "/dead-letters",
        "/topics/reservations.requests-dlt?since=1970-01-02T00:00",
        f"/submissions/{HOSTILE.replace('/', '')}",
        "/topics/" + HOSTILE.replace("/", ""),
    ):
        page = await console.http.get(f"/console{path}")
        assert page.status_code in {200, 404}
        assert "<script>alert" not in page.text, path


async def test_what_turns_text_or_is_no_character_is_shown_escaped(console: Console) -> None:
    guest = {"firstName": TURNED, "lastName": "Novak", "email": "novak@example.com"}
    request_id = await taken_in(console, 1, status=Status.FAILED, guest=guest, propertyId=TURNED, roomId=TURNED)
    await console.sign_in()
    pages = [
        await console.send(f"/console/submissions/{request_id}", do="guest"),
        *[
            await console.http.get(f"/console{path}")
            for path in (
                "/submissions?guest=novak",
                f"/submissions?guest={quote(TURNED)}",
                "/dead-letters",
                "/topics/reservations.requests-dlt?since=1970-01-02T00:00",
                f"/accounts/{quote(TURNED)}",
            )
        ],
    ]
    for page in pages:
        assert all(each.isprintable() or each in "\n\t" for each in page.text), page.url
    assert all("Ann\\u202eeva" in pages[index].text for index in (0, 1, 2, 4))


async def test_a_guest_is_shown_to_whoever_asks_and_that_is_on_the_trail(console: Console) -> None:
    request_id = await taken_in(console, 1)
    await console.sign_in()
    page = f"/console/submissions/{request_id}"
    assert "Gonzalez" not in (await console.http.get(page)).text
    found = await console.http.get("/console/submissions", params={"guest": "gonzalez"})
    assert request_id in found.text
    assert request_id not in (await console.http.get("/console/submissions", params={"guest": "nobody"})).text
    shown = await console.send(page, do="guest")
    assert "Gonzalez" in shown.text
    (entry,) = await console.audited("submission.show_guest")
    assert (entry.actor_kind, entry.actor, entry.origin) == ("key", console.key_id, "203.0.113.7")
    assert entry.target == request_id


async def test_messages_are_shown_without_guests_and_cards(console: Console) -> None:
    message = encode_submission(
        submission(1, account="casa-1", card=SealedCard("0123456789abcdef", "c2VhbGVk")),
        "2027-01-01T00:00:00.000Z",
        b'{"propertyId":1,"guest":{"firstName":"Maria","lastName":"Gonzalez"},"notes":"call Maria","roomId":"A"}',
    )
    topic = console.backend.settings.topics.requests
    async with console.backend.log.publisher() as publisher:
        await publisher.publish(topic, [message, Message(b"k", b"not JSON: Gonzalez")])
    await console.sign_in()
    page = (await console.http.get(f"/console/topics/{topic}")).text
    assert message.key.decode() in page
    assert "0123456789abcdef" in page
    for hidden in ("Gonzalez", "Maria", "c2VhbGVk"):
        assert hidden not in page


async def test_messages_of_one_moment_are_each_on_one_page(console: Console) -> None:
    topic = console.backend.settings.topics.results
    async with console.backend.log.publisher() as publisher:
        await publisher.publish(topic, [Message(b"k", b"%d" % number) for number in range(120)])
    await console.sign_in()
    page, seen = f"/console/topics/{topic}?partition=0", []
    for _ in range(4):
        text = (await console.http.get(page)).text
        seen += re.findall(r">0:(\d+)<", text)
        if (more := re.search(r'href="([^"]+)">Next page<', text)) is None:
            break
        page = unescape(more[1])
    assert seen == [str(number) for number in range(120)]


async def as_shown(console: Console, page: str) -> dict[str, str]:
    """What the form of an account's settings holds as it is shown."""
    text = (await console.http.get(page)).text
    fields = dict(re.findall(r'<input[^>]*? name="(\w+)"[^>]*? value="([^"]*)"', text[text.index('id="settings"') :]))
    fields = {name: unescape(value) for name, value in fields.items() if name not in {"tls", "checks", "form_token"}}
    return {**fields, "options": unescape(not_none(re.search(r"<textarea name=.options.[^>]*>([^<]*)<", text))[1])}


async def test_an_account_is_paused_resumed_and_changed(console: Console, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority").file.read_text()
    await console.sign_in()
    page = "/console/accounts/casa-1"
    await console.send(page, do="pause")
    assert (await console.backend.tenancy.accounts())[0].paused
    assert "The account is paused" in (await console.http.get(page)).text
    await console.send(page, do="resume")
    given = await as_shown(console, page)
    wanted = {
        **given,
        "do": "change",
        "duplicate_window": "120",
        "rate": "1.6666666666666667",
        "concurrency": "3",
        "deadline": "600",
        "checks": "guest-name",
        "base_url": "https://elsewhere.test/",
        "credential": "another",
        "tls": "own",
        "authorities": authority,
    }
    stale = await as_shown(console, page)
    assert (await console.send(page, **wanted)).status_code == 303
    (account,) = await console.backend.tenancy.accounts()
    assert (account.paused, account.duplicate_window_seconds, account.rate_per_second) == (False, 120, 100 / 60)
    assert (account.concurrency, account.deadline_seconds, account.skipped_checks) == (3, 600, ("guest-name",))
    assert (account.base_url, account.authorities) == ("https://elsewhere.test", authority.strip())
    assert "another" not in account.credential
    assert (await as_shown(console, page))["rate"] == "1.6666666666666667"
    late = await console.send(page, **{**stale, "do": "change", "rate": "7"})
    assert late.status_code == 422
    assert "Another operator has changed this account" in late.text
    for wrong, says in (
        ({"duplicate_window": "-1"}, "The duplicate window is a whole number"),
        ({"rate": "0"}, "The rate must be a number"),
        ({"base_url": "ftp://x"}, "The base URL must begin with http"),
        ({"base_url": "https://third.test"}, "give it again"),
        ({"base_url": "http://third.test", "credential": "c"}, "would be sent by plain http"),
        ({"options": "[1]"}, "The options must be a JSON object"),
        ({"options": '{"nonsense": 1}'}, "nonsense"),
        ({"checks": "<b>"}, "there is no check"),
        ({"tls": "own", "certificate": "x"}, "needs its key"),
        ({"tls": "own", "authorities": "no PEM"}, "Nothing was changed"),
        ({"concurrency": "0"}, "Concurrency is a whole number from 1"),
    ):
        refused = await console.send(page, **{**await as_shown(console, page), "do": "change", **wrong})
        assert (refused.status_code, says in refused.text) == (422, True), (wrong, refused.text)
    assert [account] == [*await console.backend.tenancy.accounts()]
    trail = [(each.action, each.actor, each.details) for each in await console.audited("account.change")]
    (changed,) = [details for _, actor, details in trail if actor == console.key_id]
    assert "rate_per_second" in changed
    assert "another" not in changed
    audit = (await console.http.get("/console/audit?action=account.change")).text
    assert "duplicate_window_seconds 300 → 120, " in audit
    assert (await console.http.get("/console/accounts/casa-2")).status_code == 404


async def test_an_accounts_pms_is_probed_and_asked_for_a_reservation(console: Console) -> None:
    accounts = Accounts(console.backend.tenancy, console.backend.sealer)
    request_id = await taken_in(console, 1, status=Status.IN_DOUBT)
    await console.sign_in()
    async with running_simulator() as site:
        await accounts.change(
            "casa-1", credential="credential", options={}, all_options=False, base_url=site.base_url("generic")
        )
        probed = (await console.send("/console/accounts/casa-1", do="probe", property="1001")).text
        assert probed.count('class="tag good">ok') == 3, probed
        page = f"/console/submissions/{request_id}"
        assert "has nothing under our reference" in (await console.send(page, do="look_up")).text
        made = not_none(await console.backend.overview.asked_for(request_id))
        account = not_none(await console.backend.pushing_directory().account("casa-1"))
        async with open_directory(console.backend.clock) as directory:
            pms = directory.connect(connection_of(account, not_none(console.backend.keyring)))
            there = await pms.create(Booking(request_id, {**made.reservation, "roomId": "A"}))
        assert isinstance(there, Confirmed)
        found = (await console.send(page, do="look_up")).text
        assert f"The PMS has it, as {there.pms_reservation_id}" in found
        assert f'value="{there.pms_reservation_id}"' in found  # ready to be settled
        site.go_wrong("down")
        assert "The PMS does not say" in (await console.send(page, do="look_up")).text
        assert 'class="tag bad">failed' in (await console.send("/console/accounts/casa-1", do="probe")).text
    assert (await console.send("/console/submissions/unknown", do="look_up")).status_code == 404
    looked = await console.audited("submission.look_up")
    assert {(each.actor, each.target) for each in looked} == {(console.key_id, request_id)}


async def test_what_workers_know_of_a_pms_is_shown(console: Console) -> None:
    register, now = ProcessRegister(console.backend.engine), console.backend.clock.now()
    left_alone = ThrottleState("casa-1", "open", "pms_unreachable", 12.0, 0, 4, 8, 17.4, 20.0)
    well = ThrottleState("casa-1", "closed", None, 0.0, 2, 8, 8, 20.0, 20.0)
    for number, (state, seen) in enumerate([(left_alone, now), (well, now), (left_alone, now - timedelta(minutes=5))]):
        worker = RunningProcess(f"w{number}", "worker", "1.2.3", "abc", f"host-{number}", now, seen, (state,))
        await register.report(worker)
    await register.report(
        RunningProcess("i", "ingress", "1.2.3", "abc", "host", now - timedelta(hours=1), now - timedelta(minutes=9))
    )
    await console.sign_in()
    account = (await console.http.get("/console/accounts/casa-1")).text
    for shown in ("open at 1 of 2", "pms_unreachable, asked again in 12 s", "2 of 12", "lowered from 16", "17 of 20"):
        assert shown in account
    assert "open at 1 of 2" in (await console.http.get("/console/accounts")).text
    overview = (await console.http.get("/console")).text
    attention = overview[overview.index('id="attention"') : overview.index('id="flow"')]
    assert re.findall(r'<li class="(\w+)"><a href="([^"]+)">([^<]+)</a>', attention) == [
        ("bad", "#processes", "no ingress runs: the last one, on host, was killed or lost the store 9.0 min ago"),
        ("bad", "#processes", "no query runs: none is registered"),
        ("bad", "#processes", f"no housekeeping runs: none is registered{NOT_REPORTED}"),
        ("warn", "#processes", "worker on host-2 was killed or lost the store 5.0 min ago; 2 of its role run"),
    ]
    assert "host-0, host-1, host-2" in overview


async def test_each_way_to_search_finds_what_is_meant_and_nothing_else(console: Console) -> None:
    ids = RequestIds(await shared_key(console.backend.engine, "request-id-key"))
    key = ids.content_key("casa-1", "transaction", b"tx-77")
    ours = await taken_in(
        console,
        1,
        natural=NaturalKey("natural", key),
        status=Status.CONFIRMED,
        propertyId="P-1",
        guest={"name": "Ana Novak", "email": "ana@novak.example", "phone": "+385 91 555 0101"},
    )
    other = await taken_in(console, 2, status=Status.FAILED, propertyId="P-2")
    await console.sign_in()
    (summary, _) = not_none(await console.backend.overview.find(ours))
    accepted = datetime.fromisoformat(summary.accepted_at)
    later, earlier = (accepted + timedelta(days=each) for each in (1, -1))
    found: list[tuple[dict[str, str], set[str]]] = [
        ({"guest": "novak ANA"}, {ours}),
        ({"guest": "385915550101"}, {ours}),
        ({"property": "P-1"}, {ours}),
        ({"transaction": "tx-77"}, {ours}),
        ({"pms": not_none(summary.pms_reservation_id)}, {ours}),
        ({"status": "FAILED"}, {other}),
        ({"account": "casa-1"}, {ours, other}),
        ({"account": "casa-2"}, set()),
        ({"workspace": "demo", "status": "CONFIRMED"}, {ours}),
        ({"workspace": "casa"}, set()),
        ({"since": f"{earlier:%Y-%m-%dT%H:%M}", "before": f"{later:%Y-%m-%dT%H:%M}"}, {ours, other}),
        ({"since": f"{later:%Y-%m-%dT%H:%M}"}, set()),
        ({"before": f"{earlier:%Y-%m-%dT%H:%M}"}, set()),
        ({"reason": "no_such_reason"}, set()),
    ]
    for given, wanted in found:
        page = (await console.http.get("/console/submissions", params=given)).text
        assert {each for each in (ours, other) if each in page} == wanted, given
    by_id = await console.http.get("/console/submissions", params={"id": ours})
    assert by_id.headers["location"] == f"/console/submissions/{ours}"
    wrong = (await console.http.get("/console/submissions", params={"since": "yesterday"})).text
    assert "write one in UTC as" in wrong


async def test_what_is_in_doubt_is_settled(console: Console) -> None:
    made = await taken_in(console, 1, status=Status.IN_DOUBT)
    not_made = await taken_in(console, 2, status=Status.IN_DOUBT)
    await console.sign_in()
    queue = (await console.http.get("/console/in-doubt")).text
    assert made in queue
    assert not_made in queue
    await console.send(f"/console/submissions/{made}", do="settle", finding="confirmed", text="")
    await console.send(f"/console/submissions/{made}", do="settle", finding="confirmed", text="PMS-77")
    await console.send(f"/console/submissions/{not_made}", do="settle", finding="not_made")
    known = await console.backend.overview.statuses([made, not_made])
    assert {each: status for each, (status, _) in known.items()} == {made: Status.CONFIRMED, not_made: Status.PENDING}
    page = (await console.http.get(f"/console/submissions/{made}")).text
    assert "PMS-77" in page
    assert {each.target for each in await console.audited("submission.settle")} == {made, not_made}
    assert {each.actor for each in await console.audited("submission.settle")} == {console.key_id}


async def test_what_waits_is_tried_now(console: Console) -> None:
    request_id = await taken_in(console, 1, due_at=NOW + timedelta(days=30_000))
    await console.sign_in()
    page = f"/console/submissions/{request_id}"
    assert "Try now" in (await console.http.get(page)).text
    await console.send(page, do="retry")
    assert "A worker comes to it" in (await console.http.get(page)).text
    (summary, _) = not_none(await console.backend.overview.find(request_id))
    assert not_none(summary.due_at) <= iso(console.backend.clock.now())
    (entry,) = await console.audited("submissions.retry")
    assert entry.actor == console.key_id


async def test_all_matches_of_a_search_are_tried_now_after_a_preview(console: Console) -> None:
    later = NOW + timedelta(days=30_000)
    waiting = [await taken_in(console, each, due_at=later, propertyId="p-1") for each in range(1, 4)]
    other = await taken_in(console, 9, due_at=later, propertyId="p-2")
    failed = await taken_in(console, 8, status=Status.FAILED, propertyId="p-1")
    await console.sign_in()
    assert "all matches" not in (await console.http.get("/console/submissions")).text
    found = (await console.http.get("/console/submissions?property=p-1")).text
    preview = unescape(not_none(re.search(r'href="([^"]*bulk[^"]*retry[^"]*)"', found))[1])
    shown = (await console.http.get(preview)).text
    assert "<h1>Try 3 now?</h1>" in shown
    assert "Left out: 1, FAILED: `forwarder dead-letters replay` puts it back" in unescape(shown)
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', shown))
    # One that came after the preview is not touched.
    late = await taken_in(console, 20, due_at=later, propertyId="p-1")
    async with console.backend.engine.begin() as connection:  # and one begins to match
        moved = update(reservations).where(reservations.c.request_id == other).values(property_id="p-1")
        await connection.execute(moved)
    sent = await console.http.post("/console/bulk", data=fields, headers={"Origin": ORIGIN})
    assert sent.status_code == 303
    assert "3 were made due" in (await console.http.get(sent.headers["location"])).text
    due = {each.request_id: each.due_at for each in await console.backend.overview.summaries([*waiting, other, late])}
    now = iso(console.backend.clock.now())
    assert {each: not_none(at) <= now for each, at in due.items()} == {
        **dict.fromkeys(waiting, True),
        other: False,
        late: False,
    }
    (entry,) = await console.audited("submissions.retry")
    assert (entry.actor, failed in str(entry.details)) == (console.key_id, False)


async def test_all_matches_of_a_search_are_cancelled_after_a_preview(console: Console) -> None:
    confirmed = [await taken_in(console, each, status=Status.CONFIRMED, propertyId="p-1") for each in (1, 2)]
    await taken_in(console, 3, status=Status.CONFIRMED, propertyId="p-2")
    await console.sign_in()
    page = "/console/bulk?do=cancel&property=p-1"
    shown = (await console.http.get(page)).text
    assert "<h1>Cancel 2?</h1>" in shown
    below = not_none(re.search(r'name="below" value="(\d+)"', shown))[1]
    ids = not_none(re.search(r'name="ids" value="([^"]+)"', shown))[1]
    await console.send(page, do="cancel", property="p-1", why="the owner sells", below=below, ids=ids)
    topic = console.backend.settings.topics.requests
    messages = [each.message async for batch in read_to_end(console.backend.log, topic) for each in batch]
    asked = [decode_cancellation(each) for each in messages if is_cancellation(each)]
    assert {(each.request_id, each.reason) for each in asked} == {(each, "the owner sells") for each in confirmed}
    # Without a search it would be everything.
    assert "Search for some of them first." in (await console.http.get("/console/bulk?do=cancel")).text
    await console.send(page, do="cancel", below=below, ids=ids)
    await console.send(page, do="cancel", property="p-1", ids=ids)
    await console.send(page, do="cancel", property="p-1", below=below)
    await console.send(page, do="nothing", property="p-1", below=below, ids=ids)
    messages = [each.message async for batch in read_to_end(console.backend.log, topic) for each in batch]
    assert len([each for each in messages if is_cancellation(each)]) == 2


async def test_a_cancellation_goes_the_way_of_a_callers(console: Console) -> None:
    request_id = await taken_in(console, 1, status=Status.CONFIRMED)
    await console.sign_in()
    await console.send(f"/console/submissions/{request_id}", do="cancel", reason="the guest fell ill")
    topic = console.backend.settings.topics.requests
    messages = [each.message async for batch in read_to_end(console.backend.log, topic) for each in batch]
    (asked,) = [decode_cancellation(each) for each in messages if is_cancellation(each)]
    assert (asked.request_id, asked.reason) == (request_id, "the guest fell ill")
    (entry,) = await console.audited("submission.cancel")
    assert (entry.actor, entry.target) == (console.key_id, request_id)


async def letters_read(console: Console) -> str:
    """The page of dead letters, once they are read."""
    while "are being read" in (shown := await console.http.get("/console/dead-letters")).text:
        await asyncio.sleep(0.02)  # as its page does
    return shown.text


async def test_dead_letters_are_counted_by_the_store_until_they_are_read(console: Console) -> None:
    for each in (1, 2, 3):
        await taken_in(console, each, status=Status.FAILED)
    held = HeldLog(console.backend.log)
    async with visited(replace(console.backend, log=held)) as other:
        await other.sign_in(console.token)
        shown = (await other.http.get("/console/dead-letters?account=casa-1")).text
        assert "are being read" in shown
        assert re.findall(r'<td class="number">([^<]*)</td>', shown) == ["3"]
        assert unescape(found_in(r'data-go-on="([^"]*)"', shown)) == "/console/dead-letters?account=casa-1"
        assert "No failed submissions" in (await other.http.get("/console/dead-letters?account=none")).text
        held.released.set()
        assert "The newest 3 of 3" in await letters_read(other)


class HeldLog:
    """A log of which nothing can be read until it is released."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.released = asyncio.Event()
        self.publisher, self.consumer, self.admin = log.publisher, log.consumer, log.admin

    @asynccontextmanager
    async def tail(self, topic: str, *, from_beginning: bool = False) -> AsyncIterator[Tail]:
        await self.released.wait()
        async with self._log.tail(topic, from_beginning=from_beginning) as tail:
            yield tail


def found_in(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found[1]


async def test_a_group_of_dead_letters_is_replayed_after_a_preview(console: Console) -> None:
    ids = [await taken_in(console, each, status=Status.FAILED) for each in (1, 2)]
    await console.sign_in()
    groups = await letters_read(console)
    (link,) = set(re.findall(r'href="(/console/dead-letters/replay\?account=[^"]+)"', groups))
    preview = await console.http.get(link.replace("&amp;", "&"))
    assert "Replay 2 dead letters?" in preview.text
    assert all(each in preview.text for each in ids)
    fields = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', preview.text))
    await taken_in(console, 3, status=Status.FAILED)  # after the preview
    begun = await console.http.post("/console/dead-letters/replay", data=fields, headers={"Origin": ORIGIN})
    while "In progress." in (shown := await console.http.get(begun.headers["location"])).text:
        await asyncio.sleep(0.02)  # as its page does
    assert "2 of 2 replayed. Done." in shown.text
    topic = console.backend.settings.topics.requests
    back = [each.message async for batch in read_to_end(console.backend.log, topic) for each in batch]
    assert {header(each.headers, "replay-of") for each in back} == {f"{each}.1" for each in ids}
    assert [(each.result, each.actor) for each in await console.audited("dead_letters.replay")] == [
        ("done", console.key_id),
        ("requested", console.key_id),
    ]
    assert (await console.http.get("/console/dead-letters/replays/unknown")).status_code == 404


async def test_the_overview_names_what_wants_attention(console: Console) -> None:
    await taken_in(console, 1, status=Status.IN_DOUBT)
    await taken_in(console, 2, status=Status.FAILED)
    for name, count in (("forged", 2), ("undecodable", 1)):
        await Recorder(console.backend.engine).note_set_aside(name, count, now=NOW)
    await console.sign_in()
    page = (await console.http.get("/console")).text
    attention = page[page.index('id="attention"') : page.index('id="flow"')]
    shown = re.findall(r'<li class="(\w+)"><a href="([^"]+)">([^<]+)</a><div class="soft small">([^<]+)<', attention)
    assert [(kind, where, what.partition(", set aside")[0], how) for kind, where, what, how in shown] == [
        (
            "bad",
            "/console/dead-letters?class=forged",
            "2 messages on the requests topic not signed by this deployment",
            "forwarder dead-letters list --class forged; then forwarder dead-letters acknowledge forged",
        ),
        (
            "warn",
            "/console/in-doubt?account=casa-1",
            f"casa-1: 1 in doubt, the oldest for {span(console.backend.clock.now() - NOW)}",
            "forwarder submissions list --status in_doubt --account casa-1",
        ),
        (
            "warn",
            "/console/dead-letters?class=other",
            "1 submission FAILED, other",
            "forwarder dead-letters replay --class other --dry-run",
        ),
        (
            "warn",
            "/console/dead-letters?class=undecodable",
            "1 message on the requests topic could not be read",
            "forwarder dead-letters list --class undecodable; then forwarder dead-letters acknowledge undecodable",
        ),
    ]
    for path in ("/topics", "/webhooks", "/accounts", "/audit"):
        assert (await console.http.get(f"/console{path}")).status_code == 200


async def test_without_kafka_or_the_database_the_overview_shows_the_rest_and_says_what_is_away(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    await taken_in(console, 1)
    away = open_engine(NOBODY_LISTENS)
    without_log = replace(console.backend, log=_Raising(LogUnavailable("no broker")))
    async with visited(without_log, console.token) as half:
        await half.sign_in()
        shown = (await half.http.get("/console")).text
    assert "the log is away: no broker" in shown
    assert (shown.count("Unknown: Kafka is away"), "the database is away" in shown) == (2, False)
    assert ">casa-1</a>" in shown

    def blind(settings: Settings, log: Log, _engine: Engine, clock: Clock, **more: float) -> StatusReader:
        return StatusReader(settings, log, away, clock, **more)

    monkeypatch.setattr(service, "StatusReader", blind)
    async with visited(console.backend, console.token) as half:
        await half.sign_in()
        shown = (await half.http.get("/console")).text
    await away.dispose()
    assert "the store is away: ConnectionRefusedError" in shown
    assert (shown.count("Unknown: the database is away"), "Kafka is away" in shown) == (3, False)
    assert "reservations.requests" in shown


async def test_longer_ranges_are_links_into_grafana(console: Console) -> None:
    await console.sign_in()
    assert "Grafana" not in (await console.http.get("/console")).text
    settings = console.backend.settings
    environment = settings.environment.model_copy(update={"grafana_url": "https://grafana.test/d/abc/forwarder"})
    async with visited(replace(console.backend, settings=replace(settings, environment=environment))) as other:
        await other.sign_in(console.token)
        shown = (await other.http.get("/console")).text
    assert 'href="https://grafana.test/d/abc/forwarder?from=now-7d&amp;to=now"' in shown


async def test_a_next_try_whose_time_has_come_is_now(console: Console) -> None:
    await taken_in(console, 1, due_at=console.backend.clock.now() - timedelta(minutes=1))
    await console.sign_in()
    account = (await console.http.get("/console/accounts/casa-1")).text
    assert "<dt>Next try</dt><dd>now</dd>" in account
    search = (await console.http.get("/console/submissions?account=casa-1")).text
    assert "<td>now</td>" in search


async def test_a_text_that_postgresql_does_not_take_is_not_found(console: Console) -> None:
    refusing = cast("AuditTrail", _Raising(Unstorable("CharacterNotInRepertoireError")))
    async with visited(replace(console.backend, trail=refusing)) as other:
        await other.sign_in(console.token)
        shown = await other.http.get("/console/audit?who=%00")
    assert (shown.status_code, "such as U+0000" in shown.text) == (404, True)


@dataclass
class _Raising:
    """A log that is away, or a store that does not take what it is asked for."""

    error: Exception

    def __getattr__(self, name: str) -> Any:
        raise self.error


async def test_it_is_served_to_other_machines_over_tls_alone(tmp_path: Path) -> None:
    here, plain = Environment(data_dir=tmp_path), Environment(data_dir=tmp_path, console_plaintext=True)
    for host, environment, refused in (("127.0.0.1", here, False), ("0.0.0.0", here, True), ("0.0.0.0", plain, False)):
        with bind(host, 0) as listening:
            refusal = console_refusal(settings_of(environment), listening)
            assert (refusal is not None) is refused
            assert refusal is None or "FORWARDER_CONSOLE_PLAINTEXT" in refusal


def not_none(value: T | None) -> T:
    assert value is not None
    return value
