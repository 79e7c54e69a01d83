"""`forwarder dead-letters …`: reads dead letters from the beginning of their topic to its present end, filters them, and compares
them with the store; and publishes selected ones on the requests topic again. Shows of a card only that there was one: `gone`."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from typer import Argument, Option

from forwarder.assembly.backend import Backend
from forwarder.operate import command, output
from forwarder.operate.command import Deployment, Limit, commands, moment_if_given, require_known
from forwarder.operate.output import Block, Failed, Printed, Table, WrongUsage, fields_of, picked
from forwarder.operate.submissions.bulk import OnDone, Yes, agreed
from forwarder.oversight.audit import Audit
from forwarder.process.clock import Clock
from forwarder.process.loops import first_of
from forwarder.reservation.outcome import FAILURE_CLASS, FAILURE_CLASSES, FORGED, SET_ASIDE, UNDECODABLE
from forwarder.reservation.parsing import whole_number
from forwarder.store.audit import AuditResult
from forwarder.store.lists.overview import FailedState, Overview
from forwarder.topics import port
from forwarder.topics.codec import CUT, EVENT_ID, MessageSigner, Undecodable, decode_data, header, replayed
from forwarder.topics.port import ConsumedMessage, Log, LogUnavailable, Message, Publisher

_DIGITS = 9  # of a number that one of ours wrote


class LetterState(StrEnum):
    """Whether a letter can be replayed, and why not.

    OPEN: its submission is still FAILED by this letter's event. REPLAYED: its submission is no longer FAILED, or not in the
    store. SUPERSEDED: a later duplicate has, or may get, a reservation: a replay would book twice. ERASED: the guest's data was.
    CARD_GONE: a replay fails again, unless the account sends no cards to its PMS. UNDECODABLE: a replay is set aside again, unless
    it can be decoded now. FORGED: without a valid signature. TOO_LARGE: it was cut to fit, and its headers give the place of the
    whole message; or the log would refuse it."""

    OPEN = "open"
    REPLAYED = "replayed"
    SUPERSEDED = "superseded"
    ERASED = "erased"
    CARD_GONE = "card_gone"
    UNDECODABLE = "undecodable"
    FORGED = "forged"
    TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter without its value. `id` is that of the failure's event, or `partition:offset` of the message that could not be read.

    `place`: partition and offset. `account` and `request_id` are empty if unknown. `whole`: the log would take it back unchanged.
    `had_card`: its submission had a card, since destroyed. `superseded_by`: the request id of the one sent in its place."""

    id: str
    place: tuple[int, int]
    set_aside_at: datetime
    account: str
    failure_class: str
    reason: str
    detail: str
    attempts: int
    request_id: str
    revision: int | None
    whole: bool = True
    had_card: bool = False
    superseded_by: str | None = None


