"""`forwarder listen`: result events posted to a program that is being written, as a webhook would get them. Needs the log alone.

Nothing is added to the deployment that would have to be taken away again: events are read from the results topic, and signed with
a secret that lasts as long as the command runs.
"""

import asyncio
from collections.abc import AsyncIterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

import typer

from forwarder.cli.backend import stop_on_signal, with_log
from forwarder.cli.operate.results import ReadRange, follow, read_range_of, require_topic, types_of
from forwarder.cli.output import WrongUsage, note, say, while_read
from forwarder.notifier.events import Event, decode_event
from forwarder.process.clock import Clock, SystemClock
from forwarder.process.loops import first_of
from forwarder.process.printable import printable
from forwarder.topics.codec import Undecodable, is_duplicate
from forwarder.topics.port import ConsumedMessage, Log
from forwarder.webhooks.addresses import AddressRule
from forwarder.webhooks.port import NoResponse, PostResult, Sender
from forwarder.webhooks.sender import open_sender
from forwarder.webhooks.signature import new_secret, signed_headers

_HEADERS = {"content-type": "application/json", "user-agent": "reservation-forwarder-listen"}
_POST_SECONDS = 15.0
"""As long as a webhook may take."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where events are posted, the secret that signs them, and of which workspace and types they are, where that is given."""

    url: str
    secret: str
    workspace: str | None = None
    types: frozenset[str] = frozenset()

    def takes(self, event: Event) -> bool:
        """Whether `event` is to be posted."""
        return self.workspace in {None, event.workspace_id} and (not self.types or event.type in self.types)


async def forward(
    batches: AsyncIterable[Sequence[ConsumedMessage]], target: Target, sender: Sender, clock: Clock
) -> None:
    """Post each event once, in their order, and say what came of it. Returns when there are no more."""
    async for batch in batches:
        for each in batch:
            if (event := _event(each)) is not None and target.takes(event):
                began = clock.monotonic()
                result = await _post(event, target, sender, clock)
                say(line(event, result, round((clock.monotonic() - began) * 1000)))


def _event(received: ConsumedMessage) -> Event | None:
    if is_duplicate(received.message):  # webhooks are not told of it either
        return None
    try:
        return decode_event(received.message)
    except Undecodable as fault:
        note(f"{received.topic}, partition {received.partition}, offset {received.offset}: {fault}; passed over")
        return None


async def _post(event: Event, target: Target, sender: Sender, clock: Clock) -> PostResult:
    body, now = event.body.encode(), int(clock.now().timestamp())
    signed = signed_headers([target.secret], message_id=event.id, timestamp=now, body=body)
    return await sender.post(target.url, {**_HEADERS, **signed}, body)


def line(event: Event, result: PostResult, ms: int) -> str:
    """One line: the event's type and id, what the program answered, and how long it took."""
    answered = f"{result.failure} {result.detail}".strip() if isinstance(result, NoResponse) else str(result.status)
    return f"{printable(event.type)}  {printable(event.id)}  ->  {printable(answered)}  ({ms} ms)"


def listen(
    forward_to: Annotated[
        str, typer.Option("--forward-to", metavar="URL", help="Of your program, such as http://localhost:9000/in.")
    ],
    workspace: Annotated[str | None, typer.Option(help="Only of this workspace.")] = None,
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
) -> None:
    """Post result events to a program on your machine, signed as webhooks are, and print what it answers; until Ctrl-C.

    Each event is posted once: what your program refuses is not sent again. The secret is printed, and is of this run alone.
    """
    if urlsplit(forward_to).scheme not in {"http", "https"} or not urlsplit(forward_to).hostname:
        raise WrongUsage("--forward-to takes a whole address, such as http://localhost:9000/in.")
    target = Target(forward_to, new_secret(), workspace, types_of(kind or ()))
    read_range = read_range_of(start, follow=True)
    with_log(lambda log, topics: _listen(log, topics.results, read_range, target))


async def _listen(log: Log, topic: str, read_range: ReadRange, target: Target) -> None:
    await require_topic(log, topic)
    clock = SystemClock()
    # Whoever types the command chose the address: it may be of this machine.
    async with open_sender(AddressRule(private=True), clock, seconds=_POST_SECONDS) as sender:
        with stop_on_signal() as stop, while_read():
            say(f"Posting to {target.url}, until Ctrl-C. Webhook secret of this run: {target.secret}")
            async with aclosing(follow(log, topic, read_range, clock)) as batches:
                forwarding = asyncio.ensure_future(forward(batches, target, sender, clock))
                await first_of(forwarding, stop.wait())
                if not forwarding.cancelled():
                    forwarding.result()
