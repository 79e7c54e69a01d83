"""Result events: `forwarder results …` prints those of the results topic, for people and for pipes; `forwarder listen` posts them
to a program that is being written, as a webhook would get them.

`listen` leaves nothing behind in the deployment. Events come from the results topic or, for those with only an API key, from
polling the public API. Polling sees states: of two changes between two polls only the later one. Its events' ids end with the time
of the change in milliseconds, those of webhooks with the revision; both rise. The API is read with the standard library, blocking
in a thread, because it is asked at most once a second."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from http.client import HTTPException
from typing import Annotated, Any, Final, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from typer import Option

from forwarder.notifier.posting import Event, body_of, decode_event
from forwarder.observability.logging import printable
from forwarder.operate.command import commands, moment, open_results, stop_on_signal, unless_stopped
from forwarder.operate.output import Failed, WrongUsage, json_line, note, say, show_lines, while_read
from forwarder.process.clock import Clock, SystemClock, iso
from forwarder.reservation.outcome import CancellationStatus, Status
from forwarder.reservation.record import EVENT_TYPES, RESULT_TYPES, ResultEvent
from forwarder.tenancy.port import is_test_token
from forwarder.topics.codec import Undecodable, is_outcome, structured_event
from forwarder.topics.port import ConsumedMessage, Log, LogUnavailable, Message, read_to_end
from forwarder.webhooks.addresses import AddressRule
from forwarder.webhooks.port import EndpointResponse, Sender, key_of, new_secret, signed_headers
from forwarder.webhooks.sender import HttpSender

T = TypeVar("T")
Events = AsyncGenerator[Sequence[Event], None]


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events to print: of one account, of one workspace, of `types`, if given; at most `count` of them."""

    account: str | None = None
    workspace: str | None = None
    types: frozenset[str] = frozenset()
    count: int | None = None

    def includes(self, event: Mapping[str, Any]) -> bool:
        data, of_type = event["data"], not self.types or event["type"] in self.types
        of_workspace = self.workspace in (None, data.get("workspaceId"))
        return of_type and of_workspace and self.account in (None, data.get("integrationAccountId"))


@dataclass(frozen=True, slots=True)
class ReadRange:
    """What to read of a topic: from its beginning, from the time `since`, or from its end; whether to `follow` new records."""

    beginning: bool = False
    since: datetime | None = None
    follow: bool = True


async def print_events(
    log: Log, topic: str, read_range: ReadRange, wanted: EventFilter, clock: Clock, *, as_json: bool
) -> None:
    """Prints matching events as they arrive. Returns after `count` of them, or at the end if it does not `follow`. Reports
    undecodable records on standard error and skips them; also outages, once the topic exists. Raises `LogUnavailable`."""
    left, beginning = wanted.count, read_range.since
    reading = follow(log, topic, read_range, clock) if read_range.follow else read_to_end(log, topic, since=beginning)
    async with aclosing(reading) as batches:
        async for batch in batches:
            events = list(filter(wanted.includes, decoded(batch, structured_event)))
            show_lines([json_line(event) if as_json else line(event) for event in events[:left]])
            left = None if left is None else left - len(events[:left])
            if left == 0:
                return


def decoded(batch: Iterable[ConsumedMessage], decode: Callable[[Message], T]) -> Iterator[T]:
    """The records, decoded; reports those that cannot be on standard error."""
    for each in batch:
        try:
            yield decode(each.message)
        except Undecodable as fault:
            note(f"{each.topic}, partition {each.partition}, offset {each.offset}: {fault}; skipped")


async def follow(
    log: Log, topic: str, read_range: ReadRange, clock: Clock
) -> AsyncGenerator[Sequence[ConsumedMessage], None]:
    """The records in the topic, then new ones. Reports an outage on standard error and retries."""
    async with log.tail(topic, from_beginning=read_range.beginning) as tail:
        if read_range.since is not None:
            async with log.admin() as admin:
                (offsets,) = await admin.offsets_at(topic, [read_range.since])
            await tail.seek(offsets)
        while True:
            try:
                yield await tail.receive(max_messages=500, wait_seconds=1.0)
            except LogUnavailable as outage:
                note(f"{outage}; trying again")
                await clock.sleep(1.0)


def line(event: Mapping[str, Any]) -> str:
    """One line for a person: when, what, whose; then the ids, and the problem's code."""

    def object_of(value: Any) -> Mapping[str, Any]:  # others may write anything to the topic
        return value if isinstance(value, dict) else {}

    data = event["data"]
    record = object_of(data.get("reservation"))
    problem = object_of(object_of(data.get("cancellation")).get("problem") or record.get("problem"))
    ids = (record.get("id"), record.get("pmsReservationId"), problem.get("code"))
    parts = (event.get("time"), event["type"], data.get("integrationAccountId"), data.get("requestId"), *ids)
    return "  ".join("-" if part is None else " ".join(printable(str(part)).split()) for part in parts)