Found = Sequence[tuple[Letter, LetterState]]


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Selects letters by what is given; `since` (inclusive) and `until` (exclusive) are of when they were set aside."""

    ids: Collection[str] = ()
    account: str | None = None
    failure_class: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def includes(self, letter: Letter) -> bool:
        within = (self.since or letter.set_aside_at) <= letter.set_aside_at
        within = within and (self.until is None or letter.set_aside_at < self.until)
        named = self.account in {None, letter.account} and self.failure_class in {None, letter.failure_class}
        return within and named and (not self.ids or letter.id in self.ids)


@dataclass(frozen=True, slots=True)
class DeadLetterReader:
    """Reads the letters of one deployment from `topic`. Its methods raise `LogUnavailable` and `StoreUnavailable`."""

    log: Log
    topic: str
    overview: Overview

    async def find(self, wanted: LetterFilter) -> Found:
        """Matching letters, newest first, each with its state. A letter that was written twice counts once."""
        found: dict[str, Letter] = {}
        async with aclosing(port.read_to_end(self.log, self.topic)) as batches:
            async for batch in batches:
                found |= {letter.id: letter for letter in map(letter_of, batch) if wanted.includes(letter)}
        newest_first = sorted(found.values(), key=lambda letter: (letter.set_aside_at, letter.place), reverse=True)
        asked = sorted({each.request_id for each in newest_first if each.revision is not None})
        failed: dict[str, FailedState] = {}
        for first in range(0, len(asked), 1000):
            failed |= await self.overview.failed(asked[first : first + 1000])
        return [_with_state(letter, failed.get(letter.request_id)) for letter in newest_first]

    async def messages(self, letters: Collection[Letter]) -> AsyncGenerator[Sequence[Message], None]:
        """The messages of `letters`, in topic order, in batches. Leaves out pruned ones."""
        places = {letter.place for letter in letters}
        async with aclosing(port.read_to_end(self.log, self.topic)) as batches:
            async for batch in batches:
                if chosen := [each.message for each in batch if (each.partition, each.offset) in places]:
                    yield chosen

    async def message(self, letter: Letter) -> Message | None:
        """The whole letter; None if it was pruned since."""
        return next(iter([message async for batch in self.messages([letter]) for message in batch]), None)


def letter_of(consumed: ConsumedMessage) -> Letter:
    """The letter in a message of the dead-letter topic. A foreign message counts as undecodable."""
    message, headers = consumed.message, consumed.message.headers
    event_id = header(headers, EVENT_ID) or ""
    request_id, _, text = event_id.rpartition(".")
    revision = whole_number(text, _DIGITS) if request_id else None
    try:
        value = decode_data(message)
    except Undecodable:
        value = {}
    account = value.get("integrationAccountId")
    if not isinstance(account, str):  # the key begins with it
        account = message.key.decode("utf-8", "replace").partition(":")[0]
    # The place of the unreadable message; without a header for it, the place of the letter.
    original = [header(headers, f"dlt-original-{name}") for name in ("partition", "offset")]
    place = [f"dlt:{consumed.partition}:{consumed.offset}"] if None in original else [each or "" for each in original]
    return Letter(
        id=event_id if revision is not None else ":".join(place),
        place=(consumed.partition, consumed.offset),
        set_aside_at=port.moment_of(consumed.timestamp_ms),
        account=account,
        failure_class=header(headers, FAILURE_CLASS) or UNDECODABLE,
        reason=header(headers, "dlt-exception-class") or "",
        detail=header(headers, "dlt-exception-message") or "",
        attempts=whole_number(header(headers, "dlt-attempts") or "", _DIGITS) or 0,
        request_id=request_id if revision is not None else "",
        revision=revision,
        whole=header(headers, CUT) is None and replayed(message).size <= port.MAX_MESSAGE_BYTES,
        had_card=revision is not None and value.get("card") is not None,
    )


def _with_state(letter: Letter, failed: FailedState | None) -> tuple[Letter, LetterState]:
    """The letter and its state. `failed`: of its submission, if that is FAILED now."""
    if not letter.whole:
        return letter, LetterState.TOO_LARGE
    if letter.revision is None:
        return letter, LetterState.FORGED if letter.failure_class == FORGED else LetterState.UNDECODABLE
    if failed is None or failed.revision != letter.revision:
        return letter, LetterState.REPLAYED
    if failed.erased:
        return letter, LetterState.ERASED
    if failed.superseded_by is not None:
        return replace(letter, superseded_by=failed.superseded_by), LetterState.SUPERSEDED
    return letter, LetterState.CARD_GONE if letter.had_card else LetterState.OPEN


def row(letter: Letter, state: LetterState) -> dict[str, Any]:
    standing = {"requestId": letter.request_id or None, "standing": state.value, "supersededBy": letter.superseded_by}
    return picked(letter, "id at=set_aside_at account failureClass reason attempts") | standing


def headers_of(message: Message) -> dict[str, str]:
    """The headers as text; repeated names are joined by commas, as in HTTP."""
    headers: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in message.headers:
        headers[name].append(value.decode("utf-8", "backslashreplace"))
    return {name: ", ".join(values) for name, values in headers.items()}


def value_of(letter: Letter, message: Message) -> dict[str, Any] | None:
    """The value of a failure's letter, without the card. None for an undecodable one, which may hold anything."""
    if letter.revision is None:
        return None
    try:
        value = dict(decode_data(message))
    except Undecodable:
        return None
    for holder, name in ((value.get("reservation"), "cardDetails"), (value, "card")):
        if isinstance(holder, dict) and holder.get(name) is not None:
            holder[name] = "gone"
    return value


