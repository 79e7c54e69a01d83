"""Posts events to the listening program, signed as webhooks are, and prints its responses."""

from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass
from typing import Final

from forwarder.cli.output import say
from forwarder.notifier.events import Event
from forwarder.process.clock import Clock
from forwarder.process.printable import printable
from forwarder.webhooks.port import NoResponse, PostResult, Sender
from forwarder.webhooks.signature import signed_headers

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