async def tail(
    start: Annotated[str | None, Option("--from", metavar="WHEN")] = None,
    account: str | None = None,
    workspace: str | None = None,
    kind: Annotated[list[str] | None, Option("--type", metavar="TYPE")] = None,
    count: Annotated[int | None, Option("--count", "-n", min=1, help="Stop after this many events.")] = None,
    no_follow: bool = False,
    as_json: Annotated[bool, Option("--json", help="Print each event as a CloudEvent in JSON, one a line.")] = False,
) -> None:
    """Print result events as they arrive, until Ctrl-C: time, type, account, requestId, reservation, PMS id, problem.

    The events of one submission are in order, and may repeat with the same id; - is a missing value. Consumers are not affected.
    Reports undecodable records on standard error and skips them.

    start: beginning, end, a moment in ISO 8601, or an age such as 30m, 2h, 7d. [default: end; with --no-follow: beginning]
    account: Only of this integration account.
    workspace: Only of this workspace.
    kind: Only of this type: reservation.confirmed.v1, or confirmed; repeatable.
    no_follow: Stop at the present end of the topic."""
    wanted = EventFilter(account, workspace, types_of(kind or ()), count)
    read_range = read_range_of(start, follow=not no_follow)
    async with open_results() as (log, topic):
        with stop_on_signal() as stop, while_read():
            printing = print_events(log, topic, read_range, wanted, SystemClock(), as_json=as_json)
            await unless_stopped(printing, stop)


def types_of(given: Sequence[str]) -> frozenset[str]:
    """The full names. Raises `WrongUsage`."""
    names = {name: known for known in RESULT_TYPES for name in (known, known.split(".")[1])}
    if unknown := [each for each in given if each not in names]:
        raise WrongUsage(f"There is no type {unknown[0]!r}; there are: {', '.join(RESULT_TYPES)}.")
    return frozenset(names[each] for each in given)


def read_range_of(start: str | None, *, follow: bool) -> ReadRange:
    """The start that `--from` selects. Raises `WrongUsage`."""
    where = start or ("end" if follow else "beginning")
    if where == "end" and not follow:
        raise WrongUsage("--no-follow from the end prints nothing: leave one of them out.")
    if where in {"beginning", "end"}:
        return ReadRange(beginning=where == "beginning", follow=follow)
    return ReadRange(since=moment(where, "--from, where it is neither beginning nor end,"), follow=follow)


COMMANDS = commands(tail=tail)


# --- events from the public API ---

_MAX_PAGE_BYTES: Final = 64 * 1024 * 1024  # larger than any page of 200 records


class ApiUnavailable(Exception):
    """The API does not answer, and may in a moment."""


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: an API key is sent only to the address that it was given for."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: the caller sees the redirect as the response."""


_USER_AGENT: Final = "reservation-forwarder-listen"


