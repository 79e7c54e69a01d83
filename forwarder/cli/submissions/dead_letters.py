"""`forwarder dead-letters …`: submissions that failed and messages that could not be read; and replaying them."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

import typer

from forwarder.assembly.backend import Backend
from forwarder.cli.backend import stop_on_signal, with_backend
from forwarder.cli.options import moment
from forwarder.cli.output import (
    AsJson,
    Failed,
    WrongUsage,
    json_line,
    note,
    progress,
    say,
    show_json,
    show_one,
    show_rows,
)
from forwarder.cli.submissions.bulk import Yes, agreed
from forwarder.operations.repair.dead_letters import (
    DeadLetterReader,
    Letter,
    LetterFilter,
    LetterState,
    headers_of,
    row,
    value_of,
)
from forwarder.operations.repair.replay import Replay, ReplayPlan, plan_replay
from forwarder.process.clock import SystemClock
from forwarder.reservation.failures import FAILURE_CLASSES, UNDECODABLE
from forwarder.topics.port import LogUnavailable, Message

_FASTEST = 100_000
_SHOWN = 20
_COLUMNS = ("id", "at", "account", "failureClass", "reason", "attempts", "standing")
"""The columns that fit a table: a failure's id begins with its requestId."""

_OfAccount = Annotated[str | None, typer.Option("--account", help="Only of this integration account.")]
_OfClass = Annotated[str | None, typer.Option("--class", help=f"Only of this class: {', '.join(FAILURE_CLASSES)}.")]
_Since = Annotated[
    str | None, typer.Option(help="Only those set aside since then: ISO 8601, or an age such as 30m, 2h, 7d.")
]
_Until = Annotated[str | None, typer.Option(help="Only those set aside before then, in the same formats.")]
_Found = Sequence[tuple[Letter, LetterState]]


def commands() -> typer.Typer:
    """list, show, replay"""
    group = typer.Typer(help="Messages that could not be delivered or read, and replaying them.", no_args_is_help=True)
    group.command("list")(list_letters)
    group.command("show")(show)
    group.command("replay")(replay)
    return group


def list_letters(
    account: _OfAccount = None,
    failure_class: _OfClass = None,
    since: _Since = None,
    until: _Until = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    everything: Annotated[bool, typer.Option("--all", help="Include replayed ones.")] = False,
    as_json: AsJson = False,
) -> None:
    """List dead letters that can be replayed, newest first.

    open: its submission is still FAILED because of it. superseded: a later duplicate replaced it, and it cannot be replayed.
    erased: its guest's data was erased, and it cannot be replayed. undecodable: it holds no readable submission. forged: no
    ingress wrote it, and it cannot be replayed. too_large: it cannot be replayed; its headers say where the message is. With
    --all also replayed: it was replayed, or its submission is gone.
    """
    wanted = _wanted(account, failure_class, since, until)
    found = with_backend(lambda backend: _letters(backend).find(wanted))
    rows = [row(letter, state) for letter, state in found if everything or state is not LetterState.REPLAYED]
    show_rows(rows[:limit], _COLUMNS, as_json=as_json)
    if len(rows) > limit:
        note(f"The newest {limit} of {len(rows)}; --limit shows more.")


def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="The letter's id from `dead-letters list`.")],
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the value of an undecodable one; it may contain anything.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter: its reason, its headers, its value without the card."""
    letter, state, message = with_backend(partial(_read, letter_id))
    if raw and letter.revision is not None:
        raise WrongUsage(f"{letter_id} can be read, and is shown without its card: leave out --raw.")
    about = {**row(letter, state), "detail": letter.detail, "sizeBytes": len(message.value)}
    value = message.value.decode("utf-8", "backslashreplace") if raw else value_of(letter, message)
    if as_json:
        show_json({**about, "headers": headers_of(message), "raw" if raw else "value": value})
    else:
        _show_whole(about, headers_of(message), value)


async def _read(letter_id: str, backend: Backend) -> tuple[Letter, LetterState, Message]:
    letters = _letters(backend)
    ((letter, state),) = _all_of([letter_id], await letters.find(LetterFilter(ids=[letter_id])))
    message = await letters.message(letter)
    if message is None:
        raise Failed(f"the dead letter {letter_id} has just been pruned from the log")
    return letter, state, message


def _show_whole(about: Mapping[str, Any], headers: Mapping[str, str], value: Mapping[str, Any] | str | None) -> None:
    show_one(about, as_json=False)
    say("\nheaders")
    show_one(headers, as_json=False)
    say("\nvalue")
    if value is None:
        say("Not shown: it could not be decoded, and may contain anything. --raw shows it.")
    else:
        say(value if isinstance(value, str) else json.dumps(json.loads(json_line(value)), ensure_ascii=False, indent=2))


def replay(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Only those with these ids.")] = None,
    account: _OfAccount = None,
    failure_class: _OfClass = None,
    since: _Since = None,
    until: _Until = None,
    all_open: Annotated[bool, typer.Option("--all-open", help="All open ones.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be replayed, by account and class.")
    ] = False,
    rate: Annotated[float, typer.Option(help="Maximum per second.")] = 50.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Put open dead letters back on the topic that they came from.

    Workers push them again, until the account's deadline. Replaying twice books once. Undecodable ones are replayed, unchanged,
    only if their ids are given.
    """
    filters = _wanted(account, failure_class, since, until)
    _require_one_selection(ids, filters, all_open=all_open)
    if not 0 < rate <= _FASTEST:
        raise WrongUsage(f"--rate must be more than 0, and {_FASTEST:,} at most.")
    wanted = LetterFilter(ids=frozenset(ids)) if ids else filters
    with_backend(partial(_replay, ids or [], wanted, dry_run, rate, yes or bool(ids), as_json))