# --- replaying ---


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


# --- the commands ---

_CLASSES = ", ".join(FAILURE_CLASSES)
COLUMNS = ("id", "at", "account", "failureClass", "reason", "attempts", "standing")
"""The columns that fit a table: a failure's id begins with its requestId."""


@dataclass(frozen=True, slots=True)
class LetterOptions:
    """Filters, combined with AND.

    since: Only those set aside since then: ISO 8601, or an age such as 30m, 2h, 7d.
    until: Only those set aside before then, in the same formats."""

    account: Annotated[str | None, Option("--account", help="Only of this integration account.")] = None
    failure_class: Annotated[str | None, Option("--class", help=f"Only of this class: {_CLASSES}.")] = None
    since: str | None = None
    until: str | None = None

    def wanted(self) -> LetterFilter:
        """Raises `WrongUsage`."""
        if self.failure_class is not None and self.failure_class not in FAILURE_CLASSES:
            raise WrongUsage(f"There is no failure class {self.failure_class!r}; there are: {_CLASSES}.")
        after, before = moment_if_given(self.since, "--since"), moment_if_given(self.until, "--until")
        if after is not None and before is not None and after >= before:
            raise WrongUsage("--since must be before --until.")
        return LetterFilter(account=self.account, failure_class=self.failure_class, since=after, until=before)


async def list_letters(
    *, filters: LetterOptions, limit: Limit = 20, everything: Annotated[bool, Option("--all")] = False
) -> Printed:
    """List dead letters that can be replayed, newest first.

    open: its submission is still FAILED because of it. superseded: a later duplicate replaced it, and it cannot be replayed.
    erased: its guest's data was erased, and it cannot be replayed. undecodable: it holds no readable submission. forged: no
    ingress wrote it, and it cannot be replayed. too_large: it cannot be replayed; its headers say where the message is. With
    --all also replayed: it was replayed, or its submission is gone.

    everything: Include replayed ones."""
    wanted = filters.wanted()
    async with command.open_deployment() as backend:
        found = await letters_of(backend).find(wanted)
        await require_known(backend, found, account=wanted.account)
    rows = [row(letter, state) for letter, state in found if everything or state is not LetterState.REPLAYED]
    more = [f"The newest {limit} of {len(rows)}; --limit shows more."] if len(rows) > limit else []
    return output.listed(rows[:limit], COLUMNS, notes=more)


async def show(backend: Deployment, letter_id: Annotated[str, Argument(metavar="ID")], raw: bool = False) -> Printed:
    """Show one dead letter: its reason, its headers, its value without the card.

    letter_id: The letter's id from `dead-letters list`.
    raw: Print the value of an undecodable one; it may contain anything."""
    letters = letters_of(backend)
    ((letter, state),) = all_of([letter_id], await letters.find(LetterFilter(ids=[letter_id])))
    if (message := await letters.message(letter)) is None:
        raise Failed(f"the dead letter {letter_id} has just been pruned from the log")
    if raw and letter.revision is not None:
        raise WrongUsage(f"{letter_id} can be read, and is shown without its card: leave out --raw.")
    about = {**row(letter, state), "detail": letter.detail, "sizeBytes": len(message.value)}
    headers, value = headers_of(message), value_of(letter, message)
    if raw:
        text = message.value.decode("utf-8", "backslashreplace")
    elif value is not None:
        text = json.dumps(json.loads(output.json_line(value)), ensure_ascii=False, indent=2)
    else:
        text = "Not shown: it could not be decoded, and may contain anything. --raw shows it."
    whole = {**about, "headers": headers, **({"raw": text} if raw else {"value": value})}
    return Printed(whole, (fields_of(about), "\nheaders", fields_of(headers), "\nvalue", text))


