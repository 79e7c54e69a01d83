"""`forwarder dead-letters replay`: publishes selected dead letters on the requests topic again, at a limited rate."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Final

from typer import Argument, Option

from forwarder.operate.command import commands, open_deployment, require_known, stop_on_signal
from forwarder.operate.output import Block, Shown, Table, WrongUsage, progress
from forwarder.operate.submissions import dead_letters
from forwarder.operate.submissions.bulk import OnDone, Yes, agreed
from forwarder.operate.submissions.dead_letters import Found, LetterFilter, LetterState
from forwarder.oversight.audit import Audit
from forwarder.process.clock import Clock
from forwarder.process.loops import first_of
from forwarder.reservation.outcome import UNDECODABLE
from forwarder.store.audit import AuditResult
from forwarder.topics.codec import MessageSigner, replayed
from forwarder.topics.port import LogUnavailable, Message, Publisher


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The letters to replay, and how many are skipped, by their state."""

    chosen: Found
    passed_over: Counter[LetterState]

    def as_json(self) -> dict[str, Any]:
        passed_over = {each.value: self.passed_over[each] for each in LetterState if each is not LetterState.OPEN}
        return {"selected": len(self.chosen), "passedOver": passed_over}


def plan_replay(found: Found, *, by_id: bool) -> ReplayPlan:
    """Plans the open ones of `found`; undecodable ones and those whose card is gone only if the operator named them by id."""
    replayable = {LetterState.OPEN, *([LetterState.UNDECODABLE, LetterState.CARD_GONE] if by_id else [])}
    chosen = [(letter, state) for letter, state in found if state in replayable]
    return ReplayPlan(chosen, Counter(state for _, state in found if state not in replayable))


@dataclass(slots=True)
class Replay:
    """Publishes letters on `topic`, at most `rate` per second. `stop` ends it between two publishes. Letters without a worker's
    signature stay unsigned: workers refuse them. `put_back`: how many letters the log has acknowledged so far."""

    publisher: Publisher
    topic: str
    signer: MessageSigner
    clock: Clock
    rate: float
    stop: asyncio.Event
    put_back: int = 0

    async def run_audited(
        self, audit: Audit, plan: ReplayPlan, letters: AsyncIterable[Sequence[Message]], on_published: OnDone
    ) -> None:
        """`run` for the letters of `plan`; the audit trail has the selection before, and how many were replayed after."""
        ids = [letter.id for letter, _ in plan.chosen]
        async with audit.request("dead_letters.replay", selected=len(ids), letters=ids[:50]) as operation:
            try:
                await self.run(letters, on_published)
            finally:
                operation.details["putBack"] = self.put_back
            await audit.note(operation, AuditResult.DONE)

    async def run(self, letters: AsyncIterable[Sequence[Message]], on_published: OnDone) -> None:
        """Publishes `letters` in order. Raises `LogUnavailable`, `MessageTooLarge`: some of the last few may be published then."""
        # Ten times a second; letters of one step are published together.
        at_once, due_at = max(1, int(self.rate / 10)), self.clock.monotonic()
        async for some in letters:
            for first in range(0, len(some), at_once):
                await first_of(self.clock.sleep(due_at - self.clock.monotonic()), self.stop.wait())
                if self.stop.is_set():
                    return
                step = some[first : first + at_once]
                # Time the next step from the start of this one, late or not: do not catch up after an outage.
                due_at = self.clock.monotonic() + len(step) / self.rate
                back = [self.signer.signed_like(letter, replayed(letter)) for letter in step]
                await self.publisher.publish(self.topic, back)
                self.put_back += len(step)
                on_published(len(step))


_FASTEST: Final = 100_000
_SHOWN: Final = 20