async def _replay(
    ids: Sequence[str], wanted: LetterFilter, dry_run: bool, rate: float, yes: bool, as_json: bool, backend: Backend
) -> None:
    found = _all_of(ids, await _letters(backend).find(wanted))
    plan = plan_replay(found, by_id=bool(ids))
    if dry_run:
        _show_plan(plan, as_json=as_json)
    else:
        agreed(f"Put {len(plan.chosen)} back?{_passed_over(plan.passed_over)}", yes=yes or not plan.chosen)
        await _put_back(backend, plan, rate, as_json=as_json)


async def _put_back(backend: Backend, plan: ReplayPlan, rate: float, *, as_json: bool) -> None:
    letters, passed_over = [letter for letter, _ in plan.chosen], plan.passed_over
    outage: LogUnavailable | None = None
    signer = await backend.signer()
    async with backend.log.publisher() as publisher:
        with stop_on_signal() as stop, progress(len(letters), "Putting back") as on_published:
            topic = backend.settings.topics.requests
            running = Replay(publisher, topic, signer, backend.clock, rate=rate, stop=stop)
            async with aclosing(_letters(backend).messages(letters)) as messages:
                try:
                    await running.run_audited(backend.audit, plan, messages, on_published)
                except LogUnavailable as error:
                    outage = error
    done, selected = running.put_back, len(letters)
    interrupted = stop.is_set() and done < selected
    if as_json:
        show_json(_summary(selected, done, passed_over, dry_run=False, interrupted=interrupted))
    else:
        said = f"{done} of {selected} put back." if selected else "There is nothing open to put back."
        say(f"{said}{_passed_over(passed_over)}")
    if done < selected:
        why = "interrupted" if interrupted else str(outage or "the others were pruned from the log meanwhile")
        raise Failed(f"{selected - done} were not replayed: {why}. Run the same command again to continue.")


def _show_plan(plan: ReplayPlan, *, as_json: bool) -> None:
    rows, passed_over = [row(letter, state) for letter, state in plan.chosen], plan.passed_over
    if as_json:
        summary = _summary(len(rows), 0, passed_over, dry_run=True, interrupted=False)
        show_json({**summary, "groups": plan.groups(), "letters": rows})
        return
    if rows:
        show_rows(rows[:_SHOWN], _COLUMNS, as_json=False)
        say(f"… and {len(rows) - _SHOWN} more\n" if len(rows) > _SHOWN else "")
        show_rows(plan.groups(), ("account", "failureClass", "count"), as_json=False)
    say(f"{len(rows)} would be put back.{_passed_over(passed_over)}")


def _letters(backend: Backend) -> DeadLetterReader:
    return DeadLetterReader(backend.log, backend.settings.topics.dead_letters, backend.overview)


def _wanted(account: str | None, failure_class: str | None, since: str | None, until: str | None) -> LetterFilter:
    if failure_class is not None and failure_class not in FAILURE_CLASSES:
        raise WrongUsage(f"There is no failure class {failure_class!r}; there are: {', '.join(FAILURE_CLASSES)}.")
    now = SystemClock().now()
    after = None if since is None else moment(since, "--since", now)
    before = None if until is None else moment(until, "--until", now)
    if after is not None and before is not None and after >= before:
        raise WrongUsage("--since must be before --until.")
    return LetterFilter(account=account, failure_class=failure_class, since=after, until=before)


def _require_one_selection(ids: Sequence[str] | None, filters: LetterFilter, *, all_open: bool) -> None:
    if [bool(ids), filters != LetterFilter(), all_open].count(True) != 1:
        raise WrongUsage(
            "Select dead letters: by ids, by filters (--account, --class, --since, --until), or --all-open."
        )
    if filters.failure_class == UNDECODABLE:
        raise WrongUsage("Undecodable ones are replayed only if their ids are given.")


def _all_of(ids: Sequence[str], found: _Found) -> _Found:
    missing = sorted({*ids} - {letter.id for letter, _ in found})
    if missing:
        raise Failed(f"no dead letter {', '.join(missing)}; `forwarder dead-letters list --all` shows those there are")
    return found


def _summary(
    selected: int, put_back: int, passed_over: Counter[LetterState], *, dry_run: bool, interrupted: bool
) -> dict[str, Any]:
    return {
        "selected": selected,
        "putBack": put_back,
        "passedOver": {each.value: passed_over[each] for each in LetterState if each is not LetterState.OPEN},
        "dryRun": dry_run,
        "interrupted": interrupted,
    }


def _passed_over(passed_over: Counter[LetterState]) -> str:
    said = {
        LetterState.REPLAYED: "replayed already",
        LetterState.SUPERSEDED: "superseded: submitted again since, `dead-letters list` shows by which",
        LetterState.ERASED: "without their guests' data, which was removed",
        LetterState.CARD_GONE: "card gone: submit them again, with the card; if the PMS is sent no cards, name them by their ids",
        LetterState.UNDECODABLE: "undecodable: name those by their ids",
        LetterState.FORGED: "forged: workers would set them aside again",
        LetterState.TOO_LARGE: "too large to be put back",
    }
    counts = [f"{passed_over[each]} {words}" for each, words in said.items() if passed_over[each]]
    return f" Passed over: {'; '.join(counts)}." if counts else ""