@dataclass(frozen=True, slots=True)
class Api:
    """A forwarder at `url` (`http` or `https`, without `/api`), and the caller's credentials."""

    url: str
    workspace: str
    token: str = field(repr=False)

    def get(self, path: str, account: str, query: Mapping[str, str]) -> Mapping[str, Any]:
        """The members of the response, for an integration account. Blocks for at most 10 seconds between two bytes. Uses the
        environment's proxies. Raises `ApiUnavailable`, and `Failed` where the same request would be refused again."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json", "User-Agent": _USER_AGENT}
        headers |= {"workspaceId": self.workspace, "integrationAccountId": account}
        address = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            with build_opener(_NoRedirect).open(Request(address, headers=headers), timeout=10.0) as answer:  # noqa: S310 - the caller's
                body = answer.read(_MAX_PAGE_BYTES + 1)
            if len(body) > _MAX_PAGE_BYTES:
                raise Failed(f"the server at {self.url} is not a forwarder: more than {_MAX_PAGE_BYTES:,} bytes")
            members = json.loads(body)
        except HTTPError as error:
            with error:
                # The problem's code and detail, or the reason phrase if the body is not a problem document.
                try:
                    problem = json.loads(error.read(64 * 1024))
                    said = f"{problem['code']}: {problem['detail']}"
                except (OSError, HTTPException, ValueError, LookupError, TypeError, RecursionError):
                    said = str(error.reason)
            passing = error.code >= HTTPStatus.INTERNAL_SERVER_ERROR or error.code == HTTPStatus.TOO_MANY_REQUESTS
            raise (ApiUnavailable if passing else Failed)(f"{error.code} {said}".strip()) from None
        except (OSError, HTTPException) as error:
            raise ApiUnavailable(f"no answer from {self.url}: {getattr(error, 'reason', error)}") from error
        except (ValueError, RecursionError) as error:
            raise Failed(f"the server at {self.url} is not a forwarder: {error}") from error
        if not isinstance(members, dict):
            raise Failed(f"the server at {self.url} is not a forwarder")
        return members


_OVERLAP: Final = timedelta(minutes=10)
"""How far each poll reaches back before the previous one: clocks differ, and a change becomes visible shortly after its time."""
_Found = Sequence[tuple[str, Mapping[str, Any]]]  # accounts and their records, in order of change


@dataclass(slots=True)
class Changes:
    """The changes in those of `accounts` that `api` may read."""

    api: Api
    accounts: Sequence[str]
    clock: Clock
    _known: dict[str, str] = field(default_factory=dict, init=False)
    """The last known time of change of each submission that a poll may find again."""

    async def events(self, read_range: ReadRange) -> Events:
        """Yields each event once, from the start of `read_range`, in the order of the changes; never ends. Reports an outage on
        standard error and retries. Raises `Failed` where the API refuses."""
        began, since = self.clock.now(), read_range.since
        found = await self._look(None if read_range.beginning else (since or began) - _OVERLAP)
        news = [each for each in found if since is not None and str(each[1]["updatedAt"]) >= iso(since)]
        events = await self._events_of(found if read_range.beginning else news)
        ended = (record for _, record in found if record["status"] in EVENT_TYPES)
        self._known = {record["requestId"]: record["updatedAt"] for record in ended} | self._known
        yield events
        while True:
            await self.clock.sleep(1.0)
            earliest, began = began - _OVERLAP, self.clock.now()
            found = await self._look(earliest)
            news = [each for each in found if self._known.get(each[1]["requestId"]) != each[1]["updatedAt"]]
            yield await self._events_of(news)
            self._known = {request_id: at for request_id, at in self._known.items() if at >= iso(earliest)}

    async def _look(self, earliest: datetime | None) -> _Found:
        since = {} if earliest is None else {"updatedSince": iso(earliest)}
        wanted = {"status": ",".join(Status), "limit": "200", **since}
        found: list[tuple[str, Mapping[str, Any]]] = []
        for account in self.accounts:
            cursor: Mapping[str, str] | None = {}
            while cursor is not None:
                page = await self._read("/api/v1/vrs/reservations", account, {**wanted, **cursor})
                found += [(account, record) for record in page["data"]]
                cursor = {"cursor": following} if (following := page["meta"]["cursors"]["next"]) else None
        return sorted(found, key=lambda each: str(each[1]["updatedAt"]))

    async def _events_of(self, news: _Found) -> Sequence[Event]:
        """The events for the submissions' current states: none for one in progress, nor for a cancellation only requested."""
        events: list[Event] = []
        for account, record in news:
            if record["status"] not in EVENT_TYPES:
                continue
            submission = (await self._read(f"/api/v1/vrs/submissions/{record['requestId']}", account, {}))["data"]
            request_id, changed, status = submission["requestId"], submission["updatedAt"], submission["status"]
            reported_before = self._known.get(request_id) is not None
            self._known[request_id] = changed
            cancellation = submission["cancellation"]
            asked_for = cancellation is not None and cancellation["status"] == CancellationStatus.REQUESTED
            if status not in EVENT_TYPES or (asked_for and reported_before):
                continue
            data = {"requestId": request_id, "workspaceId": self.api.workspace, "integrationAccountId": account}
            data |= {"status": status, "reservation": submission["record"]}
            data |= {"cancellation": cancellation} if cancellation is not None and not asked_for else {}
            data |= {"test": True} if is_test_token(self.api.token) else {}
            revision = round(datetime.fromisoformat(changed).timestamp() * 1000)
            result = ResultEvent(request_id, revision, Status(status), "", changed, data)
            body = body_of(result.type, changed, b"".join(result.written).decode())
            events.append(Event(result.event_id, result.type, self.api.workspace, body))
        return events

    async def _read(self, path: str, account: str, query: Mapping[str, str]) -> Mapping[str, Any]:
        """The API's response; retries outages. Raises `Failed` where the API refuses."""
        while True:
            try:
                return await asyncio.to_thread(self.api.get, path, account, query)
            except ApiUnavailable as outage:
                note(f"{outage}; trying again")
                await self.clock.sleep(1.0)
            except Failed as refused:
                raise Failed(f"the API refuses to list {account}: {refused}") from None