async def acknowledge(
    failure_class: Annotated[str, Argument(metavar="CLASS", help=f"The class: {', '.join(SET_ASIDE)}.")],
) -> Printed:
    """Acknowledge messages that workers set aside, once you know where they came from: status and alert end.

    The dead letters stay. Further messages of the class are reported again."""
    if failure_class not in SET_ASIDE:
        raise WrongUsage(f"Messages are set aside as {', '.join(SET_ASIDE)}; {failure_class!r} is none of these.")
    async with (
        command.open_deployment() as backend,
        backend.audit.operation("dead_letters.acknowledge", target=failure_class),
    ):
        count = await backend.repairs.acknowledge(failure_class)
    return Printed({"class": failure_class, "acknowledged": count}, f"{count:,} acknowledged.")


def letters_of(backend: Backend) -> DeadLetterReader:
    return DeadLetterReader(backend.log, backend.settings.topics.dead_letters, backend.overview)


def all_of(ids: Sequence[str], found: Found) -> Found:
    """`found`, which must hold every one of `ids`. Raises `Failed`."""
    if missing := sorted({*ids} - {letter.id for letter, _ in found}):
        raise Failed(f"no dead letter {', '.join(missing)}; `forwarder dead-letters list --all` shows those there are")
    return found


_FASTEST: Final = 100_000
_SHOWN: Final = 20


async def replay(
    ids: Annotated[list[str] | None, Argument(metavar="ID...", help="Only those with these ids.")] = None,
    *,
    filters: LetterOptions,
    all_open: bool = False,
    dry_run: bool = False,
    rate: Annotated[float, Option(help="Maximum per second.")] = 50.0,
    yes: Yes = False,
) -> Printed:
    """Put open dead letters back on the topic that they came from.

    Workers push them again, until the account's deadline. Replaying twice books once. Undecodable ones are replayed, unchanged,
    only if their ids are given.

    all_open: All open ones.
    dry_run: Only say what would be replayed, by account and class."""
    wanted = filters.wanted()
    if [bool(ids), wanted != LetterFilter(), all_open].count(True) != 1:
        filtered = "by filters (--account, --class, --since, --until)"
        raise WrongUsage(f"Select dead letters: by ids, {filtered}, or --all-open.")
    if wanted.failure_class == UNDECODABLE:
        raise WrongUsage("Undecodable ones are replayed only if their ids are given.")
    if not 0 < rate <= _FASTEST:
        raise WrongUsage(f"--rate must be more than 0, and {_FASTEST:,} at most.")
    async with command.open_deployment() as backend:
        reader = letters_of(backend)
        found = all_of(ids or [], await reader.find(LetterFilter(ids=frozenset(ids)) if ids else wanted))
        await require_known(backend, found, account=wanted.account)
        plan = plan_replay(found, by_id=bool(ids))
        if dry_run:
            return _planned(plan)
        agreed(f"Put {len(plan.chosen)} back?{_passed_over(plan)}", yes=yes or bool(ids) or not plan.chosen)
        letters, topic = [letter for letter, _ in plan.chosen], backend.settings.topics.requests
        outage: LogUnavailable | None = None
        signer = await backend.signer()
        async with backend.log.publisher() as publisher:
            with command.stop_on_signal() as stop, output.progress(len(letters), "Putting back") as on_published:
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
    return Printed(summary, f"{sentence}{_passed_over(plan)}", failed=failed)


def _planned(plan: ReplayPlan) -> Printed:
    rows = [row(*each) for each in plan.chosen]
    counts = Counter((letter.account, letter.failure_class) for letter, _ in plan.chosen)
    groups = [{"account": of, "failureClass": name, "count": count} for (of, name), count in sorted(counts.items())]
    text: list[Block] = []
    if rows:
        more = f"… and {len(rows) - _SHOWN} more\n" if len(rows) > _SHOWN else ""
        text = [Table(rows[:_SHOWN], COLUMNS), more, Table(groups, ("account", "failureClass", "count"))]
    text.append(f"{len(rows)} would be put back.{_passed_over(plan)}")
    summary = {**plan.as_json(), "putBack": 0, "dryRun": True, "interrupted": False}
    return Printed({**summary, "groups": groups, "letters": rows}, text)


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


COMMANDS = commands(list=list_letters, show=show, replay=replay, acknowledge=acknowledge)
