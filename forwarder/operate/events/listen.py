"""`forwarder listen`: posts result events to a program that is being written, as a webhook would get them.

It adds nothing to the deployment that would have to be removed again: events come from the results topic or, if you only have an
API key, from polling the public API; they are signed with a secret that lasts as long as the command runs.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from forwarder.notifier.events import Event, decode_event
from forwarder.operate.backend import stop_on_signal, unless_stopped, with_log
from forwarder.operate.events.changes import Api, Changes
from forwarder.operate.events.results import ReadRange, follow, read_range_of, require_topic, types_of
from forwarder.operate.output import WrongUsage, note, say, while_read
from forwarder.process.clock import Clock, SystemClock
from forwarder.process.printable import printable
from forwarder.topics.codec import Undecodable, is_outcome
from forwarder.topics.port import ConsumedMessage, Log
from forwarder.webhooks.addresses import AddressRule
from forwarder.webhooks.port import NoResponse, PostResult, Sender
from forwarder.webhooks.sender import open_sender
from forwarder.webhooks.signature import new_secret, signed_headers

POST_SECONDS: Final = 15.0
"""The time limit of webhooks."""
_HEADERS: Final = {"content-type": "application/json", "user-agent": "reservation-forwarder-listen"}


@dataclass(frozen=True, slots=True)
class Target:
    """Where to post events, the signing secret, and the workspace and event types to select, if any."""

    url: str
    secret: str
    workspace: str | None = None
    types: frozenset[str] = frozenset()

    def takes(self, event: Event) -> bool:
        """Whether `event` matches the workspace and the types."""
        return self.workspace in {None, event.workspace_id} and (not self.types or event.type in self.types)


async def forward(batches: AsyncIterable[Sequence[Event]], target: Target, sender: Sender, clock: Clock) -> None:
    """Posts each event once, in order, and prints the result. Returns when there are no more."""
    async for batch in batches:
        for event in filter(target.takes, batch):
            began = clock.monotonic()
            result = await _post(event, target, sender, clock)
            say(line(event, result, round((clock.monotonic() - began) * 1000)))


async def _post(event: Event, target: Target, sender: Sender, clock: Clock) -> PostResult:
    body, now = event.body.encode(), int(clock.now().timestamp())
    signed = signed_headers([target.secret], message_id=event.id, timestamp=now, body=body)
    return await sender.post(target.url, {**_HEADERS, **signed}, body)


def line(event: Event, result: PostResult, ms: int) -> str:
    """One line: the event's type and id, the program's response, and how long it took."""
    answered = f"{result.failure} {result.detail}".strip() if isinstance(result, NoResponse) else str(result.status)
    return f"{printable(event.type)}  {printable(event.id)}  ->  {printable(answered)}  ({ms} ms)"


def listen(
    forward_to: Annotated[
        str, typer.Option("--forward-to", metavar="URL", help="Your program's URL, such as http://localhost:9000/in.")
    ],
    workspace: Annotated[str | None, typer.Option(help="Only this workspace. Required with --api.")] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="TYPE", help="Only of this type: reservation.confirmed.v1, or confirmed; repeatable."
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="WHEN", help="beginning, end, a moment in ISO 8601, or an age such as 30m. [default: end]"
        ),
    ] = None,
    api: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Read a forwarder elsewhere by its public API, such as https://bookings.example, instead of the log.",
        ),
    ] = None,
    account: Annotated[
        list[str] | None, typer.Option(help="With --api: the integration account to read; repeatable.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="FORWARDER_TOKEN", help="With --api: an API key with the scope read; preferably in its variable."
        ),
    ] = None,
) -> None:
    """Post result events to a program on your machine, signed as webhooks are, and print its responses; until Ctrl-C.

    Each event is posted once, even if your program refuses it. The printed secret is for this run only.
    """
    _require_address("--forward-to", forward_to, "http://localhost:9000/in")
    target = Target(forward_to, new_secret(), workspace, types_of(kind or ()))
    read_range = read_range_of(start, follow=True)
    if api is not None:
        changes = _changes(api, workspace, account or (), token)
        asyncio.run(_forward_until_stopped(changes.events(read_range), target, changes.clock))
    elif account:
        raise WrongUsage("--account goes with --api; without it, --workspace selects.")
    else:
        with_log(lambda log, topics: _listen(log, topics.results, read_range, target))


def _require_address(option: str, url: str, example: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise WrongUsage(f"{option} takes a full URL, such as {example}.")


def _changes(url: str, workspace: str | None, accounts: Sequence[str], token: str | None) -> Changes:
    _require_address("--api", url, "https://bookings.example")
    if not (workspace and accounts and token):
        raise WrongUsage("With --api also give --workspace, --account, and the API key in FORWARDER_TOKEN.")
    return Changes(Api(url.rstrip("/"), workspace, token), accounts, SystemClock())


async def _listen(log: Log, topic: str, read_range: ReadRange, target: Target) -> None:
    await require_topic(log, topic)
    clock = SystemClock()
    await _forward_until_stopped(_published(log, topic, read_range, clock), target, clock)


async def _published(
    log: Log, topic: str, read_range: ReadRange, clock: Clock
) -> AsyncGenerator[Sequence[Event], None]:
    """The events on the topic; reports records that it cannot decode on standard error."""
    async with aclosing(follow(log, topic, read_range, clock)) as batches:
        async for batch in batches:
            yield [event for each in batch if (event := _event(each)) is not None]


def _event(received: ConsumedMessage) -> Event | None:
    if not is_outcome(received.message):  # webhooks do not get it either
        return None
    try:
        return decode_event(received.message)
    except Undecodable as fault:
        note(f"{received.topic}, partition {received.partition}, offset {received.offset}: {fault}; skipped")
        return None


async def _forward_until_stopped(events: AsyncGenerator[Sequence[Event], None], target: Target, clock: Clock) -> None:
    """Posts events until there are no more, or a signal arrives."""
    # The operator typed the address, so it may be on this machine.
    async with open_sender(AddressRule(private=True), clock, seconds=POST_SECONDS) as sender:
        with stop_on_signal() as stop, while_read():
            async with aclosing(_announced(events, target)) as batches:
                await unless_stopped(forward(batches, target, sender, clock), stop)


async def _announced(
    events: AsyncGenerator[Sequence[Event], None], target: Target
) -> AsyncGenerator[Sequence[Event], None]:
    """Passes the batches on, after printing the target once; no event after that line is missed."""
    announced = False
    async with aclosing(events) as batches:
        async for batch in batches:
            if not announced:
                say(f"Posting to {target.url}, until Ctrl-C. Webhook secret of this run: {target.secret}")
                announced = True
            yield batch