# --- posting them ---


async def listen(
    forward_to: Annotated[str, Option("--forward-to", metavar="URL")],
    workspace: str | None = None,
    kind: Annotated[list[str] | None, Option("--type", metavar="TYPE")] = None,
    start: Annotated[str | None, Option("--from", metavar="WHEN")] = None,
    api: Annotated[str | None, Option(metavar="URL")] = None,
    account: list[str] | None = None,
    secret: Annotated[str | None, Option(metavar="WHSEC")] = None,
    token: Annotated[str | None, Option(envvar="FORWARDER_TOKEN")] = None,
) -> None:
    """Post result events to a program on your machine, signed as webhooks are, and print its responses; until Ctrl-C.

    Each event is posted once, even if your program refuses it. Without --secret, a new one is printed, for this run only.

    forward_to: Your program's URL, such as http://localhost:9000/in.
    workspace: Only this workspace. Required with --api.
    kind: Only of this type: reservation.confirmed.v1, or confirmed; repeatable.
    start: beginning, end, a moment in ISO 8601, or an age such as 30m. [default: end]
    api: Read a forwarder elsewhere by its public API, such as https://bookings.example, instead of the log.
    account: With --api: the integration account to read; repeatable.
    secret: Sign with this secret, whsec_…, instead of a new one: the one that your program already has.
    token: With --api: an API key with the scope read; preferably in its variable."""
    _require_address("--forward-to", forward_to, "http://localhost:9000/in")
    if secret is not None:
        try:
            key_of(secret)
        except ValueError:
            raise WrongUsage("--secret takes a webhook's secret: whsec_ and the base64 of 24 to 64 bytes.") from None
    wanted = EventFilter(workspace=workspace, types=types_of(kind or ()))
    read_range, clock = read_range_of(start, follow=True), SystemClock()
    async with AsyncExitStack() as stack:
        if api is not None:
            _require_address("--api", api, "https://bookings.example")
            if not (workspace and account and token):
                raise WrongUsage("With --api also give --workspace, --account, and the API key in FORWARDER_TOKEN.")
            events = Changes(Api(api.rstrip("/"), workspace, token), account, clock).events(read_range)
        elif account:
            raise WrongUsage("--account goes with --api; without it, --workspace selects.")
        else:
            log, topic = await stack.enter_async_context(open_results())
            events = _published(log, topic, read_range, clock)
        # The operator typed the address, so it may be on this machine. The time limit is that of webhooks.
        sender = HttpSender(AddressRule(private=True), clock, seconds=15.0)
        await stack.enter_async_context(aclosing(sender))
        with stop_on_signal() as stop, while_read():
            await unless_stopped(_forward(events, sender, wanted, forward_to, secret, clock), stop)


def _require_address(option: str, url: str, example: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise WrongUsage(f"{option} takes a full URL, such as {example}.")


async def _published(log: Log, topic: str, read_range: ReadRange, clock: Clock) -> Events:
    """The events on the topic; reports records that it cannot decode on standard error."""
    async with aclosing(follow(log, topic, read_range, clock)) as batches:
        async for batch in batches:
            outcomes = [each for each in batch if is_outcome(each.message)]  # webhooks do not get others either
            yield [*decoded(outcomes, decode_event)]


async def _forward(
    events: Events, sender: Sender, wanted: EventFilter, url: str, secret: str | None, clock: Clock
) -> None:
    """Posts wanted events once each, in order, and prints the results; misses none after its first line. No `secret`: makes one."""
    key, announcement = secret or new_secret(), f"Posting to {url}, until Ctrl-C."
    async with aclosing(events) as batches:
        async for batch in batches:
            if announcement:
                say(announcement if secret else f"{announcement} Webhook secret of this run: {key}")
                announcement = ""
            for event in batch:
                types = wanted.types or {event.type}
                if wanted.workspace not in {None, event.workspace_id} or event.type not in types:
                    continue
                began, body, now = clock.monotonic(), event.body.encode(), int(clock.now().timestamp())
                headers = {"content-type": "application/json", "user-agent": _USER_AGENT}
                headers |= signed_headers([key], message_id=event.id, timestamp=now, body=body)
                result = await sender.post(url, headers, body)
                said = result.status if isinstance(result, EndpointResponse) else f"{result.failure} {result.detail}"
                took = f"({round((clock.monotonic() - began) * 1000)} ms)"
                say("  ".join([*map(printable, (event.type, event.id, "->", str(said).strip())), took]))