async def replay(
    ids: Annotated[list[str] | None, Argument(metavar="ID...", help="Only those with these ids.")] = None,
    *,
    filters: dead_letters.LetterOptions,
    all_open: bool = False,
    dry_run: bool = False,
    rate: Annotated[float, Option(help="Maximum per second.")] = 50.0,
    yes: Yes = False,
) -> Shown:
    """Put open dead letters back on the topic that they came from.

    Workers push them again, until the account's deadline. Replaying twice books once. Undecodable ones are replayed, unchanged,
    only if their ids are given.

    all_open: All open ones.
    dry_run: Only say what would be replayed, by account and class."""
    wanted = filters.wanted()
    if [bool(ids), wanted != LetterFilter(), all_open].count(True) != 1:
        raise WrongUsage(
            "Select dead letters: by ids, by filters (--account, --class, --since, --until), or --all-open."
        )
    if wanted.failure_class == UNDECODABLE:
        raise WrongUsage("Undecodable ones are replayed only if their ids are given.")
    if not 0 < rate <= _FASTEST:
        raise WrongUsage(f"--rate must be more than 0, and {_FASTEST:,} at most.")
    async with open_deployment() as backend:
        reader = dead_letters.letters_of(backend)
        found = dead_letters.all_of(ids or [], await reader.find(LetterFilter(ids=frozenset(ids)) if ids else wanted))
        if not found:
            await require_known(backend, account=wanted.account)
        plan = plan_replay(found, by_id=bool(ids))
        if dry_run:
            return _planned(plan)
        agreed(f"Put {len(plan.chosen)} back?{_passed_over(plan)}", yes=yes or bool(ids) or not plan.chosen)
        letters, topic = [letter for letter, _ in plan.chosen], backend.settings.topics.requests
        outage: LogUnavailable | None = None
        signer = await backend.signer()
        async with backend.log.publisher() as publisher:
            with stop_on_signal() as stop, progress(len(letters), "Putting back") as on_published:
                running = Replay(publisher, topic, signer, backend.clock, rate=rate, stop=stop)
                async with aclosing(reader.messages(letters)) as messages:
                    try:
                        await running.run_audited(backend.audit, plan, messages, on_published)
                    except LogUnavailable as error:
                        outage = error
    done, selected, failed = running.put_back, len(letters), None
    interrupted = stop.is_set() and done < selected
    if done < selected:
        why = "interrupted" if interrupted else str(outage or "the others were pruned from the log meanwhile")
        failed = f"{selected - done} were not replayed: {why}. Run the same command again to continue."
    sentence = f"{done} of {selected} put back." if selected else "There is nothing open to put back."
    summary = {**plan.as_json(), "putBack": done, "dryRun": False, "interrupted": interrupted}
    return Shown(summary, f"{sentence}{_passed_over(plan)}", failed=failed)


def _planned(plan: ReplayPlan) -> Shown:
    rows = [dead_letters.row(*each) for each in plan.chosen]
    counts = Counter((letter.account, letter.failure_class) for letter, _ in plan.chosen)
    groups = [{"account": of, "failureClass": name, "count": count} for (of, name), count in sorted(counts.items())]
    text: list[Block] = []
    if rows:
        more = f"… and {len(rows) - _SHOWN} more\n" if len(rows) > _SHOWN else ""
        text = [Table(rows[:_SHOWN], dead_letters.COLUMNS), more, Table(groups, ("account", "failureClass", "count"))]
    text.append(f"{len(rows)} would be put back.{_passed_over(plan)}")
    summary = {**plan.as_json(), "putBack": 0, "dryRun": True, "interrupted": False}
    return Shown({**summary, "groups": groups, "letters": rows}, text)


def _passed_over(plan: ReplayPlan) -> str:
    said = {
        LetterState.REPLAYED: "replayed already",
        LetterState.SUPERSEDED: "superseded: submitted again since, `dead-letters list` shows by which",
        LetterState.ERASED: "without their guests' data, which was removed",
        LetterState.CARD_GONE: "card gone: submit them again, with the card; if the PMS is sent no cards, name them by their ids",
        LetterState.UNDECODABLE: "undecodable: name those by their ids",
        LetterState.FORGED: "forged: workers would set them aside again",
        LetterState.TOO_LARGE: "too large to be put back",
    }
    counts = [f"{count} {words}" for each, words in said.items() if (count := plan.passed_over[each])]
    return f" Passed over: {'; '.join(counts)}." if counts else ""


COMMANDS = commands(
    list=dead_letters.list_letters, show=dead_letters.show, replay=replay, acknowledge=dead_letters.acknowledge
)
