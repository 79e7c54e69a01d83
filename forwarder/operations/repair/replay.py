"""Replays dead letters: selects them, and publishes them on the requests topic again, at a limited rate, until interrupted."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from forwarder.operations.audit import Audit
from forwarder.operations.repair.dead_letter_messages import replayed
from forwarder.operations.repair.dead_letters import Letter, LetterState
from forwarder.process.clock import Clock
from forwarder.store.audit import AuditResult
from forwarder.topics.port import Message, Publisher
from forwarder.topics.signing import MessageSigner

_LETTERS_NAMED = 50
_STEPS_A_SECOND = 10
"""How often letters are published; those of one step are published together."""

OnPublished = Callable[[int], None]
"""Called with the number of further letters that the log acknowledged."""


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The letters to replay, and how many are skipped, by their state."""

    chosen: Sequence[tuple[Letter, LetterState]]
    passed_over: Counter[LetterState]

    def groups(self) -> Sequence[dict[str, Any]]:
        """How many are replayed, by account and class."""
        counts = Counter((letter.account, letter.failure_class) for letter, _ in self.chosen)
        names = ("account", "failureClass", "count")
        return [dict(zip(names, (*group, count), strict=True)) for group, count in sorted(counts.items())]


def plan_replay(found: Sequence[tuple[Letter, LetterState]], *, by_id: bool) -> ReplayPlan:
    """Plans the open ones of `found`; undecodable ones and those whose card is gone only if the operator named them by id."""
    by_name = {LetterState.UNDECODABLE, LetterState.CARD_GONE} if by_id else set()
    replayable = {LetterState.OPEN} | by_name
    chosen = [(letter, state) for letter, state in found if state in replayable]
    return ReplayPlan(chosen, Counter(state for _, state in found if state not in replayable))


class Replay:
    """Publishes letters on `topic`, at most `rate` per second. `stop` ends it between two publishes. Letters without a worker's
    signature stay unsigned: workers refuse them."""

    def __init__(
        self,
        publisher: Publisher,
        topic: str,
        signer: MessageSigner,
        clock: Clock,
        *,
        rate: float,
        stop: asyncio.Event,
    ) -> None:
        self._publisher = publisher
        self._topic = topic
        self._signer = signer
        self._clock = clock
        self._rate = rate
        self._stop = stop
        self._due_at = clock.monotonic()
        self.put_back = 0
        """How many letters the log has acknowledged so far."""

    async def run_audited(
        self, audit: Audit, plan: ReplayPlan, letters: AsyncIterable[Sequence[Message]], on_published: OnPublished
    ) -> None:
        """`run` for the letters of `plan`, audited: the trail has the selection before, and the number of replayed letters
        after."""
        ids = [letter.id for letter, _ in plan.chosen]
        async with audit.request("dead_letters.replay", selected=len(ids), letters=ids[:_LETTERS_NAMED]) as operation:
            try:
                await self.run(letters, on_published)
            finally:
                operation.details["putBack"] = self.put_back
            await audit.note(operation, AuditResult.DONE)

    async def run(self, letters: AsyncIterable[Sequence[Message]], on_published: OnPublished) -> None:
        """Publishes `letters` in order. Raises `LogUnavailable`, `MessageTooLarge`: then some of the last few may have been
        published."""
        at_once = max(1, int(self._rate / _STEPS_A_SECOND))
        async for some in letters:
            for first in range(0, len(some), at_once):
                await self._pause(self._due_at - self._clock.monotonic())
                if self._stop.is_set():
                    return
                on_published(await self._put_back(some[first : first + at_once]))

    async def _put_back(self, letters: Sequence[Message]) -> int:
        # Time the next step from the start of this one, late or not: do not catch up after an outage.
        self._due_at = self._clock.monotonic() + len(letters) / self._rate
        back = [self._signer.signed_like(letter, replayed(letter)) for letter in letters]
        await self._publisher.publish(self._topic, back)
        self.put_back += len(letters)
        return len(letters)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not after `stop`."""
        ends = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._stop.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
